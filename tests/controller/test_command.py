"""The command ``firedex controller``: what it imports, and errors in its options."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from firedex_controller.command import controller

pytestmark = pytest.mark.slow

SWITCH = ["--switch", "s1=1"]
FORBIDDEN = ("numpy", "yaml", "rich", "flask", "paho")


def run_python(code: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_only_what_the_command_needs() -> None:
    # Under Ryu, eventlet has to patch the standard library before httpx is imported.
    names = (*FORBIDDEN, "httpx", "http.server", "os_ken", "ryu")
    module = "firedex_controller.command"
    code = f"import sys, {module}; print([name for name in {names} if name in sys.modules])"
    assert run_python(code) == "[]"


@pytest.mark.parametrize("module", ["firedex_controller.app", "firedex_controller.agent.command"])
def test_controller_and_agent_run_without_other_extras(module: str) -> None:
    run_python(f"import sys; sys.modules.update(dict.fromkeys({FORBIDDEN})); import {module}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--switch", "s1=1", "--switch", "s1=2"], "two switches have the same name"),
        (["--switch", "s1=1", "--switch", "s2=1"], "two switches have the same datapath id"),
        ([*SWITCH, "--agent", "s2=http://127.0.0.1:1"], "no --switch is named 's2'"),
        ([*SWITCH, "--agent", "ftp://127.0.0.1:1"], "--agent"),
        ([*SWITCH, "--listen", "127.0.0.1:9", "--api", "127.0.0.1:9"], "differ from --listen"),
        ([*SWITCH, "--token", "two words"], "printable ASCII without spaces"),
        ([*SWITCH, "--agent-token", "schlüssel"], "printable ASCII without spaces"),
        ([*SWITCH, "--api", "10.0.0.1:8080"], "is not a loopback address"),
        ([*SWITCH, "--state", "/proc/none/state.json"], "--state"),
    ],
)
def test_error_describes_the_invalid_option(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(controller, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())

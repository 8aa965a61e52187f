"""The commands that run the parts of a site: help texts and invalid options."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firedex.cli import firedex
from firedex.cli.group import COMMANDS
from firedex.gateway.relay import Relay

pytestmark = pytest.mark.slow

PARTS = ["controller", "emulate", "gateway", "pub", "serve", "sub", "switch-agent"]


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(firedex, arguments, env=env, auto_envvar_prefix="FIREDEX")


class ServerStarted(Exception):
    """Raised in place of serving, which would never end."""


@pytest.fixture(autouse=True)
def _stop_before_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_server_started(*_: Any, **__: Any) -> None:
        raise ServerStarted

    monkeypatch.setattr(Relay, "serve", raise_server_started)
    monkeypatch.setattr("firedex.service.commands.serve.serve_until_stopped", raise_server_started)


@pytest.fixture
def site_file(tmp_path: Path) -> str:
    file = tmp_path / "site.yaml"
    file.write_text(
        "{name: x, topics: [], network: {switches: [{id: core, bandwidth_bits_per_second: 1000}],"
        " broker: {id: edge}}}"
    )
    return str(file)


@pytest.mark.parametrize("name", PARTS)
def test_help_has_an_example(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert f"Example: firedex {name} " in " ".join(result.output.split())


def test_help_lists_every_part_with_a_summary() -> None:
    output = run("--help").output
    for name in PARTS:
        assert any(
            line.split()[:1] == [name] and len(line.split()) > 2 for line in output.split("\n")
        )


@pytest.mark.parametrize("name", ["controller", "emulate"])
def test_help_of_a_part_prints_no_warning(name: str) -> None:
    completed = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            "from firedex.cli import main; main()",
            name,
            "--help",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "Example: firedex" in completed.stdout


# -- extras ----------------------------------------------------------------------------------------


@pytest.fixture
def _without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command ``emulate`` need a module that is not installed."""
    entry = replace(COMMANDS["emulate"], target="module_that_is_absent.command:emulate")
    monkeypatch.setitem(COMMANDS, "emulate", entry)


@pytest.mark.parametrize("arguments", [["emulate"], ["emulate", "--help"]])
@pytest.mark.usefixtures("_without_extra")
def test_error_contains_the_missing_extra(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "emulate needs the module 'module_that_is_absent'" in result.stderr
    assert "pip install 'firedex[emulation]'" in result.stderr


def test_missing_controller_framework_error_contains_the_extra() -> None:
    program = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n in ('ryu', 'os_ken') else find(n, *a)\n"
        "from firedex.cli import main; main()"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program, "controller", "--switch", "s1=1:p"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "pip install 'firedex[controller]'" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert completed.returncode == 2


# -- gateway ---------------------------------------------------------------------------------------


def test_gateway_starts_with_its_defaults() -> None:
    assert isinstance(run("gateway").exception, ServerStarted)


@pytest.mark.parametrize("option", ["--listen", "--broker"])
@pytest.mark.parametrize("text", ["", "1884", "localhost", ":1884", "host:", "host:x", "host:-1"])
def test_gateway_rejects_an_address_that_is_not_host_and_port(option: str, text: str) -> None:
    result = run("gateway", option, text)
    assert result.exit_code == 2, repr(result.exception)
    assert f"{text!r} is not HOST:PORT" in result.stderr


@pytest.mark.parametrize("option", ["--listen", "--broker"])
def test_gateway_rejects_a_port_out_of_range(option: str) -> None:
    result = run("gateway", option, "127.0.0.1:99999")
    assert result.exit_code == 2, repr(result.exception)


def test_gateway_error_contains_the_invalid_option() -> None:
    assert "--listen" in run("gateway", "--listen", "nowhere").stderr


def test_gateway_option_can_be_set_by_an_environment_variable() -> None:
    result = run("gateway", env={"FIREDEX_GATEWAY_LISTEN": "nowhere"})
    assert result.exit_code == 2
    assert "'nowhere' is not HOST:PORT" in result.stderr


# -- serve -----------------------------------------------------------------------------------------


def test_serve_starts_with_a_valid_site_file(site_file: str, tmp_path: Path) -> None:
    result = run("serve", site_file, "--state", str(tmp_path / "state.sqlite"))
    assert isinstance(result.exception, ServerStarted), result.output


def test_serve_reports_a_missing_site_file() -> None:
    result = run("serve", "absent.yaml")
    assert result.exit_code == 2
    assert "cannot read 'absent.yaml'" in result.stderr


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "localhost:1884", "10.0.0.1:x", "10.0.0.1:99999", "[::1]:1884"]
)
def test_serve_rejects_an_invalid_gateway_address(
    site_file: str, tmp_path: Path, text: str
) -> None:
    state = str(tmp_path / "state.sqlite")
    result = run("serve", site_file, "--state", state, "--gateway", text)
    assert result.exit_code == 2, repr(result.exception)
    assert "gateway" in result.stderr


@pytest.mark.parametrize("text", ["nowhere.invalid", "127.0.0.1:x", "127.0.0.1:99999"])
def test_serve_rejects_an_invalid_listen_address(site_file: str, tmp_path: Path, text: str) -> None:
    state = str(tmp_path / "state.sqlite")
    result = run("serve", site_file, "--state", state, "--listen", text)
    assert result.exit_code == 2, repr(result.exception)


# -- controller ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["s1", "s1=0:p", "s1=xyz:p", "=1:p"])
def test_controller_rejects_an_invalid_switch(text: str) -> None:
    result = run("controller", "--switch", text)
    assert result.exit_code == 2
    assert "write NAME=DATAPATH_ID or NAME=DATAPATH_ID:PORT" in " ".join(result.stderr.split())


def test_controller_requires_a_switch() -> None:
    result = run("controller")
    assert result.exit_code == 2
    assert "--switch" in result.stderr


def test_controller_rejects_an_invalid_api_address() -> None:
    result = run("controller", "--switch", "s1=1:p", "--api", "nowhere")
    assert result.exit_code == 2, repr(result.exception)


# -- emulate ---------------------------------------------------------------------------------------


def test_emulate_rejects_an_unknown_mode() -> None:
    result = run("emulate", "--compare", "none,magic")
    assert result.exit_code == 2
    assert "unknown mode 'magic'; the modes are none, priority, firedex" in " ".join(
        result.stderr.split()
    )


def test_emulate_rejects_an_output_folder_below_run() -> None:
    result = run("emulate", "--out", "/run/records")
    assert result.exit_code == 2
    assert "not visible in the sandbox" in result.stderr


def test_emulate_without_root_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = run("emulate", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "must be run as root" in result.stderr

"""``firedex serve``, ``gateway``, ``controller``, …: help, and mistakes of users."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from firedex.cli import part_commands
from firedex.cli.part_commands import add_part_commands
from firedex.gateway.relay import Relay

PARTS = ["controller", "emulate", "gateway", "pub", "serve", "sub", "switch-agent"]


@click.group()
def group() -> None:
    """Stands for ``firedex``, so that no test changes the real one."""


add_part_commands(group)


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(group, arguments, env=env, auto_envvar_prefix="FIREDEX")


class Started(Exception):
    """Raised where a command would go on for ever."""


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise Started

    monkeypatch.setattr(Relay, "serve", start)
    monkeypatch.setattr("firedex.service.command.serve_until_stopped", start)


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


def test_every_part_is_listed_with_what_it_does() -> None:
    printed = run("--help").output
    for name in PARTS:
        assert any(
            line.split()[:1] == [name] and len(line.split()) > 2 for line in printed.split("\n")
        )


@pytest.mark.parametrize("name", ["controller", "emulate"])
def test_the_program_itself_has_them_without_a_warning(name: str) -> None:
    done = subprocess.run(
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
    assert (done.returncode, done.stderr) == (0, "")
    assert "Example: firedex" in done.stdout


# -- extras ----------------------------------------------------------------------------------------


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> click.Group:
    """The command line where the part ``emulate`` needs a module that is not there."""
    entry = EntryPoint("emulate", "module_that_is_absent.command:emulate", part_commands.GROUP)
    monkeypatch.setattr(part_commands, "entry_points", lambda **_: [entry])
    made = click.Group("firedex")
    add_part_commands(made)
    return made


@pytest.mark.parametrize("arguments", [["emulate"], ["emulate", "--help"]])
def test_a_missing_extra_is_named(without_extra: click.Group, arguments: list[str]) -> None:
    result = CliRunner().invoke(without_extra, arguments)
    assert result.exit_code == 2
    assert "emulate needs the module 'module_that_is_absent'" in result.stderr
    assert "pip install 'firedex[emulation]'" in result.stderr


def test_help_lists_what_is_not_installed(without_extra: click.Group) -> None:
    result = CliRunner().invoke(without_extra, ["--help"])
    assert result.exit_code == 0
    assert "(not installed)" in result.output


def test_a_framework_that_is_not_installed_is_named() -> None:
    blocked = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n in ('ryu', 'os_ken') else find(n, *a)\n"
        "from firedex.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked, "controller", "--switch", "s1=1:p"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "pip install 'firedex[controller]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


# -- gateway ---------------------------------------------------------------------------------------


def test_gateway_starts_with_its_defaults() -> None:
    assert isinstance(run("gateway").exception, Started)


@pytest.mark.parametrize("option", ["--listen", "--broker"])
@pytest.mark.parametrize("text", ["", "1884", "localhost", ":1884", "host:", "host:x", "host:-1"])
def test_gateway_refuses_what_is_not_host_and_port(option: str, text: str) -> None:
    result = run("gateway", option, text)
    assert result.exit_code == 2, repr(result.exception)
    assert f"{text!r} is not HOST:PORT" in result.stderr


@pytest.mark.parametrize("option", ["--listen", "--broker"])
def test_gateway_refuses_a_port_that_cannot_be(option: str) -> None:
    result = run("gateway", option, "127.0.0.1:99999")
    assert result.exit_code == 2, repr(result.exception)


def test_gateway_names_the_option_that_is_wrong() -> None:
    assert "--listen" in run("gateway", "--listen", "nowhere").stderr


def test_options_have_environment_twins() -> None:
    result = run("gateway", env={"FIREDEX_GATEWAY_LISTEN": "nowhere"})
    assert result.exit_code == 2
    assert "'nowhere' is not HOST:PORT" in result.stderr


# -- serve -----------------------------------------------------------------------------------------


def test_serve_starts(site_file: str, tmp_path: Path) -> None:
    result = run("serve", site_file, "--state", str(tmp_path / "state.sqlite"))
    assert isinstance(result.exception, Started), result.output


def test_serve_names_a_site_file_that_is_absent() -> None:
    result = run("serve", "absent.yaml")
    assert result.exit_code == 2
    assert "cannot read 'absent.yaml'" in result.stderr


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "localhost:1884", "10.0.0.1:x", "10.0.0.1:99999", "[::1]:1884"]
)
def test_serve_refuses_a_gateway_that_is_none_and_says_which_option(
    site_file: str, tmp_path: Path, text: str
) -> None:
    state = str(tmp_path / "state.sqlite")
    result = run("serve", site_file, "--state", state, "--gateway", text)
    assert result.exit_code == 2, repr(result.exception)
    assert "gateway" in result.stderr


@pytest.mark.parametrize("text", ["nowhere.invalid", "127.0.0.1:x", "127.0.0.1:99999"])
def test_serve_refuses_to_listen_nowhere(site_file: str, tmp_path: Path, text: str) -> None:
    state = str(tmp_path / "state.sqlite")
    result = run("serve", site_file, "--state", state, "--listen", text)
    assert result.exit_code == 2, repr(result.exception)


# -- controller ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["s1", "s1=0:p", "s1=xyz:p", "=1:p"])
def test_controller_refuses_a_switch_that_is_none(text: str) -> None:
    result = run("controller", "--switch", text)
    assert result.exit_code == 2
    assert "write NAME=DATAPATH_ID or NAME=DATAPATH_ID:PORT" in " ".join(result.stderr.split())


def test_controller_wants_a_switch() -> None:
    result = run("controller")
    assert result.exit_code == 2
    assert "--switch" in result.stderr


def test_controller_refuses_an_api_that_is_not_host_and_port() -> None:
    result = run("controller", "--switch", "s1=1:p", "--api", "nowhere")
    assert result.exit_code == 2, repr(result.exception)


# -- emulate ---------------------------------------------------------------------------------------


def test_emulate_refuses_a_way_that_is_none() -> None:
    result = run("emulate", "--compare", "none,magic")
    assert result.exit_code == 2
    assert "'magic'; there are none, priority, firedex" in " ".join(result.stderr.split())


def test_emulate_refuses_to_write_into_the_sandboxs_own_folder() -> None:
    result = run("emulate", "--out", "/run/records")
    assert result.exit_code == 2
    assert "/run of its own" in result.stderr


def test_emulate_without_root_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = run("emulate", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "emulation needs root" in result.stderr

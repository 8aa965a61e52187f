"""``firedex switch-agent``: its help, and mistakes of users."""

import socket

import pytest
from click.testing import CliRunner, Result
from free_ports import free_port

from firedex_controller.agent import command
from firedex_controller.agent.http_interface import AgentServer
from firedex_controller.agent.port_keeper import PortKeeper


class Started(Exception):
    """Raised where the command would go on for ever."""

    def __init__(self, where: tuple[str, int], token: str | None) -> None:
        self.where, self.token = where, token


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(server: AgentServer, _keeper: PortKeeper) -> None:
        server.server_close()
        raise Started((str(server.server_address[0]), int(server.server_address[1])), server.token)

    monkeypatch.setattr(command, "_serve", serve)
    monkeypatch.setattr("os.geteuid", lambda: 0)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(command.switch_agent, arguments, env=environment)


def test_help_has_an_example() -> None:
    printed = " ".join(run("--help").output.split())
    assert "Example: firedex switch-agent " in printed
    assert "FIREDEX_SWITCH_AGENT_TOKEN" in printed


def test_loopback_needs_no_token() -> None:
    port = free_port()
    started = run("--listen", f"127.0.0.1:{port}").exception
    assert isinstance(started, Started)
    assert (started.where, started.token) == (("127.0.0.1", port), None)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "switch.example"])  # noqa: S104
def test_elsewhere_does(host: str) -> None:
    result = run("--listen", f"{host}:8082")
    assert result.exit_code == 2
    assert "--token" in result.output


def test_the_token_may_come_from_the_environment() -> None:
    listen = f"0.0.0.0:{free_port()}"
    started = run("--listen", listen, FIREDEX_SWITCH_AGENT_TOKEN="secret").exception  # noqa: S106
    assert isinstance(started, Started)
    assert started.token == "secret"  # noqa: S105


@pytest.mark.parametrize("token", ["", "  ", "a\nb", "schlüssel"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    result = run("--token", token)
    assert result.exit_code == 2
    assert "--token" in result.output


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("--listen", where)
    assert result.exit_code == 2
    assert where in result.output


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = run()
    assert result.exit_code == 2
    assert "needs root" in result.output

"""The command ``firedex switch-agent``: its help, and errors in its options."""

import socket

import pytest
from click.testing import CliRunner, Result

from firedex.transport.http_server import JsonServer
from firedex_controller.agent import command
from firedex_controller.agent.port_keeper import PortKeeper
from tests.support.free_ports import free_port


class ServerStarted(Exception):
    """Raised instead of serving."""

    def __init__(self, address: tuple[str, int], token: str | None) -> None:
        self.address, self.token = address, token


@pytest.fixture(autouse=True)
def _stop_before_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(server: JsonServer, _keeper: PortKeeper) -> None:
        server.server_close()
        raise ServerStarted(
            (str(server.server_address[0]), int(server.server_address[1])), server.token
        )

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
    assert isinstance(started, ServerStarted)
    assert (started.address, started.token) == (("127.0.0.1", port), None)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "switch.example"])  # noqa: S104
def test_other_addresses_need_a_token(host: str) -> None:
    result = run("--listen", f"{host}:8082")
    assert result.exit_code == 2
    assert "--token" in result.output


def test_token_is_read_from_the_environment() -> None:
    listen = f"0.0.0.0:{free_port()}"
    started = run("--listen", listen, FIREDEX_SWITCH_AGENT_TOKEN="secret").exception  # noqa: S106
    assert isinstance(started, ServerStarted)
    assert started.token == "secret"  # noqa: S105


@pytest.mark.parametrize("token", ["", "  ", "a b", "a\nb", "schlüssel"])
def test_token_with_invalid_characters_is_rejected(token: str) -> None:
    result = run("--token", token)
    assert result.exit_code == 2
    assert "--token" in result.output


def test_error_contains_the_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("--listen", address)
    assert result.exit_code == 2
    assert address in result.output


def test_root_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = run()
    assert result.exit_code == 2
    assert "needs root" in result.output

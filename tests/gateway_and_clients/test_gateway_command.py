"""``firedex gateway``: what its options do, and what it says of mistakes."""

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from free_ports import free_port

from firedex.gateway import command
from firedex.gateway.sn_gateway import SnSettings

NO_SERVICE = "--service=http://127.0.0.1:1"


@pytest.mark.parametrize("option", ["--listen", "--udp-listen", "--metrics", "--tls-listen"])
def test_an_address_that_is_taken_is_named(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = socket.SOCK_DGRAM if option == "--udp-listen" else socket.SOCK_STREAM
    arguments = [f"--listen=127.0.0.1:{free_port()}", NO_SERVICE]
    if option == "--tls-listen":
        monkeypatch.setattr("ssl.SSLContext.load_cert_chain", lambda *_: None)
        file = tmp_path / "certificate.pem"
        file.touch()
        arguments.append(f"--tls-certificate={file}")
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(command.gateway, [*arguments, f"{option}={where}"])
    assert result.exit_code == 2, repr(result.exception)
    said = result.stderr.splitlines()[-1]
    assert said.startswith(f"firedex: {option} {where}: ")
    assert "in use" in said


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("nothing of the kind")
    result = CliRunner().invoke(
        command.gateway, ["--tls-listen=127.0.0.1:9", f"--tls-certificate={file}", NO_SERVICE]
    )
    assert result.exit_code == 2, repr(result.exception)
    assert str(file.name) in result.stderr.replace("\n", "")


def test_buffers_are_as_wide_over_udp_as_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made(Exception):
        pass

    made: list[SnSettings] = []

    def make(settings: SnSettings, *_: Any) -> None:
        made.append(settings)
        raise Made

    monkeypatch.setattr(command, "SnGateway", make)
    options = ["--buffer-bytes=2048", "--buffer-seconds=0.25", NO_SERVICE]
    assert isinstance(CliRunner().invoke(command.gateway, options).exception, Made)
    assert (made[0].limits.bytes, made[0].limits.seconds) == (2048, 0.25)

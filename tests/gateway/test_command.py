"""``firedex gateway``: its options, error messages and imports."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firedex.gateway import command
from firedex.gateway.sn_gateway import SnSettings
from tests.support.free_ports import free_port

NO_SERVICE = "--service=http://127.0.0.1:1"


@pytest.mark.parametrize(
    "option", ["--listen", "--udp-listen", "--metrics", "--interest", "--tls-listen"]
)
def test_error_contains_the_address_in_use(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = socket.SOCK_DGRAM if option == "--udp-listen" else socket.SOCK_STREAM
    arguments = [f"--listen=127.0.0.1:{free_port()}", NO_SERVICE]
    if option == "--tls-listen":
        monkeypatch.setattr("ssl.SSLContext.load_cert_chain", lambda *_: None)
        file = tmp_path / "certificate.pem"
        file.touch()
        arguments.append(f"--tls-certificate={file}")
    with socket.socket(socket.AF_INET, kind) as in_use:
        in_use.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            in_use.listen()
        address = f"127.0.0.1:{in_use.getsockname()[1]}"
        result = CliRunner().invoke(command.gateway, [*arguments, f"{option}={address}"])
    assert result.exit_code == 2, repr(result.exception)
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"firedex: {option}: cannot listen on {address}: ")
    assert "in use" in message


def test_error_contains_the_invalid_certificate_file(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("not a certificate")
    result = CliRunner().invoke(
        command.gateway, ["--tls-listen=127.0.0.1:9", f"--tls-certificate={file}", NO_SERVICE]
    )
    assert result.exit_code == 2, repr(result.exception)
    assert str(file.name) in result.stderr.replace("\n", "")


def test_state_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = tmp_path / "none" / "gateway.sqlite"
    result = CliRunner().invoke(command.gateway, [f"--state={file}", NO_SERVICE])
    assert result.exit_code == 2, repr(result.exception)
    assert "--state: cannot open the state file" in result.stderr


def test_buffer_options_apply_to_mqtt_sn(monkeypatch: pytest.MonkeyPatch) -> None:
    class GatewayCreated(Exception):
        pass

    settings_used: list[SnSettings] = []

    def record_settings(settings: SnSettings, *_: Any) -> None:
        settings_used.append(settings)
        raise GatewayCreated

    monkeypatch.setattr(command, "SnGateway", record_settings)
    options = ["--buffer-bytes=2048", "--buffer-seconds=0.25", NO_SERVICE]
    assert isinstance(CliRunner().invoke(command.gateway, options).exception, GatewayCreated)
    assert (settings_used[0].limits.bytes, settings_used[0].limits.seconds) == (2048, 0.25)


# fmt: off
NOT_INSTALLED = (
    "cvxpy", "dash", "flask", "matplotlib", "mininet", "numba", "numpy", "os_ken", "paho", "pandas",
    "pyarrow", "pyspark", "rich", "scipy", "sqlalchemy", "starlette", "uvicorn", "yaml",
)
# fmt: on
"""Packages that a machine with ``firedex[gateway]`` does not have."""
FORBIDDEN = ("firedex_models", "firedex.planning", "firedex.scenario", "firedex.service")
IMPORT_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import firedex.gateway.command
print(*(name for name in {unwanted!r} if name in sys.modules))
"""


def test_command_imports_only_packages_of_its_extra() -> None:
    script = IMPORT_WITHOUT.format(
        missing=set(NOT_INSTALLED), unwanted=[*NOT_INSTALLED, *FORBIDDEN]
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.split() == []

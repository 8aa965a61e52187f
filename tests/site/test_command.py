"""``firedex up`` with the real parts on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.free_ports import free_port
from tests.support.loopback_parts import mosquitto
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120.0
PROGRAM = "from firedex.site.command import up; up()"


class UpProcess:
    """The command as a process, and its output so far."""

    def __init__(self, file: Path) -> None:
        self._output = file.with_suffix(".output")
        with self._output.open("wb") as output, file.with_suffix(".errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(file), "--json"], stdout=output, stderr=errors
            )

    def output(self) -> list[dict[str, Any]]:
        complete_lines = self._output.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in complete_lines.splitlines()]

    def pid(self, name: str, *, restarts: int = 0) -> int:
        """Wait until a part is up, and return its process id (-1 if it is external)."""

        def find() -> list[dict[str, Any]]:
            assert self.process.poll() is None, f"the command ended: {self.output()}"
            expected = {"name": name, "state": "up", "restarts": restarts}
            return [each for each in self.output() if expected.items() <= each.items()]

        wait_until(lambda: bool(find()), f"{name} up", PATIENCE_SECONDS)
        pid = find()[-1]["pid"]
        return -1 if pid is None else int(pid)

    def pids(self) -> set[int]:
        return {each["pid"] for each in self.output() if each["pid"] is not None}


@contextmanager
def running_up(file: Path) -> Iterator[UpProcess]:
    up = UpProcess(file)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()


def write_site_file(folder: Path, broker: str) -> Path:
    file = folder / "site.yaml"
    file.write_text(
        f"scenario: builtin:critical-event\nbroker: {broker}\n"
        f"service: {{listen: '127.0.0.1:{free_port()}'}}\n"
        f"gateway: {{listen: '127.0.0.1:{free_port()}'}}\n"
    )
    return file


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_until_all_ended(pids: set[int]) -> None:
    wait_until(
        lambda: not any(is_running(pid) for pid in pids), f"the end of {pids}", PATIENCE_SECONDS
    )


def skip_without_mosquitto(folder: Path) -> None:
    with mosquitto(folder):
        pass


def test_site_starts_restarts_a_killed_part_and_stops(tmp_path: Path) -> None:
    skip_without_mosquitto(tmp_path)
    with running_up(write_site_file(tmp_path, f"{{listen: '127.0.0.1:{free_port()}'}}")) as up:
        broker, _, _ = (up.pid(name) for name in ("broker", "service", "gateway"))
        os.kill(broker, signal.SIGKILL)
        assert up.pid("broker", restarts=1) != broker
        failed = next(each for each in up.output() if each["state"] == "failed")
        assert failed["name"] == "broker"
        assert "restart in" in failed["detail"]
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(PATIENCE_SECONDS) == 0
        wait_until_all_ended(up.pids())
        stopped = [each["name"] for each in up.output() if each["state"] == "stopped"]
        assert stopped == ["gateway", "service", "broker"]
    assert (tmp_path / "site.state" / "service.sqlite").exists()


def test_killed_command_ends_its_parts_but_not_external_ones(tmp_path: Path) -> None:
    with (
        mosquitto(tmp_path) as port,
        running_up(write_site_file(tmp_path, f"{{at: '127.0.0.1:{port}'}}")) as up,
    ):
        assert up.pid("broker") == -1
        up.pid("gateway")
        up.process.kill()
        assert len(up.pids()) == 2
        wait_until_all_ended(up.pids())
        socket.create_connection(("127.0.0.1", port)).close()  # it must still be running


def test_failed_first_start_stops_the_other_parts(tmp_path: Path) -> None:
    # A folder in place of the database file keeps the service from starting.
    (tmp_path / "site.state" / "service.sqlite").mkdir(parents=True)
    with mosquitto(tmp_path) as port:
        file = write_site_file(tmp_path, f"{{at: '127.0.0.1:{port}'}}")
        with running_up(file) as up:
            assert up.process.wait(PATIENCE_SECONDS) == 1
            wait_until_all_ended(up.pids())
    errors = file.with_suffix(".errors").read_text()
    assert "service: exit code" in errors
    assert "Traceback" not in errors.partition("service:")[0]


def run_up(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_address_in_use_is_reported_before_parts_start(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        completed = run_up(str(write_site_file(tmp_path, f"{{listen: '127.0.0.1:{port}'}}")))
    assert completed.returncode == 2
    assert f"another process already listens on 127.0.0.1:{port}" in completed.stderr
    assert "broker: {at: ADDRESS}" in completed.stderr


@pytest.mark.parametrize(("text", "code"), [("{}", 0), ("{listen: x}", 2)])
def test_check_option_reports_problems_and_starts_no_part(
    tmp_path: Path, text: str, code: int
) -> None:
    completed = run_up("--check", "--json", str(write_site_file(tmp_path, text)))
    assert completed.returncode == code, completed.stderr
    problems = json.loads(completed.stdout)["problems"]
    assert [each["path"] for each in problems] == ([["broker", "listen"]] if code else [])
    assert not (tmp_path / "site.state").exists()

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
from free_ports import free_port
from loopback_parts import mosquitto, wait_until

PATIENCE_SECONDS = 120.0
PROGRAM = "from firedex.site_up.command import up; up()"


class SiteUp:
    """The command in a process of its own, and what it has said so far."""

    def __init__(self, file: Path) -> None:
        self._said = file.with_suffix(".said")
        with self._said.open("wb") as said, file.with_suffix(".errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(file), "--json"], stdout=said, stderr=errors
            )

    def said(self) -> list[dict[str, Any]]:
        whole = self._said.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def pid(self, name: str, *, restarts: int = 0) -> int:
        """Of a part, once it is up."""

        def find() -> list[dict[str, Any]]:
            assert self.process.poll() is None, f"it ended: {self.said()}"
            wanted = {"name": name, "state": "up", "restarts": restarts}
            return [each for each in self.said() if wanted.items() <= each.items()]

        wait_until(lambda: bool(find()), f"{name} up", PATIENCE_SECONDS)
        pid = find()[-1]["pid"]
        return -1 if pid is None else int(pid)

    def pids(self) -> set[int]:
        return {each["pid"] for each in self.said() if each["pid"] is not None}


@contextmanager
def site_up(file: Path) -> Iterator[SiteUp]:
    up = SiteUp(file)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()


def site_file(folder: Path, broker: str) -> Path:
    file = folder / "site.yaml"
    file.write_text(
        f"scenario: builtin:critical-event\nbroker: {broker}\n"
        f"service: {{listen: '127.0.0.1:{free_port()}'}}\n"
        f"gateway: {{listen: '127.0.0.1:{free_port()}'}}\n"
    )
    return file


def runs(pid: int) -> bool:
    """Whether a process is there, and not only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def none_left(pids: set[int]) -> None:
    wait_until(lambda: not any(runs(pid) for pid in pids), f"the end of {pids}", PATIENCE_SECONDS)


def needs_mosquitto(folder: Path) -> None:
    with mosquitto(folder):
        pass


def test_it_comes_up_mends_itself_and_leaves_nothing(tmp_path: Path) -> None:
    needs_mosquitto(tmp_path)
    with site_up(site_file(tmp_path, f"{{listen: '127.0.0.1:{free_port()}'}}")) as up:
        broker, _, _ = (up.pid(name) for name in ("broker", "service", "gateway"))
        os.kill(broker, signal.SIGKILL)
        assert up.pid("broker", restarts=1) != broker
        died = next(each for each in up.said() if each["state"] == "died")
        assert died["name"] == "broker"
        assert "started again in" in died["detail"]
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(PATIENCE_SECONDS) == 0
        none_left(up.pids())
        stopped = [each["name"] for each in up.said() if each["state"] == "stopped"]
        assert stopped == ["gateway", "service", "broker"]
    assert (tmp_path / "site.state" / "service.sqlite").exists()


def test_a_part_elsewhere_is_shown_and_nothing_outlives_a_killed_command(tmp_path: Path) -> None:
    with (
        mosquitto(tmp_path) as port,
        site_up(site_file(tmp_path, f"{{at: '127.0.0.1:{port}'}}")) as up,
    ):
        assert up.pid("broker") == -1
        up.pid("gateway")
        up.process.kill()
        assert len(up.pids()) == 2
        none_left(up.pids())
        socket.create_connection(("127.0.0.1", port)).close()  # not ours to end


def test_a_part_that_does_not_start_ends_the_rest(tmp_path: Path) -> None:
    (tmp_path / "site.state" / "service.sqlite").mkdir(parents=True)  # where a file should be
    with mosquitto(tmp_path) as port:
        file = site_file(tmp_path, f"{{at: '127.0.0.1:{port}'}}")
        with site_up(file) as up:
            assert up.process.wait(PATIENCE_SECONDS) == 1
            none_left(up.pids())
    errors = file.with_suffix(".errors").read_text()
    assert "service: ended with code" in errors
    assert "Traceback" not in errors.partition("service:")[0]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_an_address_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        done = run(str(site_file(tmp_path, f"{{listen: '127.0.0.1:{port}'}}")))
    assert done.returncode == 2
    assert f"something listens on 127.0.0.1:{port} already" in done.stderr
    assert "broker: {at: …}" in done.stderr


@pytest.mark.parametrize(("text", "code"), [("{}", 0), ("{listen: x}", 2)])
def test_checking_alone_starts_nothing(tmp_path: Path, text: str, code: int) -> None:
    done = run("--check", "--json", str(site_file(tmp_path, text)))
    assert done.returncode == code, done.stderr
    problems = json.loads(done.stdout)["problems"]
    assert [each["path"] for each in problems] == ([["broker", "listen"]] if code else [])
    assert not (tmp_path / "site.state").exists()

"""Test ``firedex emulate --embedded``: real parts on loopback, without Mininet."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

TIMEOUT_SECONDS = 300.0
PROGRAM = (
    "import sys; sys.modules['mininet'] = None;"
    "from firedex_emulation.command import emulate; emulate()"
)
SCENARIO = """\
name: small
transport: udp
topics:
  - {name: alarm, event_bytes: 100}
  - {name: camera, event_bytes: 800}
publishers:
  - id: building
    switch: lan
    publications:
      - {topic: alarm, rate_per_second: 20}
      - {topic: camera, rate_per_second: 110}
subscribers:
  - id: engine1
    switch: core
    subscriptions:
      - {filter: alarm, utility: {kind: log, weight: 100.0}, deadline_seconds: 0.5}
      - {filter: camera, utility: {kind: log, weight: 1.0}, deadline_seconds: 0.5}
network:
  switches:
    - {id: lan, managed: false, bandwidth_bits_per_second: 100000000}
    - {id: core, bandwidth_bits_per_second: 400000, priorities: 2}
  broker: {id: edge}
planning: {flows_per_subscriber: 2, priorities: 2, drop_policy: optimized}
"""


def loopback_range_is_usable() -> bool:
    try:
        with socket.socket() as probe:
            probe.bind(("127.1.0.1", 0))
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not loopback_range_is_usable(),
        reason="loopback addresses such as 127.1.0.1 are not usable here",
    ),
]


class EmbeddedRun:
    """A process of the command, with its own folder for temporary files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (folder / "small.yaml").write_text(SCENARIO)
        command_arguments = [str(folder / "small.yaml"), "--embedded", "--json", *arguments]
        with (folder / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROGRAM, *command_arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )

    def all_processes(self) -> set[int]:
        """Return the ids of all processes that inherited the folder for temporary files."""
        environment_entry = f"TMPDIR={self.temporary}".encode()
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if environment_entry in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
            except OSError:
                continue  # it has ended, or belongs to another user
        return found

    def check_nothing_is_left(self) -> None:
        wait_until(lambda: not self.all_processes(), "the end of all processes", TIMEOUT_SECONDS)
        assert list(self.temporary.iterdir()) == []


def alarm_statistics(mode: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in mode["subscriptions"] if row["filter"] == "alarm")


def test_alarms_arrive_faster_with_firedex_than_without(tmp_path: Path) -> None:
    """Offer twice the bandwidth of the userspace link, with real clients."""
    out = tmp_path / "out"
    run = EmbeddedRun(tmp_path, "--compare", "none,firedex", "--duration", "3", "--out", str(out))
    try:
        printed, _ = run.process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        run.process.kill()
    errors = (tmp_path / "errors").read_text()
    assert run.process.returncode == 0, errors
    assert "without real switches" in errors
    none, firedex = json.loads(printed)
    assert alarm_statistics(firedex)["success_measured"] >= 0.95
    assert alarm_statistics(none)["success_measured"] < 0.9
    assert (
        alarm_statistics(firedex)["delay_p50_seconds"]
        < alarm_statistics(none)["delay_p50_seconds"] / 2
    )
    for mode in (none, firedex):
        assert any("without real switches" in note for note in mode["notes"])
    assert "without real switches" in (out / "report.md").read_text()
    run.check_nothing_is_left()


def test_sigint_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path)
    try:
        wait_until(
            lambda: bool(list(run.temporary.glob("firedex-embedded-*/link.log"))),
            "the link to be started",
            TIMEOUT_SECONDS,
        )
        started = run.all_processes()
        run.process.send_signal(signal.SIGINT)
        run.process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        run.process.kill()
    assert len(started) >= 4  # the command, broker, service and gateway
    assert run.process.returncode == 130
    run.check_nothing_is_left()


def test_sigkill_of_the_command_ends_all_its_processes(tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path)
    try:
        wait_until(
            lambda: bool(list(run.temporary.glob("firedex-embedded-*/link.log"))),
            "the link to be started",
            TIMEOUT_SECONDS,
        )
    finally:
        run.process.kill()
        run.process.communicate(timeout=TIMEOUT_SECONDS)
    wait_until(lambda: not run.all_processes(), "the end of all processes", TIMEOUT_SECONDS)

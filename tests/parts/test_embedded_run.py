"""``firedex emulate --embedded``: real parts on loopback, where Mininet is not even installed."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback_parts import wait_until

PATIENCE_SECONDS = 300.0
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


def usable() -> bool:
    try:
        with socket.socket() as probe:
            probe.bind(("127.1.0.1", 0))
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not usable(), reason="loopback addresses such as 127.1.0.1 are not usable here"
    ),
]


class Run:
    """The command in a process of its own, whose temporary files are in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (folder / "small.yaml").write_text(SCENARIO)
        words = [str(folder / "small.yaml"), "--embedded", "--json", *arguments]
        with (folder / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROGRAM, *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )

    def all_processes(self) -> set[int]:
        """Everything that inherited the folder for temporary files, from whomever."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
            except OSError:
                continue  # it has ended, or is somebody else's
        return found

    def nothing_is_left(self) -> None:
        wait_until(lambda: not self.all_processes(), "the end of all processes", PATIENCE_SECONDS)
        assert list(self.temporary.iterdir()) == []


def alarms(way: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in way["subscriptions"] if row["filter"] == "alarm")


def test_firedex_delivers_the_alarms_and_sooner(tmp_path: Path) -> None:
    """At twice what the link carries, by real clients through the userspace link."""
    out = tmp_path / "out"
    run = Run(tmp_path, "--compare", "none,firedex", "--duration", "3", "--out", str(out))
    try:
        printed, _ = run.process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        run.process.kill()
    errors = (tmp_path / "errors").read_text()
    assert run.process.returncode == 0, errors
    assert "no real switch was involved" in errors
    none, firedex = json.loads(printed)
    assert alarms(firedex)["success_measured"] >= 0.95
    assert alarms(none)["success_measured"] < 0.9
    assert alarms(firedex)["delay_p50_seconds"] < alarms(none)["delay_p50_seconds"] / 2
    for way in (none, firedex):
        assert any("no real switch was involved" in note for note in way["notes"])
    assert "no real switch was involved" in (out / "report.md").read_text()
    run.nothing_is_left()


def test_nothing_is_left_after_ctrl_c(tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        wait_until(
            lambda: bool(list(run.temporary.glob("firedex-embedded-*/link.log"))),
            "the link to be started",
            PATIENCE_SECONDS,
        )
        started = run.all_processes()
        run.process.send_signal(signal.SIGINT)
        run.process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        run.process.kill()
    assert len(started) >= 4  # the command, broker, service and gateway
    assert run.process.returncode == 130
    run.nothing_is_left()


def test_nothing_runs_on_after_a_kill(tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        wait_until(
            lambda: bool(list(run.temporary.glob("firedex-embedded-*/link.log"))),
            "the link to be started",
            PATIENCE_SECONDS,
        )
    finally:
        run.process.kill()
        run.process.communicate(timeout=PATIENCE_SECONDS)
    wait_until(lambda: not run.all_processes(), "the end of all processes", PATIENCE_SECONDS)

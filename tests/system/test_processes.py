"""Child processes end with their parent, even if it is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firedex.system.processes import ChildProcess, _end_with_parent_prefix
from tests.support.waiting import wait_until

UNUSED_PID = 2**22 + 1
"""No process has this id."""


def test_child_is_started_logged_and_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier output\n")
    child = ChildProcess(["sh", "-c", "echo $TEXT; exec sleep 600"], log, {"TEXT": "hello"})
    wait_until(lambda: child.end_of_log() == "hello", "output of the child")
    assert child.exit_code() is None
    child.stop()
    assert child.exit_code() == -15
    assert log.read_text() == "earlier output\nhello\n"


def test_grandchildren_end_with_the_child(tmp_path: Path) -> None:
    child = ChildProcess(["sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait"], tmp_path / "log")
    wait_until(lambda: bool(child.end_of_log()), "process id of the grandchild")
    grandchild = int(child.end_of_log())
    child.stop(seconds=0.1)
    wait_until(lambda: not _is_running(grandchild), "end of the grandchild")


def test_child_does_not_start_if_its_parent_has_ended(tmp_path: Path) -> None:
    created_file = tmp_path / "made"
    command = [*_end_with_parent_prefix(UNUSED_PID), "touch", str(created_file)]
    assert subprocess.run(command, check=False).returncode == 1
    assert not created_file.exists()
    command = [*_end_with_parent_prefix(os.getpid()), "touch", str(created_file)]
    assert subprocess.run(command, check=False).returncode == 0
    assert created_file.exists()


@pytest.mark.parametrize("wait_seconds", [0.0, 0.002, 0.005, 0.01, 0.05])
def test_no_child_survives_a_killed_parent(tmp_path: Path, wait_seconds: float) -> None:
    program = (
        "import pathlib; from firedex.system.processes import ChildProcess\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "children = [ChildProcess(['sleep', '600'], folder / str(n)) for n in range(50)]\n"
    )
    mark = f"MARK={tmp_path}"
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "MARK": str(tmp_path)}
    ) as parent:
        wait_until(lambda: bool(list(tmp_path.iterdir())), "the first child")
        time.sleep(wait_seconds)
        parent.kill()
    wait_until(lambda: not _processes_with_mark(mark), "end of all children")


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _processes_with_mark(mark: str) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids

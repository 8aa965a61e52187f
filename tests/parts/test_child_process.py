"""Children end with whoever started them, whenever that one dies."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loopback_parts import wait_until

from firedex.child_process import ChildProcess, _ends_with

ENDED_LONG_AGO = 2**22 + 1
"""No process has such a number."""


def test_it_runs_is_heard_and_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of an earlier start\n")
    child = ChildProcess(["sh", "-c", "echo $WHO; exec sleep 600"], log, {"WHO": "it is me"})
    wait_until(lambda: child.last_words() == "it is me", "its words")
    assert child.exit_code() is None
    child.stop()
    assert child.exit_code() == -15
    assert log.read_text() == "of an earlier start\nit is me\n"


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    child = ChildProcess(["sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait"], tmp_path / "log")
    wait_until(lambda: bool(child.last_words()), "the number of what it started")
    grandchild = int(child.last_words())
    child.stop(seconds=0.1)
    wait_until(lambda: not _runs(grandchild), "the end of what it started")


def test_a_child_whose_parent_died_too_early_does_not_begin(tmp_path: Path) -> None:
    made = tmp_path / "made"
    words = [*_ends_with(ENDED_LONG_AGO), "touch", str(made)]
    assert subprocess.run(words, check=False).returncode == 1
    assert not made.exists()
    words = [*_ends_with(os.getpid()), "touch", str(made)]
    assert subprocess.run(words, check=False).returncode == 0
    assert made.exists()


@pytest.mark.parametrize("wait_seconds", [0.0, 0.002, 0.005, 0.01, 0.05])
def test_a_killed_parent_leaves_nobody(tmp_path: Path, wait_seconds: float) -> None:
    program = (
        "import pathlib; from firedex.child_process import ChildProcess\n"
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
    wait_until(lambda: not _marked(mark), "the end of all children")


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found

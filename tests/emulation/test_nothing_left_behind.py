"""Nothing of an emulation stays on the machine, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from machine_traces import left_behind, traces

PATIENCE_SECONDS = 60


def emulate(*options: str, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from firedex.cli import main; main()", "emulate"]
    command += ["builtin:critical-event", "--compare", "firedex", "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def settled(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left once the kernel has had a moment to take a killed sandbox away."""
    until = time.monotonic() + 10
    while (left := left_behind(before)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def wait_until_running(before: dict[str, set[str]], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr and process.stderr.read()
        if any("mosquitto" in found for found in left_behind(before).get("processes", set())):
            return
        time.sleep(0.1)
    raise AssertionError("the emulation did not come up")


def test_after_success_and_after_being_killed_and_started_again(tmp_path: Path) -> None:
    before = traces()
    killed = emulate("--duration", "20", out=tmp_path / "killed")
    wait_until_running(before, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not settled(before)
    if killed.stderr:
        killed.stderr.close()
    again = emulate("--duration", "2", out=tmp_path / "again")
    _, said = again.communicate(timeout=180)
    assert again.returncode == 0, said
    assert not settled(before)


def test_after_an_interrupt(tmp_path: Path) -> None:
    before = traces()
    process = emulate("--duration", "20", out=tmp_path)
    wait_until_running(before, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert not settled(before)


def test_after_a_failure(tmp_path: Path) -> None:
    before = traces()
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: broken")
    command = [sys.executable, "-c", "from firedex.cli import main; main()", "emulate", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "line" in done.stderr
    assert not settled(before)

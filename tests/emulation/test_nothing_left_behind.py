"""Nothing of an emulation stays on the machine, however it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from machine_traces import left_behind, traces

from firedex_emulation.run_journal import clean_up

PATIENCE_SECONDS = 60
FIREDEX = [sys.executable, "-c", "from firedex.cli import main; main()"]
SETTINGS = ("net.core.wmem_default", "net.core.wmem_max")

Traces = dict[str, set[str]]


@pytest.fixture(autouse=True)
def journals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A state folder of this test's own, and one for temporary files: /tmp is everybody's."""
    folder, temporary = tmp_path / "journals", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("FIREDEX_STATE_FOLDER", str(folder))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return folder


@pytest.fixture
def before() -> Iterator[Traces]:
    """What was there at first. The machine's own settings are not touched."""
    settings = machine_settings()
    yield traces()
    assert machine_settings() == settings


def machine_settings() -> str:
    command = ["sysctl", *SETTINGS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def emulate(*options: str) -> subprocess.Popen[str]:
    """A run as from a terminal: a process group of its own, which Ctrl-C reaches as a whole."""
    command = [*FIREDEX, "emulate", "builtin:critical-event", "--compare", "firedex", *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def clean() -> list[str]:
    command = [*FIREDEX, "emulate", "--clean", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    removed: list[str] = json.loads(done.stdout)["removed"]
    return removed


def settled(before: Traces) -> Traces:
    """What is left once the kernel has had a moment to take a killed sandbox away."""
    until = time.monotonic() + 10
    while (left := left_by_us(before)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def left_by_us(before: Traces) -> Traces:
    """What is new, but for processes that were not started here: all of ours know the folder."""
    left = left_behind(before)
    mark = f"FIREDEX_STATE_FOLDER={os.environ['FIREDEX_STATE_FOLDER']}".encode()
    ours, namespaces = set(), set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            with suppress(OSError):  # it has ended
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    ours.add(process.name)
                    namespaces.add(str((process / "ns" / "net").readlink()))
    left["processes"] = {p for p in left.get("processes", set()) if p.split()[0] in ours}
    left["network namespaces"] = left.get("network namespaces", set()) & namespaces
    return {what: found for what, found in left.items() if found}


def wait_until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr and process.stderr.read()
        if reached():
            return
        time.sleep(0.02)
    raise AssertionError("the emulation did not get there")


def runs(what: str, before: Traces) -> bool:
    return any(what in found for found in left_by_us(before).get("processes", set()))


MOMENTS: dict[str, Callable[[Path, Traces], bool]] = {
    "the journal is begun": lambda journals, _: any(journals.glob("*.json")),
    "the switch runs": lambda _, before: runs("ovs-vswitchd", before),
    "the broker runs": lambda _, before: runs("mosquitto", before),
}


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("the journal is begun", marks=pytest.mark.long),
        "the switch runs",
        pytest.param("the broker runs", marks=pytest.mark.long),
    ],
)
def test_after_being_killed(moment: str, before: Traces, journals: Path) -> None:
    process = emulate("--duration", "20")
    wait_until(process, lambda: MOMENTS[moment](journals, before))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    removed = clean()
    assert any("run " in what for what in removed), removed
    assert not settled(before)
    assert not list(journals.iterdir())
    assert clean_up() == []


@pytest.mark.long
def test_after_success_in_the_run_after_one_that_was_killed(before: Traces, journals: Path) -> None:
    killed = emulate("--duration", "20")
    wait_until(killed, lambda: MOMENTS["the switch runs"](journals, before))
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    again = emulate("--duration", "2")
    _, said = again.communicate(timeout=180)
    assert again.returncode == 0, said
    assert "firedex: run " in said, "what the first had left was removed, and that is said"
    assert not settled(before)
    assert not list(journals.iterdir())


@pytest.mark.long
def test_a_live_run_is_not_touched(before: Traces, journals: Path) -> None:
    settings = machine_settings()
    process = emulate("--duration", "20")
    wait_until(process, lambda: MOMENTS["the switch runs"](journals, before))
    assert clean() == []
    assert process.poll() is None
    assert runs("ovs-vswitchd", before)
    assert machine_settings() == settings
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert not settled(before)
    assert not list(journals.iterdir())


def test_after_ctrl_c_which_reaches_the_whole_process_group(before: Traces, journals: Path) -> None:
    process = emulate("--duration", "20")
    wait_until(process, lambda: MOMENTS["the broker runs"](journals, before))
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "interrupted" in said
    assert not settled(before)
    assert not list(journals.iterdir())


def test_after_a_failure(before: Traces, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: broken")
    command = [*FIREDEX, "emulate", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "line" in done.stderr
    assert not settled(before)


def test_with_nothing_to_clean_that_is_said() -> None:
    command = [*FIREDEX, "emulate", "--clean"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to clean up" in done.stdout

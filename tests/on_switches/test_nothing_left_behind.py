"""An emulation leaves nothing on the machine, however it ends."""

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

from firedex_emulation.testbed.run_journal import clean_up

TIMEOUT_SECONDS = 180
FIREDEX = [sys.executable, "-c", "from firedex.cli import main; main()"]
SETTINGS = ("net.core.wmem_default", "net.core.wmem_max")

PROGRAMS = ("ovs-vswitchd", "ovsdb-server", "mosquitto", "firedex", "mnexec", "unshare")

Traces = dict[str, set[str]]


@pytest.fixture(autouse=True)
def journals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set a private state folder and a private folder for temporary files."""
    folder, temporary = tmp_path / "journals", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("FIREDEX_STATE_FOLDER", str(folder))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return folder


@pytest.fixture
def before() -> Iterator[Traces]:
    """Return the traces before the test; afterwards check that machine settings are unchanged."""
    settings = machine_settings()
    yield traces()
    assert machine_settings() == settings


def machine_settings() -> str:
    command = ["sysctl", *SETTINGS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def emulate(*options: str) -> subprocess.Popen[str]:
    """Start a run as from a terminal, in its own process group."""
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


def remaining_traces(before: Traces) -> Traces:
    """Wait until the kernel has removed a killed sandbox; return what is left."""
    until = time.monotonic() + 10
    while (left := traces_of_our_processes(before)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def traces_of_our_processes(before: Traces) -> Traces:
    """Return new traces, without processes that were started outside this test."""
    left = new_traces(before)
    environment_entry = f"FIREDEX_STATE_FOLDER={os.environ['FIREDEX_STATE_FOLDER']}".encode()
    ours, namespaces = set(), set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            with suppress(OSError):  # it has ended
                if environment_entry in (process / "environ").read_bytes().split(b"\0"):
                    ours.add(process.name)
                    namespaces.add(str((process / "ns" / "net").readlink()))
    left["processes"] = {p for p in left.get("processes", set()) if p.split()[0] in ours}
    left["network namespaces"] = left.get("network namespaces", set()) & namespaces
    return {what: found for what, found in left.items() if found}


def wait_until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr and process.stderr.read()
        if reached():
            return
        time.sleep(0.02)
    raise AssertionError("the emulation did not reach the expected state")


def is_running(what: str, before: Traces) -> bool:
    return any(what in found for found in traces_of_our_processes(before).get("processes", set()))


MOMENTS: dict[str, Callable[[Path, Traces], bool]] = {
    "the journal exists": lambda journals, _: any(journals.glob("*.json")),
    "the switch runs": lambda _, before: is_running("ovs-vswitchd", before),
    "the broker runs": lambda _, before: is_running("mosquitto", before),
}


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("the journal exists", marks=pytest.mark.long),
        "the switch runs",
        pytest.param("the broker runs", marks=pytest.mark.long),
    ],
)
def test_clean_removes_all_traces_of_a_killed_run(
    moment: str, before: Traces, journals: Path
) -> None:
    process = emulate("--duration", "20")
    wait_until(process, lambda: MOMENTS[moment](journals, before))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    removed = clean()
    assert any("run " in what for what in removed), removed
    assert not remaining_traces(before)
    assert not list(journals.iterdir())
    assert clean_up() == []


@pytest.mark.long
def test_next_run_removes_the_traces_of_a_killed_run(before: Traces, journals: Path) -> None:
    killed = emulate("--duration", "20")
    wait_until(killed, lambda: MOMENTS["the switch runs"](journals, before))
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    next_run = emulate("--duration", "2")
    _, messages = next_run.communicate(timeout=180)
    assert next_run.returncode == 0, messages
    assert "firedex: run " in messages, "the removal of the first run's traces is reported"
    assert not remaining_traces(before)
    assert not list(journals.iterdir())


@pytest.mark.long
def test_clean_does_not_touch_an_active_run(before: Traces, journals: Path) -> None:
    settings = machine_settings()
    process = emulate("--duration", "20")
    wait_until(process, lambda: MOMENTS["the switch runs"](journals, before))
    assert clean() == []
    assert process.poll() is None
    assert is_running("ovs-vswitchd", before)
    assert machine_settings() == settings
    process.send_signal(signal.SIGTERM)
    _, messages = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, messages
    assert not remaining_traces(before)
    assert not list(journals.iterdir())


def test_ctrl_c_leaves_no_traces(before: Traces, journals: Path) -> None:
    process = emulate("--duration", "20")
    wait_until(process, lambda: MOMENTS["the broker runs"](journals, before))
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130, messages
    assert "Traceback" not in messages
    assert "interrupted" in messages
    assert not remaining_traces(before)
    assert not list(journals.iterdir())


def test_failed_run_leaves_no_traces(before: Traces, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: broken")
    command = [*FIREDEX, "emulate", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "line" in done.stderr
    assert not remaining_traces(before)


def test_clean_reports_that_there_is_nothing_to_clean_up() -> None:
    command = [*FIREDEX, "emulate", "--clean"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to clean up" in done.stdout


def traces() -> dict[str, set[str]]:
    """Return links, namespaces, processes of our programs, and files that parts could write."""
    return {
        "links": _links(),
        "network namespaces": _namespaces(),
        "processes": _processes(),
        "files": {
            str(path)
            for folder in (tempfile.gettempdir(), "/run", "/var/run/openvswitch", "/run/netns")
            if Path(folder).is_dir()
            for path in Path(folder).iterdir()
        },
    }


def new_traces(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the traces that did not exist before."""
    after = traces()
    return {what: after[what] - before[what] for what in before if after[what] - before[what]}


def _links() -> set[str]:
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    return {line.split(":")[1].strip() for line in shown.stdout.splitlines()}


def _namespaces() -> set[str]:
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found.add(str((process / "ns" / "net").readlink()))
            except OSError:  # it has ended, or belongs to another user
                continue
    return found


def _processes() -> set[str]:
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            command = " ".join(word.decode(errors="replace") for word in words)
            if any(name in command for name in PROGRAMS) and "pytest" not in command:
                found.add(f"{process.name} {command}")
    return found

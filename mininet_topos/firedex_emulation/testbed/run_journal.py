"""Journal of the processes and folders that a run creates outside its sandbox.

The sandbox removes its own network, processes and files. Outside of it are only the first process
of the sandbox and temporary folders. Each run has one journal file, which is removed when the run
has cleaned up. If a run was killed, its journal lists exactly what the next run or ``firedex
emulate --clean`` must remove. Nothing is searched by name, and a running emulation is never
touched.

Journals are in ``/var/lib/firedex/emulations``, or in the folder ``FIREDEX_STATE_FOLDER``. The
folder itself is the lock.
"""

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from firedex.system.files import write_atomically

__all__ = ["JournalEntry", "ProcessIdentity", "RunJournal", "boot_id", "clean_up", "state_folder"]

DEFAULT_FOLDER = "/var/lib/firedex/emulations"
KILL_TIMEOUT_SECONDS = 5.0
FOLDER_PREFIX = "firedex-emulation-"
STATE, START_TIME = 0, 19
"""Fields of ``/proc/PID/stat`` after the command's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process of this boot. Process ids are reused, but not with the same start time."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """Return the running process with this id; None if there is none or it is a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        if fields[STATE] in "ZX":
            return None
        return cls(pid=pid, started_ticks=int(fields[START_TIME]))

    @classmethod
    def of_this_process(cls) -> "ProcessIdentity":
        """Return the identity of the current process."""
        found = cls.of(os.getpid())
        if found is None:
            raise OSError("/proc has no entry for this process")
        return found

    def is_alive(self) -> bool:
        """Return whether this process still runs."""
        return ProcessIdentity.of(self.pid) == self


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """Content of the journal file of one run."""

    run: str
    boot: str
    runner: ProcessIdentity
    processes: tuple[ProcessIdentity, ...] = ()
    folders: tuple[str, ...] = field(default=())

    def is_live(self) -> bool:
        """Return whether the run is still active; then it cleans up itself."""
        return self.boot == boot_id() and self.runner.is_alive()

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> "JournalEntry":
        """Return the entry of a journal file."""
        return cls(
            run=data["run"],
            boot=data["boot"],
            runner=ProcessIdentity(**data["runner"]),
            processes=tuple(ProcessIdentity(**each) for each in data["processes"]),
            folders=tuple(data["folders"]),
        )


def state_folder() -> Path:
    """Return the folder of the journals."""
    return Path(os.environ.get("FIREDEX_STATE_FOLDER") or DEFAULT_FOLDER)


class RunJournal:
    """Journal of the current run; a context manager that cleans up at the end."""

    def __init__(self, report: Callable[[str], None] = lambda _: None) -> None:
        runner = ProcessIdentity.of_this_process()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{runner.pid}"
        self.entry = JournalEntry(run=name, boot=boot_id(), runner=runner)
        self._report = report

    def __enter__(self) -> "RunJournal":
        with _lock_state_folder() as folder:
            for done in _clean_up_locked(folder):
                self._report(done)
            self._write(folder, self.entry)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _lock_state_folder() as folder:
            _remove_leftovers(self.entry)
            _journal_path(folder, self.entry).unlink(missing_ok=True)

    def add_process(self, pid: int) -> None:
        """Register a process that must end with the run."""
        found = ProcessIdentity.of(pid)
        if found is not None:
            with _lock_state_folder() as folder:
                self._write(folder, replace(self.entry, processes=(*self.entry.processes, found)))

    def make_folder(self) -> Path:
        """Create a temporary folder that is removed with the run."""
        with _lock_state_folder() as folder:
            name = Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{os.urandom(6).hex()}"
            self._write(folder, replace(self.entry, folders=(*self.entry.folders, str(name))))
            name.mkdir(mode=0o700)
        return name

    def _write(self, folder: Path, entry: JournalEntry) -> None:
        """Write the entry to disk before the process or folder that it lists is created."""
        write_atomically(_journal_path(folder, entry), json.dumps(asdict(entry)))
        self.entry = entry


def clean_up() -> list[str]:
    """Remove the leftovers of killed runs; return one line for each removal."""
    with _lock_state_folder() as folder:
        return _clean_up_locked(folder)


def _clean_up_locked(folder: Path) -> list[str]:
    messages = []
    for path in folder.glob(".*.json.*"):
        path.unlink()  # a temporary file of a killed writer; nobody writes without the lock
    for path in sorted(folder.glob("*.json")):
        try:
            entry = JournalEntry.from_plain(json.loads(path.read_text()))
        except (ValueError, LookupError, TypeError) as error:
            messages.append(f"{path} is not a valid journal ({error}); nothing was removed")
            continue
        if entry.is_live():
            continue
        done = _remove_leftovers(entry) or ["nothing to remove except its journal"]
        path.unlink()
        messages += [f"run {entry.run}: {line}" for line in done]
    return messages


def _remove_leftovers(entry: JournalEntry) -> list[str]:
    """Remove the processes and folders of ``entry``; return one line for each removal."""
    done: list[str] = []
    if entry.boot == boot_id():  # no process survives a reboot
        done += [f"killed process {found.pid}" for found in entry.processes if _kill(found)]
    for name in entry.folders:
        if Path(name).name.startswith(FOLDER_PREFIX) and Path(name).is_dir():
            shutil.rmtree(name, ignore_errors=True)
            done.append(f"removed {name}")
    return done


def _kill(process: ProcessIdentity) -> bool:
    """Kill the process if it still runs, and wait for its end."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # Open the handle before the check: its process id cannot be reused while it is open.
        if not process.is_alive():
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    until = time.monotonic() + KILL_TIMEOUT_SECONDS
    while process.is_alive() and time.monotonic() < until:
        time.sleep(0.01)
    return True


def _journal_path(folder: Path, entry: JournalEntry) -> Path:
    return folder / f"{entry.run}.json"


@contextmanager
def _lock_state_folder() -> Iterator[Path]:
    """Lock the folder of the journals and return it."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(handle)


def boot_id() -> str:
    """Return an id that differs after every reboot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

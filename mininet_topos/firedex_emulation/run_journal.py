"""What a run has made outside its sandbox, written down before it is made.

Hardly anything is: the sandbox takes its network, processes and files with it. What is left are the
sandbox's first processes, and folders. Each run has one small file; it goes when the run has undone
everything. A file whose run is dead says exactly what is to be undone, by the next run or by
``firedex emulate --clean``: nothing is looked for by name, and a live run is never touched.

Files are in ``/var/lib/firedex/emulations`` (``FIREDEX_STATE_FOLDER`` for another), for the whole
machine. The folder itself is the lock.
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

from firedex_emulation.process_identity import ProcessIdentity, boot_id

__all__ = ["JournalEntry", "RunJournal", "clean_up", "state_folder"]

DEFAULT_FOLDER = "/var/lib/firedex/emulations"
KILL_PATIENCE_SECONDS = 5.0
FOLDER_PREFIX = "firedex-emulation-"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What one run's file says."""

    run: str
    boot: str
    runner: ProcessIdentity
    processes: tuple[ProcessIdentity, ...] = ()
    folders: tuple[str, ...] = field(default=())

    def is_live(self) -> bool:
        """Whether the run's own process still runs, and will undo it all by itself."""
        return self.boot == boot_id() and self.runner.is_alive()

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> "JournalEntry":
        """From what was written."""
        return cls(
            run=data["run"],
            boot=data["boot"],
            runner=ProcessIdentity(**data["runner"]),
            processes=tuple(ProcessIdentity(**each) for each in data["processes"]),
            folders=tuple(data["folders"]),
        )


def state_folder() -> Path:
    """Where journals are."""
    return Path(os.environ.get("FIREDEX_STATE_FOLDER") or DEFAULT_FOLDER)


class RunJournal:
    """The journal of the run that enters it; undoes and removes itself on leaving."""

    def __init__(self, report: Callable[[str], None] = lambda _: None) -> None:
        runner = ProcessIdentity.of_this_process()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{runner.pid}"
        self.entry = JournalEntry(run=name, boot=boot_id(), runner=runner)
        self._report = report

    def __enter__(self) -> "RunJournal":
        with _locked() as folder:
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
        with _locked() as folder:
            _undo(self.entry)
            _file(folder, self.entry).unlink(missing_ok=True)

    def note_process(self, pid: int) -> None:
        """A process that must not outlive the run."""
        found = ProcessIdentity.of(pid)
        if found is not None:
            with _locked() as folder:
                self._write(folder, replace(self.entry, processes=(*self.entry.processes, found)))

    def make_folder(self) -> Path:
        """A folder that goes with the run."""
        with _locked() as folder:
            name = Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{os.urandom(6).hex()}"
            self._write(folder, replace(self.entry, folders=(*self.entry.folders, str(name))))
            name.mkdir(mode=0o700)
        return name

    def _write(self, folder: Path, entry: JournalEntry) -> None:
        """Whole or not at all, and on the disk before what it speaks of is done."""
        unfinished = folder / f"{entry.run}.unfinished"
        with unfinished.open("w") as file:
            json.dump(asdict(entry), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(_file(folder, entry))
        self.entry = entry


def clean_up() -> list[str]:
    """Undo what dead runs have left, and say what that was."""
    with _locked() as folder:
        return _clean_up_locked(folder)


def _clean_up_locked(folder: Path) -> list[str]:
    said = []
    for path in sorted(folder.glob("*.unfinished")):
        path.unlink()  # under the lock nobody is writing: its writer is dead
    for path in sorted(folder.glob("*.json")):
        try:
            entry = JournalEntry.from_plain(json.loads(path.read_text()))
        except (ValueError, LookupError, TypeError) as error:
            said.append(f"{path} cannot be read ({error}); nothing of it was touched")
            continue
        if entry.is_live():
            continue
        done = _undo(entry) or ["had left nothing but its journal"]
        path.unlink()
        said += [f"run {entry.run}: {what}" for what in done]
    return said


def _undo(entry: JournalEntry) -> list[str]:
    """Undo what ``entry`` lists, and say what there was."""
    done: list[str] = []
    if entry.boot == boot_id():  # processes of a former boot are gone by themselves
        done += [f"ended process {found.pid}" for found in entry.processes if _end(found)]
    for name in entry.folders:
        if Path(name).name.startswith(FOLDER_PREFIX) and Path(name).is_dir():
            shutil.rmtree(name, ignore_errors=True)
            done.append(f"removed {name}")
    return done


def _end(process: ProcessIdentity) -> bool:
    """Kill that very process, if it still runs, and wait until it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The handle first, then the look: what it holds cannot become another process meanwhile.
        if not process.is_alive():
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    until = time.monotonic() + KILL_PATIENCE_SECONDS
    while process.is_alive() and time.monotonic() < until:
        time.sleep(0.01)
    return True


def _file(folder: Path, entry: JournalEntry) -> Path:
    return folder / f"{entry.run}.json"


@contextmanager
def _locked() -> Iterator[Path]:
    """The folder of journals, for one process at a time."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(handle)

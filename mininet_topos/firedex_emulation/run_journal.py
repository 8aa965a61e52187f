"""What a run has made outside its sandbox, written down before it is made.

Hardly anything is: the sandbox takes its network, processes and files with it. What is left are the
sandbox's first processes, settings of the whole machine that were changed for a while, and folders.
Each run has one small file; it goes when the run has undone everything. A file whose run is dead
says exactly what is to be undone, by the next run or by ``firedex emulate --clean``: nothing is
looked for by name, and a live run is never touched.

Files are in ``/var/lib/firedex/emulations`` (``FIREDEX_STATE_FOLDER`` for another): machine-wide,
because the settings are. The folder itself is the lock.
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

__all__ = ["ChangedSetting", "JournalEntry", "RunJournal", "clean_up", "state_folder"]

DEFAULT_FOLDER = "/var/lib/firedex/emulations"
SETTINGS = Path("/proc/sys")
KILL_PATIENCE_SECONDS = 5.0
FOLDER_PREFIX = "firedex-emulation-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSetting:
    """A sysctl of the whole machine: what it was before any run, and what a run made of it."""

    name: str
    before: str
    during: str

    @property
    def path(self) -> Path:
        """Where the kernel shows it."""
        return SETTINGS / self.name.replace(".", "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What one run's file says."""

    run: str
    boot: str
    runner: ProcessIdentity
    processes: tuple[ProcessIdentity, ...] = ()
    settings: tuple[ChangedSetting, ...] = ()
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
            settings=tuple(ChangedSetting(**each) for each in data["settings"]),
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
            for trouble in _undo(self.entry, _others(folder, self.entry)).troubles:
                self._report(trouble)
            _file(folder, self.entry).unlink(missing_ok=True)

    def change_setting(self, name: str, during: str) -> None:
        """Set a sysctl for as long as the run lasts; OSError if the kernel does not let us.

        What it was before is what it was before *any* live run changed it.
        """
        with _locked() as folder:
            setting = ChangedSetting(name=name, before="", during=during)
            before = setting.path.read_text().strip()
            shared = [s for other in _others(folder, self.entry) for s in other.settings]
            before = next((s.before for s in shared if s.name == name), before)
            setting = replace(setting, before=before)
            former = self.entry
            self._write(folder, replace(former, settings=(*former.settings, setting)))
            try:
                setting.path.write_text(during)
            except OSError:
                self._write(folder, former)
                raise

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undone:
    done: tuple[str, ...]
    troubles: tuple[str, ...]


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
        undone = _undo(entry, _others(folder, entry))
        path.unlink()
        said += [f"run {entry.run}: {what}" for what in (*undone.done, *undone.troubles)]
        if not undone.done and not undone.troubles:
            said.append(f"run {entry.run}: had left nothing but its journal")
    return said


def _undo(entry: JournalEntry, others: list[JournalEntry]) -> _Undone:
    """Undo what ``entry`` lists, but for settings that live runs still rely on."""
    done: list[str] = []
    troubles: list[str] = []
    if entry.boot == boot_id():  # processes and settings of a former boot are gone by themselves
        done += [f"ended process {found.pid}" for found in entry.processes if _end(found)]
        needed = {setting.name for other in others for setting in other.settings}
        for setting in entry.settings:
            if setting.name in needed:
                continue
            try:
                found = setting.path.read_text().strip()
                if found == setting.before:
                    continue
                if found != setting.during:
                    troubles.append(f"{setting.name} is {found}, not ours any more: left alone")
                    continue
                setting.path.write_text(setting.before)
                done.append(f"set {setting.name} back to {setting.before}")
            except OSError as error:
                troubles.append(f"{setting.name} could not be set back: {error}")
    for name in entry.folders:
        if Path(name).name.startswith(FOLDER_PREFIX) and Path(name).is_dir():
            shutil.rmtree(name, ignore_errors=True)
            done.append(f"removed {name}")
    return _Undone(done=tuple(done), troubles=tuple(troubles))


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


def _others(folder: Path, entry: JournalEntry) -> list[JournalEntry]:
    """The live runs besides this one."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            other = JournalEntry.from_plain(json.loads(path.read_text()))
        except (ValueError, LookupError, TypeError):
            continue
        if other.run != entry.run and other.is_live():
            found.append(other)
    return found


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

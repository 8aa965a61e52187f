"""The notes of a stream about its files: which were read, and which were skipped.

Every batch of files is noted before it is summed up, and marked afterwards. A skipped file is
checked again when it changes, since it may have been copied at the time. A file that was read and
is unreachable for a moment is not skipped: the stream waits for it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from firedex.system.files import write_atomically
from firedex_spark import errors
from firedex_spark.errors import BadFile, NoInput, NoReadableFiles, UnreachableFile, unreadable_file
from firedex_spark.records.columns import TIME
from firedex_spark.records.files import (
    RecordFile,
    RowGroup,
    check_files,
    find_files,
    misplaced_flat_files,
)
from firedex_spark.records.windows import with_window_numbers
from firedex_spark.schemas import DELIVERY_SCHEMA

__all__ = ["KnownFiles", "StreamFiles"]

SUMMED = ".summed"
BETWEEN_BATCHES = "~"
"""Part of the name of notes between batches; it sorts them after the previous batch."""
FileState = list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFiles:
    """All noted files; ``seen``: size and times by which a change of each is detected."""

    good: dict[str, RecordFile]
    skipped: dict[str, BadFile]
    seen: dict[str, FileState]


class StreamFiles:
    """Notes in a folder about files under ``records``, with windows of ``seconds``."""

    def __init__(self, folder: Path, records: Path, seconds: float) -> None:
        self._folder, self._records, self._seconds = folder, records, seconds
        self._known: KnownFiles | None = None
        self._unknown_before: set[str] = set()
        self._recompute_marker = folder / "everything-anew"
        self._checked_states: dict[str, FileState] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_complete(self) -> bool:
        """Return whether there are notes, and all of them are summed up."""
        notes = self._notes()
        return bool(notes) and not self._unsummed_notes() and not self._recompute_marker.exists()

    def unsummed_files(self) -> set[str] | None:
        """Return the noted files that are not summed up.

        None if all sums must be computed again.
        """
        if self._recompute_marker.exists():
            return None
        return {path for note in self._unsummed_notes() for path in _paths(note)}

    def mark_summed(self) -> None:
        """Mark all noted files as summed up."""
        self._recompute_marker.unlink(missing_ok=True)
        for note in self._notes():
            note.with_suffix(SUMMED).touch()

    def note_batch(self, number: int, paths: Iterable[str]) -> None:
        """Note a batch of files and skipped files that can be read now."""
        note = self._folder / f"batch-{number:08}.json"
        before = _paths(note) if note.exists() else set()
        self._write_note(note, {*paths, *before, *self.readable_again()})

    def note_readable_again(self, *, at_the_end: bool = False) -> bool:
        """Note skipped files that can be read now; return whether there is anything to sum up.

        Also notes files that Spark passed over because they were unreachable when their batch was
        repeated: those that are unknown at two checks in a row, or at the end.
        """
        unknown = self._find_unknown()
        back = self.readable_again() | (unknown if at_the_end else unknown & self._unknown_before)
        self._unknown_before = unknown
        notes = self._notes()
        if back:
            last = notes[-1].stem.split(BETWEEN_BATCHES)[0] if notes else "batch-00000000"
            number = sum(note.stem.startswith(last) for note in notes)
            self._write_note(self._folder / f"{last}{BETWEEN_BATCHES}{number:08}.json", back)
        return any(BETWEEN_BATCHES in note.stem for note in self._unsummed_notes())

    def readable_again(self) -> set[str]:
        """Return skipped files that can be read now."""
        known = self.known_files()
        changed = {}
        for path, bad in known.skipped.items():
            if not isinstance(bad, errors.MixedLayout):
                seen = _file_state(path)
                before = self._checked_states.get(path, known.seen.get(path))
                if seen is not None and (seen != before or isinstance(bad, UnreachableFile)):
                    changed[path] = seen
        good, _ = self._check_files(changed)
        self._checked_states |= changed
        return {str(file.path) for file in good}

    def skip_files(self, broken: Sequence[BadFile]) -> None:
        """Skip broken files.

        All sums are computed again, even after a crash, since any may include them.
        """
        self._recompute_marker.touch()
        seen = self.known_files().seen
        for bad in broken:
            _write(self._broken_note(str(bad.file)), (), (bad,), seen)
        self._known = None

    def known_files(self) -> KnownFiles:
        """Return the last note of each file; flat files beside site folders are skipped."""
        if self._known is None:
            self._known = self._read_notes()
        return self._known

    def _read_notes(self) -> KnownFiles:
        good: dict[str, RecordFile] = {}
        skipped: dict[str, BadFile] = {}
        seen: dict[str, FileState] = {}
        for note in (*self._notes(), *sorted(self._folder.glob("broken-*.json"))):
            plain = json.loads(note.read_text("utf-8"))
            seen |= plain["seen"]
            for one in plain["good"]:
                groups = tuple(RowGroup(**group) for group in one["groups"])
                good[one["path"]] = RecordFile(
                    path=Path(one["path"]), site=one["site"], groups=groups
                )
                skipped.pop(one["path"], None)
            for kind, path, reason in plain["skipped"]:
                skipped[path] = _bad_file(kind, Path(path), reason)
                good.pop(path, None)
        for misplaced in misplaced_flat_files(Path(path) for path in (*good, *skipped)):
            skipped[str(misplaced.file)] = misplaced
            good.pop(str(misplaced.file), None)
        return KnownFiles(good=good, skipped=skipped, seen=seen)

    def _write_note(self, note: Path, paths: set[str]) -> None:
        known = self.known_files()
        note.with_suffix(SUMMED).unlink(missing_ok=True)
        seen = {path: _file_state(path) for path in paths}
        good, skipped = self._check_files(paths)
        unreachable = {str(bad.file) for bad in skipped if isinstance(bad, UnreachableFile)} & {
            *known.good
        }
        good += [known.good[path] for path in sorted(unreachable)]  # the stream waits for it
        skipped = [bad for bad in skipped if str(bad.file) not in unreachable]
        _write(note, good, skipped, seen)
        for path in paths:
            self._broken_note(path).unlink(missing_ok=True)
        self._known = None

    def _find_unknown(self) -> set[str]:
        try:
            existing = {str(path) for path in find_files(self._records, "delivery records")}
        except NoInput:
            return set()
        known = self.known_files()
        return existing - {*known.good} - {*known.skipped}

    def _check_files(self, paths: Iterable[str]) -> tuple[list[RecordFile], list[BadFile]]:
        files = [Path(path) for path in sorted(paths)]
        good: list[RecordFile] = []
        try:
            checked = check_files(self._folder, files, DELIVERY_SCHEMA, TIME)
            found, skipped = checked.good, list(checked.skipped)
        except NoReadableFiles as error:
            found, skipped = (), list(error.skipped)
        for file in found:
            try:
                good.append(with_window_numbers(file, self._seconds))
            except (OSError, pa.ArrowException) as error:
                skipped.append(unreadable_file(file.path, error))
        return good, skipped

    def _notes(self) -> list[Path]:
        return sorted(self._folder.glob("batch-*.json"), key=lambda note: note.stem)

    def _unsummed_notes(self) -> list[Path]:
        return [note for note in self._notes() if not note.with_suffix(SUMMED).exists()]

    def _broken_note(self, path: str) -> Path:
        return self._folder / f"broken-{sha256(path.encode()).hexdigest()[:16]}.json"


def _paths(note: Path) -> set[str]:
    plain = json.loads(note.read_text("utf-8"))
    return {*(one["path"] for one in plain["good"]), *(path for _, path, _ in plain["skipped"])}


def _file_state(path: str) -> FileState:
    """Return size and times of a file; None if it cannot be accessed."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _write(
    into: Path, good: Sequence[RecordFile], skipped: Sequence[BadFile], seen: dict[str, FileState]
) -> None:
    paths = {str(file.path) for file in good} | {str(bad.file) for bad in skipped}
    plain = {
        "good": [{**asdict(file), "path": str(file.path)} for file in good],
        "skipped": [[type(bad).__name__, str(bad.file), bad.reason] for bad in skipped],
        "seen": {path: seen.get(path) for path in sorted(paths)},
    }
    write_atomically(into, json.dumps(plain))


def _bad_file(kind: str, file: Path, reason: str) -> BadFile:
    """Return the error of the class that was noted."""
    of: type[BadFile] = getattr(errors, kind, BadFile)
    bad_file = BadFile.__new__(of)
    BadFile.__init__(bad_file, file, reason)
    return bad_file

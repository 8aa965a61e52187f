"""What a stream remembers of its files: those that were taken in, and those that were left out.

Every batch of files is noted before it is summed up, and marked when it was. What was left out is
looked at again when it has changed: it may have been in the midst of being copied. A file that was
taken in and is out of reach for a moment is none of those: it is waited for.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from firedex_spark import errors
from firedex_spark.delivery_files import flat_beside_sites
from firedex_spark.errors import BadFile, NoInput, NothingReadable, OutOfReach, unreadable
from firedex_spark.output_folder import replaced
from firedex_spark.record_columns import TIME
from firedex_spark.record_files import RecordFile, RowGroup, check_files, files_under
from firedex_spark.record_windows import numbered_for
from firedex_spark.schemas import DELIVERY_SCHEMA

__all__ = ["KnownFiles", "StreamFiles"]

SUMMED = ".summed"
LOOK = "~"
"""In the name of what was noted between batches; it is sorted after the batch before."""
Seen = list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFiles:
    """All files that were noted so far; ``seen``: by what a change of each is told."""

    good: dict[str, RecordFile]
    left_out: dict[str, BadFile]
    seen: dict[str, Seen]


class StreamFiles:
    """Notes in a folder, of files under ``records``, by windows of so many ``seconds``."""

    def __init__(self, folder: Path, records: Path, seconds: float) -> None:
        self._folder, self._records, self._seconds = folder, records, seconds
        self._known: KnownFiles | None = None
        self._passed_over: set[str] = set()
        self._everything = folder / "everything-anew"
        self._looked: dict[str, Seen] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def whole(self) -> bool:
        """Whether there is something, and all of it was summed up."""
        notes = self._notes()
        return bool(notes) and not self._unsummed() and not self._everything.exists()

    def fresh(self) -> set[str] | None:
        """Files that were noted and not summed up yet; None if everything is to be summed anew."""
        if self._everything.exists():
            return None
        return {path for note in self._unsummed() for path in _paths(note)}

    def summed(self) -> None:
        """All that was noted is in the sums."""
        self._everything.unlink(missing_ok=True)
        for note in self._notes():
            note.with_suffix(SUMMED).touch()

    def note_batch(self, number: int, paths: Iterable[str]) -> None:
        """Note a batch of files, and those that are back; again if it was noted before."""
        note = self._folder / f"batch-{number:08}.json"
        before = _paths(note) if note.exists() else set()
        self._note(note, {*paths, *before, *self.back()})

    def note_those_back(self, *, at_the_end: bool = False) -> bool:
        """Note what is back, between batches; whether there is anything to be summed up by that.

        And what Spark has passed over: it was away when its batch was begun again. That is what
        is still unknown when we look for the second time, or at the end.
        """
        unknown = self._unknown()
        back = self.back() | (unknown if at_the_end else unknown & self._passed_over)
        self._passed_over = unknown
        notes = self._notes()
        if back:
            last = notes[-1].stem.split(LOOK)[0] if notes else "batch-00000000"
            number = sum(note.stem.startswith(last) for note in notes)
            self._note(self._folder / f"{last}{LOOK}{number:08}.json", back)
        return any(LOOK in note.stem for note in self._unsummed())

    def back(self) -> set[str]:
        """Files that were left out and can be read now."""
        known = self.known()
        changed = {}
        for path, bad in known.left_out.items():
            if not isinstance(bad, errors.MixedLayout):
                seen = _seen(path)
                before = self._looked.get(path, known.seen.get(path))
                if seen is not None and (seen != before or isinstance(bad, OutOfReach)):
                    changed[path] = seen
        good, _ = self._checked(changed)
        self._looked |= changed
        return {str(file.path) for file in good}

    def leave_out(self, broken: Sequence[BadFile]) -> None:
        """Rows of theirs may be in any sum: all are made anew, also if we are killed meanwhile."""
        self._everything.touch()
        seen = self.known().seen
        for bad in broken:
            _write(self._broken(str(bad.file)), (), (bad,), seen)
        self._known = None

    def known(self) -> KnownFiles:
        """What was noted of each file last; flat files beside others by site are left out."""
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> KnownFiles:
        good: dict[str, RecordFile] = {}
        left_out: dict[str, BadFile] = {}
        seen: dict[str, Seen] = {}
        for note in (*self._notes(), *sorted(self._folder.glob("broken-*.json"))):
            plain = json.loads(note.read_text("utf-8"))
            seen |= plain["seen"]
            for one in plain["good"]:
                groups = tuple(RowGroup(**group) for group in one["groups"])
                good[one["path"]] = RecordFile(
                    path=Path(one["path"]), site=one["site"], groups=groups
                )
                left_out.pop(one["path"], None)
            for kind, path, reason in plain["left_out"]:
                left_out[path] = _bad_file(kind, Path(path), reason)
                good.pop(path, None)
        for odd in flat_beside_sites(Path(path) for path in (*good, *left_out)):
            left_out[str(odd.file)] = odd
            good.pop(str(odd.file), None)
        return KnownFiles(good=good, left_out=left_out, seen=seen)

    def _note(self, note: Path, paths: set[str]) -> None:
        known = self.known()
        note.with_suffix(SUMMED).unlink(missing_ok=True)
        seen = {path: _seen(path) for path in paths}
        good, left_out = self._checked(paths)
        away = {str(bad.file) for bad in left_out if isinstance(bad, OutOfReach)} & {*known.good}
        good += [known.good[path] for path in sorted(away)]  # it is waited for
        left_out = [bad for bad in left_out if str(bad.file) not in away]
        _write(note, good, left_out, seen)
        for path in paths:
            self._broken(path).unlink(missing_ok=True)
        self._known = None

    def _unknown(self) -> set[str]:
        try:
            there = {str(path) for path in files_under(self._records, "delivery records")}
        except NoInput:
            return set()
        known = self.known()
        return there - {*known.good} - {*known.left_out}

    def _checked(self, paths: Iterable[str]) -> tuple[list[RecordFile], list[BadFile]]:
        files = [Path(path) for path in sorted(paths)]
        good: list[RecordFile] = []
        try:
            checked = check_files(self._folder, files, DELIVERY_SCHEMA, TIME)
            found, left_out = checked.good, list(checked.left_out)
        except NothingReadable as error:
            found, left_out = (), list(error.left_out)
        for file in found:
            try:
                good.append(numbered_for(file, self._seconds))
            except (OSError, pa.ArrowException) as error:
                left_out.append(unreadable(file.path, error))
        return good, left_out

    def _notes(self) -> list[Path]:
        return sorted(self._folder.glob("batch-*.json"), key=lambda note: note.stem)

    def _unsummed(self) -> list[Path]:
        return [note for note in self._notes() if not note.with_suffix(SUMMED).exists()]

    def _broken(self, path: str) -> Path:
        return self._folder / f"broken-{sha256(path.encode()).hexdigest()[:16]}.json"


def _paths(note: Path) -> set[str]:
    plain = json.loads(note.read_text("utf-8"))
    return {*(one["path"] for one in plain["good"]), *(path for _, path, _ in plain["left_out"])}


def _seen(path: str) -> Seen:
    """What changes when a file does; None if it cannot be seen."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _write(
    into: Path, good: Sequence[RecordFile], left_out: Sequence[BadFile], seen: dict[str, Seen]
) -> None:
    paths = {str(file.path) for file in good} | {str(bad.file) for bad in left_out}
    plain = {
        "good": [{**asdict(file), "path": str(file.path)} for file in good],
        "left_out": [[type(bad).__name__, str(bad.file), bad.reason] for bad in left_out],
        "seen": {path: seen.get(path) for path in sorted(paths)},
    }
    replaced(into, lambda path: path.write_text(json.dumps(plain), "utf-8"))


def _bad_file(kind: str, file: Path, reason: str) -> BadFile:
    """Of the kind that it was, as far as a kind can be made of its reason alone."""
    of: type[BadFile] = getattr(errors, kind, BadFile)
    made = BadFile.__new__(of)
    BadFile.__init__(made, file, reason)
    return made

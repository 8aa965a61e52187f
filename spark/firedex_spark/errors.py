"""Errors that a user of a job can fix.

::

    SparkJobError
     ├── JavaMissing            Java is not installed
     ├── SparkStartFailed       Java is installed, but Spark does not start
     ├── NoInput                no file of the expected kind
     ├── BadFile                a file that is skipped
     │    ├── UnreadableFile
     │    │    └── UnreachableFile   may be readable again later
     │    ├── MissingColumns
     │    ├── MixedLayout       a flat file beside site folders
     │    └── WrongColumnType
     ├── NoReadableFiles        every file was skipped
     ├── NoUsableRows           every row was refused
     ├── NoMatchingRecords      no record belongs to the site or scenario
     ├── SeveralSites           records of more than one site, and no --site
     ├── NoPredictions
     ├── UnreadablePredictions
     ├── InvalidGrid            a grid that cannot be simulated
     ├── OutputInUse            the output folder overlaps the input or is locked
     ├── UnwritableOutput       the output folder cannot be written
     ├── NothingToJudge         no prediction could be judged
     ├── FileMissing            a file of a stream stays unreachable
     └── StreamFailed           a stream that cannot continue
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = [
    "BadFile",
    "FileMissing",
    "InvalidGrid",
    "JavaMissing",
    "MissingColumns",
    "MixedLayout",
    "NoInput",
    "NoMatchingRecords",
    "NoPredictions",
    "NoReadableFiles",
    "NoUsableRows",
    "NothingToJudge",
    "OutputInUse",
    "SeveralSites",
    "SparkJobError",
    "SparkStartFailed",
    "StreamFailed",
    "UnreachableFile",
    "UnreadableFile",
    "UnreadablePredictions",
    "UnwritableOutput",
    "WrongColumnType",
    "unreadable_file",
]


class SparkJobError(Exception):
    """Base class of all errors that a user can fix."""


class JavaMissing(SparkJobError):
    """Java is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or newer; install openjdk-17-jre-headless or set JAVA_HOME"
        )


class SparkStartFailed(SparkJobError):
    """Java is installed, but Spark does not start."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Spark does not start: {reason}\nIt needs Java 17 or newer (see JAVA_HOME) and the "
            "memory given by --memory; the messages of Java are above"
        )


class NoInput(SparkJobError):
    """There is no file of the expected kind."""

    def __init__(self, source: Path, kind: str) -> None:
        self.source = source
        super().__init__(f"{source}: no {kind} found (expected *.parquet files)")


class BadFile(SparkJobError):
    """A file that is skipped."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file}: {reason}")


class UnreadableFile(BadFile):
    """A file that is not Parquet, is truncated or may not be read."""


class UnreachableFile(UnreadableFile):
    """A file that does not exist or is on a failing disk or network; it may become readable."""


PERMANENT_ERRORS = (PermissionError, IsADirectoryError, NotADirectoryError)


def unreadable_file(file: Path, error: Exception) -> UnreadableFile:
    """Return the error for an exception on reading: system errors may be temporary."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    temporary = getattr(error, "errno", None) is not None and not isinstance(
        error, PERMANENT_ERRORS
    )
    return UnreachableFile(file, reason) if temporary else UnreadableFile(file, reason)


class MissingColumns(BadFile):
    """A file that lacks required columns."""

    def __init__(self, file: Path, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        super().__init__(file, f"missing columns: {', '.join(columns)}")


class WrongColumnType(BadFile):
    """A column of the wrong type."""

    def __init__(self, file: Path, column: str, found: str, expected: str) -> None:
        self.column, self.found, self.expected = column, found, expected
        super().__init__(file, f"column {column} has type {found}, expected {expected}")


class MixedLayout(BadFile):
    """A flat file beside site folders: duplicates in both would count twice."""

    def __init__(self, file: Path, named: Path) -> None:
        super().__init__(
            file, f"is not in a site=NAME folder, but {named} is; arrange all files by site"
        )


class NoReadableFiles(SparkJobError):
    """Every file was skipped."""

    def __init__(self, source: Path, skipped: Sequence[BadFile]) -> None:
        self.skipped = tuple(skipped)
        first = "; ".join(str(bad) for bad in self.skipped[:3])
        super().__init__(f"{source}: none of {len(skipped)} files can be read: {first}")


class NoUsableRows(SparkJobError):
    """Every row was refused."""

    def __init__(self, source: Path, refused: Mapping[str, int]) -> None:
        self.refused = dict(refused)
        reasons = "; ".join(f"{reason} ({count})" for reason, count in self.refused.items())
        super().__init__(f"{source}: no usable rows: {reasons or 'the files are empty'}")


class NoMatchingRecords(SparkJobError):
    """No record belongs to the requested site or scenario."""


class SeveralSites(SparkJobError):
    """Records of more than one site, where one is expected."""

    def __init__(self, source: Path, sites: Sequence[str]) -> None:
        self.sites = tuple(sites)
        more = "" if len(sites) <= 8 else f" and {len(sites) - 8} more"
        super().__init__(
            f"{source}: records of {len(sites)} sites ({', '.join(sites[:8])}{more}); "
            "choose one with --site"
        )


class NoPredictions(SparkJobError):
    """There are no prediction files."""

    def __init__(self, source: Path) -> None:
        super().__init__(f"{source}: no predictions found (expected *.json or *.parquet)")


class UnreadablePredictions(SparkJobError):
    """A prediction file that cannot be read."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        super().__init__(f"{file}: invalid predictions: {reason}")


class InvalidGrid(SparkJobError):
    """A grid that cannot be simulated."""


class OutputInUse(SparkJobError):
    """The output folder overlaps the input or is locked."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"{folder} {what}; choose another folder with --out")


class UnwritableOutput(SparkJobError):
    """The output folder cannot be created or written."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(f"cannot write into {folder}: {error.strerror}")


class NothingToJudge(SparkJobError):
    """A validation in which no prediction could be judged."""


class FileMissing(SparkJobError):
    """A file that the stream has already read stays unreachable."""

    def __init__(self, bad: BadFile) -> None:
        self.file = bad.file
        super().__init__(
            f"{bad}; restore the file and start the job again; it continues from there"
        )


class StreamFailed(SparkJobError):
    """A stream that cannot continue, for example because its checkpoint is damaged."""

    def __init__(self, reason: str, out: Path) -> None:
        super().__init__(
            f"the stream cannot continue: {reason}; to start again, remove {out / 'state'} and "
            f"{out / 'checkpoint'}, or choose another folder with --out"
        )

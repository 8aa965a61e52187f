"""What can be wrong with what a job is given.

::

    SparkJobError
     ├── NoJava               there is no Java to run Spark on
     ├── JavaFailed           there is one, and Spark does not start
     ├── NoInput              no file of the wanted kind
     ├── BadFile              a file that is left out, and why
     │    ├── UnreadableFile
     │    │    └── OutOfReach for the moment, at least
     │    ├── MissingColumns
     │    ├── MixedLayout     flat, beside others with a site in their path
     │    └── WrongColumnType
     ├── NothingReadable      every file was left out
     ├── NothingCounts        every row was refused
     ├── NothingMatches       records, but none of what was asked for
     ├── SeveralSites         records of more than one site, and none was named
     ├── NoPredictions
     ├── UnreadablePredictions
     ├── BadGrid              a sweep's grid that cannot be used
     ├── OutputInUse          the output folder holds something else
     ├── UnwritableOutput     the output folder cannot be written into
     ├── NothingJudged        records and predictions have nothing in common, or too little
     ├── FileAway             a file of a stream does not come back
     └── StreamBroken         a stream that cannot go on
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = [
    "BadFile",
    "BadGrid",
    "FileAway",
    "JavaFailed",
    "MissingColumns",
    "MixedLayout",
    "NoInput",
    "NoJava",
    "NoPredictions",
    "NothingCounts",
    "NothingJudged",
    "NothingMatches",
    "NothingReadable",
    "OutOfReach",
    "OutputInUse",
    "SeveralSites",
    "SparkJobError",
    "StreamBroken",
    "UnreadableFile",
    "UnreadablePredictions",
    "UnwritableOutput",
    "WrongColumnType",
    "unreadable",
]


class SparkJobError(Exception):
    """Anything that a user of a job can mend."""


class NoJava(SparkJobError):
    """Spark runs on Java, and there is none."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or newer: install openjdk-17-jre-headless, or set JAVA_HOME"
        )


class JavaFailed(SparkJobError):
    """There is a Java, and Spark does not start on it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Spark does not start: {reason}\nIt needs Java 17 or newer (JAVA_HOME says which) and "
            "as much memory as --memory says; what Java itself said is above"
        )


class NoInput(SparkJobError):
    """There is no file of the wanted kind."""

    def __init__(self, source: Path, kind: str) -> None:
        self.source = source
        super().__init__(f"{source}: no {kind} there (*.parquet is looked for)")


class BadFile(SparkJobError):
    """A file that is left out."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file}: {reason}")


class UnreadableFile(BadFile):
    """Not Parquet, cut short, or not ours to read."""


class OutOfReach(UnreadableFile):
    """Not there for the moment, or the disk or network that it is on: it may come back."""


NOT_ITS_PLACE = (PermissionError, IsADirectoryError, NotADirectoryError)


def unreadable(file: Path, error: Exception) -> UnreadableFile:
    """By what reading it raised: what the system says (by number) may pass, a wrong format not."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    passing = getattr(error, "errno", None) is not None and not isinstance(error, NOT_ITS_PLACE)
    return OutOfReach(file, reason) if passing else UnreadableFile(file, reason)


class MissingColumns(BadFile):
    """A file without columns that every file has."""

    def __init__(self, file: Path, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        super().__init__(file, f"lacks {', '.join(columns)}")


class WrongColumnType(BadFile):
    """A column that holds something else."""

    def __init__(self, file: Path, column: str, found: str, wanted: str) -> None:
        self.column, self.found, self.wanted = column, found, wanted
        super().__init__(file, f"{column} is {found}, not {wanted}")


class MixedLayout(BadFile):
    """A flat file beside others by site and day: copies would count twice."""

    def __init__(self, file: Path, named: Path) -> None:
        super().__init__(file, f"is of no site by its path, as {named} and others are")


class NothingReadable(SparkJobError):
    """Every file was left out."""

    def __init__(self, source: Path, left_out: Sequence[BadFile]) -> None:
        self.left_out = tuple(left_out)
        first = "; ".join(str(bad) for bad in self.left_out[:3])
        super().__init__(f"{source}: none of {len(left_out)} files can be used: {first}")


class NothingCounts(SparkJobError):
    """There are rows, and none of them can be used."""

    def __init__(self, source: Path, refused: Mapping[str, int]) -> None:
        self.refused = dict(refused)
        reasons = "; ".join(f"{reason} ({count})" for reason, count in self.refused.items())
        super().__init__(f"{source}: no row counts: {reasons or 'there are none'}")


class NothingMatches(SparkJobError):
    """There are records, but none of what was asked for."""


class SeveralSites(SparkJobError):
    """Records of more than one site, where one is wanted."""

    def __init__(self, source: Path, sites: Sequence[str]) -> None:
        self.sites = tuple(sites)
        more = "" if len(sites) <= 8 else f" and {len(sites) - 8} more"
        super().__init__(
            f"{source}: records of {len(sites)} sites ({', '.join(sites[:8])}{more}); "
            "name one with --site"
        )


class NoPredictions(SparkJobError):
    """There is nothing to compare with."""

    def __init__(self, source: Path) -> None:
        super().__init__(f"{source}: no predictions there (*.json and *.parquet are looked for)")


class UnreadablePredictions(SparkJobError):
    """A file of predictions that cannot be used."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        super().__init__(f"{file}: not predictions: {reason}")


class BadGrid(SparkJobError):
    """A grid of parameters that cannot be swept."""


class OutputInUse(SparkJobError):
    """The output folder holds something else."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"{folder} {what}; name another folder")


class UnwritableOutput(SparkJobError):
    """The output folder cannot be made or written into."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(f"cannot write into {folder}: {error.strerror}")


class NothingJudged(SparkJobError):
    """A validation that says nothing of any prediction."""


class FileAway(SparkJobError):
    """A stream that waited in vain for a file that it has taken in before."""

    def __init__(self, bad: BadFile) -> None:
        self.file = bad.file
        super().__init__(f"{bad}; bring it back and start again: the stream goes on from there")


class StreamBroken(SparkJobError):
    """A stream that cannot go on, such as one whose checkpoint is damaged."""

    def __init__(self, reason: str, out: Path) -> None:
        super().__init__(
            f"the stream cannot go on: {reason}; to begin anew remove {out / 'state'} and "
            f"{out / 'checkpoint'}, or name another folder"
        )

"""What can be wrong with what a job is given.

::

    SparkJobError
     ├── NoJava               there is no Java to run Spark on
     ├── NoInput              no file of the wanted kind
     ├── BadFile              a file that is left out, and why
     │    ├── UnreadableFile
     │    ├── MissingColumns
     │    └── WrongColumnType
     ├── NothingReadable      every file was left out
     ├── NoPredictions
     ├── UnreadablePredictions
     ├── BadFleet             a fleet's table that cannot be used
     ├── BadGrid              a sweep's grid that cannot be used
     ├── OutputInUse          the output folder holds another job's results
     ├── NothingJudged        records and predictions have nothing in common, or too little
     └── StreamBroken         a stream that cannot go on
"""

from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "BadFile",
    "BadFleet",
    "BadGrid",
    "MissingColumns",
    "NoInput",
    "NoJava",
    "NoPredictions",
    "NothingJudged",
    "NothingReadable",
    "OutputInUse",
    "SparkJobError",
    "StreamBroken",
    "UnreadableFile",
    "UnreadablePredictions",
    "WrongColumnType",
]


class SparkJobError(Exception):
    """Anything that a user of a job can mend."""


class NoJava(SparkJobError):
    """Spark runs on Java, and there is none."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or newer: install openjdk-17-jre-headless, or set JAVA_HOME"
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


class NothingReadable(SparkJobError):
    """Every file was left out."""

    def __init__(self, source: Path, left_out: Sequence[BadFile]) -> None:
        self.left_out = tuple(left_out)
        first = "; ".join(str(bad) for bad in self.left_out[:3])
        super().__init__(f"{source}: none of {len(left_out)} files can be used: {first}")


class NoPredictions(SparkJobError):
    """There is nothing to compare with."""

    def __init__(self, source: Path) -> None:
        super().__init__(f"{source}: no predictions there (*.json and *.parquet are looked for)")


class UnreadablePredictions(SparkJobError):
    """A file of predictions that cannot be used."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        super().__init__(f"{file}: not predictions: {reason}")


class BadFleet(SparkJobError):
    """A table of sites that cannot be planned from."""


class BadGrid(SparkJobError):
    """A grid of parameters that cannot be swept."""


class OutputInUse(SparkJobError):
    """The output folder holds something else."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"{folder} {what}; name another folder")


class NothingJudged(SparkJobError):
    """A validation that says nothing of any prediction."""


class StreamBroken(SparkJobError):
    """A stream that cannot go on, such as one whose checkpoint is damaged."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the stream cannot go on: {reason}")

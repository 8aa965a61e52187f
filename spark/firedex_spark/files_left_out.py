"""Files that turn out to be broken in the midst of a job: it begins again without them."""

from collections.abc import Sequence
from pathlib import Path

from firedex_spark.errors import BadFile, NothingReadable
from firedex_spark.record_files import CheckedFiles

__all__ = ["without"]


def without(source: Path, checked: CheckedFiles, broken: Sequence[BadFile]) -> CheckedFiles:
    """What is left to be read; a file counts whole or not at all."""
    names = {bad.file for bad in broken}
    good = tuple(file for file in checked.good if file.path not in names)
    left_out = (*checked.left_out, *broken)
    if not good:
        raise NothingReadable(source, left_out)
    return CheckedFiles(good=good, left_out=left_out)

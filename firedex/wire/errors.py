"""The exceptions of ``firedex.wire``.

::

    WireError
    └── InvalidValue    a value is not valid; carries every problem, each with its path
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["InvalidValue", "Path", "Problem", "WireError", "format_path"]

Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """Return a path as text, such as ``publishers[0].publications[1].topic``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text or "(top level)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a value: its path, and a message that says what is expected."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}"


class WireError(Exception):
    """Base class of the exceptions of ``firedex.wire``."""


class InvalidValue(WireError):
    """A value is not valid; ``problems`` lists everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

"""The exceptions of ``firedex.wire``.

::

    WireError
    └── InvalidValue    a value breaks the contract; carries every problem, each with its path
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["InvalidValue", "Path", "Problem", "WireError", "format_path"]

Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """Write a path the way people read it: ``publishers[0].publications[1].topic``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text or "(top level)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a value: where, and what would be right."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}"


class WireError(Exception):
    """The root of what ``firedex.wire`` raises."""


class InvalidValue(WireError):
    """A value that breaks the contract, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

"""What a benchmark reports, for people and for machines."""

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

__all__ = ["BenchmarkResult", "Comparison", "Report", "machine"]

Report = Callable[[str], None]
SMALL = 0.05
"""Ratios below this are said the other way round: one to so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides measured or stated in one run, and whether their ratio keeps its bar.

    ``rounds``: the ratio of each round, where both sides were measured in turns.
    """

    what: str
    left: str
    left_value: float
    right: str
    right_value: float
    unit: str
    at_most: float
    rounds: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """Left over right; of several rounds the median, since noise hits both sides of a round."""
        return median(self.rounds) if self.rounds else self.left_value / self.right_value

    @property
    def kept(self) -> bool:
        """Whether the ratio is within its bar."""
        return self.ratio <= self.at_most

    def as_text(self) -> str:
        """For people."""
        verdict = "kept" if self.kept else "NOT KEPT"
        spread = ""
        if self.rounds:
            low, high = _readable(min(self.rounds)), _readable(max(self.rounds))
            spread = f" ({low} to {high} in {len(self.rounds)} rounds)"
        return "\n".join(
            [
                f"  {self.what}",
                f"    {self.left}: {self.left_value:.4g} {self.unit}",
                f"    {self.right}: {self.right_value:.4g} {self.unit}",
                f"    ratio {_readable(self.ratio)}{spread}, "
                f"bar at most {_readable(self.at_most)}: {verdict}",
            ]
        )


def _readable(ratio: float) -> str:
    return f"1/{1 / ratio:.3g}" if 0 < ratio < SMALL else f"{ratio:.3g}"


def machine() -> dict[str, str]:
    """The machine that a figure comes from."""
    model = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            model = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "system": platform.platform(terse=True),
        "python": sys.version.split()[0],
        "numpy": version("numpy"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """All comparisons of one benchmark."""

    name: str
    comparisons: tuple[Comparison, ...]
    machine: dict[str, str] = field(default_factory=machine)

    @property
    def kept(self) -> bool:
        """Whether every bar is kept."""
        return all(comparison.kept for comparison in self.comparisons)

    def as_plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "machine": self.machine,
            "comparisons": [
                {**asdict(c), "ratio": c.ratio, "kept": c.kept} for c in self.comparisons
            ],
        }

    def as_text(self) -> str:
        """For people."""
        where = f"{self.name}, on " + ", ".join(f"{k} {v}" for k, v in self.machine.items())
        return "\n".join([where, *(comparison.as_text() for comparison in self.comparisons)])

"""Results of benchmarks, and timing on one core."""

import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

__all__ = [
    "BenchmarkResult",
    "Comparison",
    "Figure",
    "Report",
    "best_seconds",
    "machine",
    "seconds_by_round",
]

Report = Callable[[str], None]
FRACTION_THRESHOLD = 0.05
"""Ratios below this are printed as 1/n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two values of one run and the limit of their ratio (``at_most``).

    ``rounds`` has the ratio of each round if both sides were measured in turns.
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
        """The left value divided by the right; with rounds, the median of their ratios."""
        return median(self.rounds) if self.rounds else self.left_value / self.right_value

    @property
    def within_limit(self) -> bool:
        """Whether the ratio is within its limit."""
        return self.ratio <= self.at_most

    def as_text(self) -> str:
        """Return the result as text."""
        verdict = "met" if self.within_limit else "EXCEEDED"
        spread = ""
        if self.rounds:
            low, high = _ratio_text(min(self.rounds)), _ratio_text(max(self.rounds))
            spread = f" ({low} to {high} in {len(self.rounds)} rounds)"
        return "\n".join(
            [
                f"  {self.what}",
                f"    {self.left}: {self.left_value:.4g} {self.unit}",
                f"    {self.right}: {self.right_value:.4g} {self.unit}",
                f"    ratio {_ratio_text(self.ratio)}{spread}, "
                f"limit {_ratio_text(self.at_most)}: {verdict}",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value and what the project aims at; it depends on the machine, so no limit.

    The aim is the largest value that is good enough; with ``at_least``, the smallest.
    """

    what: str
    value: float
    unit: str
    aim: float | None = None
    at_least: bool = False

    @property
    def meets_aim(self) -> bool | None:
        """Whether the value is as good as the aim; None without an aim."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    def as_text(self) -> str:
        """Return the figure as text."""
        line = f"  {self.what}: {_number_text(self.value)} {self.unit}"
        if self.aim is None:
            return line
        bound = "at least" if self.at_least else "at most"
        verdict = "met" if self.meets_aim else "missed"
        return f"{line} (aim: {bound} {_number_text(self.aim)}: {verdict})"


def _number_text(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _ratio_text(ratio: float) -> str:
    return f"1/{1 / ratio:.3g}" if 0 < ratio < FRACTION_THRESHOLD else f"{ratio:.3g}"


def machine() -> dict[str, str]:
    """Describe the machine that runs the benchmark."""
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
    """All comparisons of one benchmark, and figures beside their aims."""

    name: str
    comparisons: tuple[Comparison, ...]
    figures: tuple[Figure, ...] = ()
    machine: dict[str, str] = field(default_factory=machine)

    @property
    def within_limit(self) -> bool:
        """Whether every ratio is within its limit."""
        return all(comparison.within_limit for comparison in self.comparisons)

    def as_plain(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        return {
            "name": self.name,
            "machine": self.machine,
            "comparisons": [
                {**asdict(c), "ratio": c.ratio, "kept": c.within_limit} for c in self.comparisons
            ],
            "figures": [{**asdict(f), "meets_aim": f.meets_aim} for f in self.figures],
        }

    def as_text(self) -> str:
        """Return the result as text."""
        header = f"{self.name}, on " + ", ".join(f"{k} {v}" for k, v in self.machine.items())
        comparisons = [comparison.as_text() for comparison in self.comparisons]
        return "\n".join([header, *comparisons, *(figure.as_text() for figure in self.figures)])


@contextmanager
def _one_core_without_gc() -> Iterator[None]:
    """Pin the process to one core and exclude existing objects from garbage collection."""
    allowed = os.sched_getaffinity(0)
    gc.collect()
    gc.freeze()
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        gc.unfreeze()


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of ``repeats`` runs."""
    with _one_core_without_gc():
        return min(_seconds(work) for _ in range(repeats))


def seconds_by_round(rounds: int, *works: Callable[[], object]) -> Iterator[tuple[float, ...]]:
    """Time each function in turns, so that a slow period of the machine affects all of a round."""
    with _one_core_without_gc():
        for _ in range(rounds):
            yield tuple(_seconds(work) for work in works)

"""What a benchmark reports, for people and for machines."""

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

__all__ = ["BenchmarkResult", "Comparison", "Report", "machine"]

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides measured or stated in one run, and whether their ratio keeps its bar."""

    what: str
    left: str
    left_value: float
    right: str
    right_value: float
    unit: str
    at_most: float

    @property
    def ratio(self) -> float:
        """Left over right."""
        return self.left_value / self.right_value

    @property
    def kept(self) -> bool:
        """Whether the ratio is within its bar."""
        return self.ratio <= self.at_most


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
        lines = [f"{self.name}, on " + ", ".join(f"{k} {v}" for k, v in self.machine.items())]
        for c in self.comparisons:
            verdict = "kept" if c.kept else "NOT KEPT"
            lines += [
                f"  {c.what}",
                f"    {c.left}: {c.left_value:.4g} {c.unit}",
                f"    {c.right}: {c.right_value:.4g} {c.unit}",
                f"    ratio {c.ratio:.3g}, bar at most {c.at_most:g}: {verdict}",
            ]
        return "\n".join(lines)

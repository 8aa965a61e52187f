"""Benchmarks: each compares two sides within one run, and says on which machine."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from firedex.benchmarks.plan_scale import plan_scale
from firedex.benchmarks.predict_scale import predict_scale
from firedex.benchmarks.result import BenchmarkResult, Report
from firedex.benchmarks.simulate_speed import simulate_speed

__all__ = ["BENCHMARKS", "BenchmarkResult", "Report", "run_benchmark"]

GROUP = "firedex.benchmarks"
BENCHMARKS: dict[str, Callable[[Report], BenchmarkResult]] = {
    "plan": plan_scale,
    "predict": predict_scale,
    "simulate": simulate_speed,
}


def _of_a_part(entry: EntryPoint) -> Callable[[Report], BenchmarkResult]:
    """A benchmark of a part that may not be imported from here; loaded when it is run."""

    def run(report: Report) -> BenchmarkResult:
        found: BenchmarkResult = entry.load()(report)
        return found

    return run


BENCHMARKS.update({entry.name: _of_a_part(entry) for entry in entry_points(group=GROUP)})


def run_benchmark(name: str, report: Report) -> BenchmarkResult:
    """Run the benchmark of that name; ``report`` is told what is being done."""
    return BENCHMARKS[name](report)

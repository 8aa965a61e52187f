"""Benchmarks: each compares two sides within one run, and says on which machine.

A part that stands above announces its own by entry point (``firedex.benchmarks``).
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from firedex.benchmarks.plan_scale import plan_scale
from firedex.benchmarks.predict_scale import predict_scale
from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.benchmarks.serve_load import serve_load
from firedex.benchmarks.simulate_speed import simulate_speed

__all__ = ["BenchmarkResult", "Comparison", "Report", "benchmark_names", "run_benchmark"]

Benchmark = Callable[[Report], BenchmarkResult]
GROUP = "firedex.benchmarks"
OWN: dict[str, Benchmark] = {
    "plan": plan_scale,
    "predict": predict_scale,
    "serve": serve_load,
    "simulate": simulate_speed,
}


def benchmark_names() -> list[str]:
    """All there are, those of parts included."""
    return sorted({*OWN, *entry_points(group=GROUP).names})


def run_benchmark(name: str, report: Report) -> BenchmarkResult:
    """Run the benchmark of that name; ``report`` is told what is being done."""
    if name in OWN:
        return OWN[name](report)
    announced: Benchmark = entry_points(group=GROUP)[name].load()
    return announced(report)

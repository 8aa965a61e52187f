"""Benchmarks: each compares two sides within one run, and says on which machine."""

from collections.abc import Callable

from firedex.benchmarks.plan_scale import plan_scale
from firedex.benchmarks.predict_scale import predict_scale
from firedex.benchmarks.result import BenchmarkResult, Report
from firedex.benchmarks.serve_load import serve_load
from firedex.benchmarks.simulate_speed import simulate_speed

__all__ = ["BENCHMARKS", "BenchmarkResult", "Report", "run_benchmark"]

BENCHMARKS: dict[str, Callable[[Report], BenchmarkResult]] = {
    "plan": plan_scale,
    "predict": predict_scale,
    "serve": serve_load,
    "simulate": simulate_speed,
}


def run_benchmark(name: str, report: Report) -> BenchmarkResult:
    """Run the benchmark of that name; ``report`` is told what is being done."""
    return BENCHMARKS[name](report)

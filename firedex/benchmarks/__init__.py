"""Benchmarks: each compares two sides within one run, and says on which machine."""

from collections.abc import Callable

from firedex.benchmarks.predict_scale import predict_scale
from firedex.benchmarks.result import BenchmarkResult

__all__ = ["BENCHMARKS", "BenchmarkResult", "run_benchmark"]

BENCHMARKS: dict[str, Callable[[], BenchmarkResult]] = {"predict": predict_scale}


def run_benchmark(name: str) -> BenchmarkResult:
    """Run the benchmark of that name."""
    return BENCHMARKS[name]()

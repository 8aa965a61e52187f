"""Benchmarks: each compares two sides within one run and names the machine it ran on.

A benchmark below ``tests.benchmarks`` uses a fake or a browser driver, so it needs a checkout.
"""

from collections.abc import Callable
from importlib import import_module

from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Figure, Report

__all__ = ["BenchmarkResult", "Comparison", "Figure", "Report", "benchmark_names", "run_benchmark"]

Benchmark = Callable[[Report], BenchmarkResult]
BENCHMARKS = {
    "cli": "firedex.lab.benchmarks.command_line:start_up_time",
    "clients": "firedex.lab.benchmarks.library_throughput:library_throughput",
    "dashboard": "tests.benchmarks.dashboard:dashboard_speed",
    "federation": "firedex.lab.benchmarks.federation:federation_speed",
    "gateway": "firedex.lab.benchmarks.gateway_speed:gateway_speed",
    "plan": "firedex.lab.benchmarks.scale:plan_scale",
    "predict": "firedex.lab.benchmarks.scale:predict_scale",
    "rules": "tests.benchmarks.switch_rules:rule_speed",
    "serve": "tests.benchmarks.service_load:serve_load",
    "simulate": "firedex.lab.benchmarks.simulate_speed:simulate_speed",
    "spark": "firedex.lab.benchmarks.spark_validation:validate_at_scale",
}


def benchmark_names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(BENCHMARKS)


def run_benchmark(name: str, report: Report) -> BenchmarkResult:
    """Run one benchmark; it calls ``report`` with its progress."""
    module, _, function = BENCHMARKS[name].partition(":")
    benchmark: Benchmark = getattr(import_module(module), function)
    return benchmark(report)

"""How long a prediction takes, and how that grows. Reading the scenario is not counted."""

from math import log

from firedex.benchmarks.city import city
from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.benchmarks.timing import best_seconds
from firedex.wire import Scenario
from firedex_models import predict

__all__ = ["predict_scale"]

REPEATS = 3


def _everything(scenario: Scenario) -> None:
    table = predict(scenario)
    _ = (table.delay_p50_seconds, table.delay_p95_seconds, table.delay_p99_seconds)


def _best_seconds(subscriptions: int, report: Report) -> tuple[int, float]:
    report(f"predict: {subscriptions} subscriptions, making them (not counted)")
    scenario = city(subscriptions)
    report(f"predict: {subscriptions} subscriptions, best of {REPEATS}")
    return len(scenario.assignment or ()), best_seconds(lambda: _everything(scenario), REPEATS)


def predict_scale(report: Report) -> BenchmarkResult:
    """100 000 subscriptions on one core against one second; 10 000 to 1 000 000 against N log N."""
    predict(city(1_000))
    small_count, small = _best_seconds(10_000, report)
    middle_count, middle = _best_seconds(100_000, report)
    large_count, large = _best_seconds(1_000_000, report)
    growth = large_count * log(large_count) / (small_count * log(small_count))
    return BenchmarkResult(
        name="predict",
        comparisons=(
            Comparison(
                what="predicting 100 000 subscriptions on one core, wildcards included",
                left=f"{middle_count} subscriptions",
                left_value=middle,
                right="the bar",
                right_value=1.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="growth from 10 000 to 1 000 000 subscriptions",
                left=f"{large_count} subscriptions",
                left_value=large,
                right=f"{small_count} subscriptions, times N log N ({growth:.0f})",
                right_value=small * growth,
                unit="s",
                at_most=1.0,
            ),
        ),
    )

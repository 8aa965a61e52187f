"""How long a prediction takes, and how that grows. Reading the scenario is not counted.

A fifth of the subscriptions are wildcards; there is a topic for every 25 subscriptions.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import log
from time import perf_counter

import numpy as np

from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.wire import Scenario, from_plain
from firedex_models import predict

__all__ = ["city", "predict_scale"]

SENSORS = ("smoke", "heat", "vitals", "doors", "water")
FLOORS = 5
PER_SUBSCRIBER = 20
CLASSES = 8
REPEATS = 3


def city(subscriptions: int, seed: int = 1) -> Scenario:
    """A scenario with about so many subscriptions, overloaded and cut back by drop rates.

    A subscriber's doubles fall out, so there are a few less.
    """
    random = np.random.default_rng(seed)
    buildings = max(subscriptions // 25 // (FLOORS * len(SENSORS)), 1)
    topics = [
        f"b{building}/f{floor}/{sensor}"
        for building in range(buildings)
        for floor in range(FLOORS)
        for sensor in SENSORS
    ]
    subscribers, assignment = [], []
    rate = 0.0
    for number in range(subscriptions // PER_SUBSCRIBER):
        wanted = dict.fromkeys(_filters(random, buildings))
        name = f"s{number}"
        subscribers.append(
            {
                "id": name,
                "switch": "out",
                "subscriptions": [
                    {"filter": f, "utility": {"kind": "log", "weight": 1.0 + row}}
                    for row, f in enumerate(wanted)
                ],
            }
        )
        for row, f in enumerate(wanted):
            priority = row * CLASSES // len(wanted)
            matched = FLOORS if "+" in f else len(SENSORS) if "#" in f else 1
            rate += matched * (1 - 0.08 * priority)
            assignment.append(
                {
                    "subscriber": name,
                    "filter": f,
                    "flow": priority,
                    "priority": priority,
                    "drop_rate": 0.08 * priority,
                }
            )
    return from_plain(
        Scenario,
        {
            "name": f"city of {subscriptions}",
            "topics": [{"name": name, "event_bytes": 51} for name in topics],
            "publishers": [
                {
                    "id": "sensors",
                    "switch": "in",
                    "publications": [{"topic": name, "rate_per_second": 1.0} for name in topics],
                }
            ],
            "subscribers": subscribers,
            "network": {
                "switches": [
                    {"id": "in", "managed": False, "bandwidth_bits_per_second": 1e12},
                    {"id": "out", "bandwidth_bits_per_second": rate * 800 / 0.9},
                ],
                "broker": {"id": "b"},
            },
            "assignment": assignment,
        },
    )


def _filters(random: np.random.Generator, buildings: int) -> Iterator[str]:
    for row in range(PER_SUBSCRIBER):
        building, floor = random.integers(buildings), random.integers(FLOORS)
        sensor = SENSORS[random.integers(len(SENSORS))]
        if row % 10 == 0:
            yield f"b{building}/+/{sensor}"
        elif row % 10 == 5:
            yield f"b{building}/f{floor}/#"
        else:
            yield f"b{building}/f{floor}/{sensor}"


@contextmanager
def _one_core() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _best_seconds(subscriptions: int, report: Report) -> tuple[int, float]:
    report(f"predict: {subscriptions} subscriptions, making them (not counted)")
    scenario = city(subscriptions)
    report(f"predict: {subscriptions} subscriptions, best of {REPEATS}")
    count = len(scenario.assignment or ())
    gc.collect()
    gc.freeze()  # the scenario's millions of values are not the prediction's garbage
    best = float("inf")
    with _one_core():
        for _ in range(REPEATS):
            start = perf_counter()
            table = predict(scenario)
            _ = (table.delay_p50_seconds, table.delay_p95_seconds, table.delay_p99_seconds)
            best = min(best, perf_counter() - start)
    gc.unfreeze()
    return count, best


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

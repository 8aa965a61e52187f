"""The fan-out-aware model against the event-by-event simulation: means and percentiles."""

import numpy as np
import pytest
from bottleneck_cases import (
    Bottleneck,
    PublishedTopic,
    Wanted,
    class_means,
    class_p95s,
    spread_subscriptions,
)
from joint_confidence import Estimate, estimate
from numpy.typing import NDArray
from reference_simulation import class_of, mean_by, simulate
from replication_seeds import generator_for

from firedex_models import predict

Floats = NDArray[np.float64]

LOADS = (0.6, 0.9)
MEAN_MAY_DIFFER, MEAN_HALF_WIDTH = 0.02, 0.02
P95_MAY_DIFFER, P95_HALF_WIDTH = 0.10, 0.05
PUBLICATIONS = {0.6: 60_000, 0.9: 150_000}
PILOT, MOST = 60, 1000


def _prototype(*, exponential: bool) -> Bottleneck:
    """Sizes, classes and drop rates all mixed within a publication's batch."""
    topics = [
        PublishedTopic(name=f"t{v}", rate=5.0 + 2 * v, wire_bytes=size, exponential=exponential)
        for v, size in enumerate((80, 120, 200, 80, 160, 100))
    ]
    wanted = spread_subscriptions(topics, subscribers=4, classes=4, drop_per_class=0.1)
    return Bottleneck(topics=topics, wanted=wanted)


def _building() -> Bottleneck:
    """Wildcards; filters that overlap on one flow, and others that overlap on two."""
    topics = [
        PublishedTopic(name="floor/1/smoke", rate=12.0, wire_bytes=90),
        PublishedTopic(name="floor/2/smoke", rate=8.0, wire_bytes=90),
        PublishedTopic(name="floor/1/heat", rate=10.0, wire_bytes=140, exponential=True),
        PublishedTopic(name="floor/2/heat", rate=6.0, wire_bytes=140, exponential=True),
        PublishedTopic(name="crew/position", rate=15.0, wire_bytes=70),
    ]
    rows: list[tuple[str, str, tuple[int, ...], int, int, float]] = [
        ("chief", "#", (0, 1, 2, 3, 4), 0, 3, 0.3),
        ("chief", "floor/+/smoke", (0, 1), 1, 0, 0.0),
        ("crew1", "floor/1/#", (0, 2), 0, 1, 0.1),
        ("crew1", "floor/1/smoke", (0,), 0, 1, 0.1),
        ("crew1", "crew/+", (4,), 1, 2, 0.0),
        ("crew2", "floor/2/heat", (3,), 0, 0, 0.0),
        ("crew2", "+/position", (4,), 1, 1, 0.2),
        ("desk", "floor/#", (0, 1, 2, 3), 0, 2, 0.15),
        ("desk", "crew/position", (4,), 1, 3, 0.5),
    ]
    wanted = [
        Wanted(subscriber=s, filter=f, topics=v, flow=flow, priority=k, drop_rate=drop)
        for s, f, v, flow, k, drop in rows
    ]
    return Bottleneck(topics=topics, wanted=wanted)


CASES = {
    "fixed sizes": _prototype(exponential=False),
    "exponential sizes": _prototype(exponential=True),
    "wildcards": _building(),
}
BY_SUBSCRIPTION = "wildcards"
COMPARISONS = len(LOADS) * (
    sum(2 * case.classes for case in CASES.values()) + len(CASES[BY_SUBSCRIPTION].wanted)
)


TAKES_LONG = {("exponential sizes", 0.9), ("wildcards", 0.9)}


@pytest.mark.parametrize(
    ("name", "load"),
    [
        pytest.param(name, load, marks=pytest.mark.long if (name, load) in TAKES_LONG else ())
        for load in LOADS
        for name in CASES
    ],
)
def test_means_and_percentiles_agree_with_simulation(name: str, load: float) -> None:
    case = CASES[name].at_load(load)
    table = predict(case.scenario())
    means, p95s = class_means(table), class_p95s(table)
    if name == BY_SUBSCRIPTION:
        means = np.concatenate([means, table.delay_mean_seconds])
    predicted = np.concatenate([p95s, means])
    may_differ = np.repeat([P95_MAY_DIFFER, MEAN_MAY_DIFFER], [len(p95s), len(means)])

    simulated = _simulated(name, load, case)

    error = simulated.error_of(predicted)
    print(
        f"{name} at {load}: {simulated.replications} replications; error of means "
        f"{np.round(error[len(p95s) :], 4)}, of p95 {np.round(error[: len(p95s)], 4)}"
    )
    assert (simulated.excess_of(predicted) <= may_differ).all(), error


def _simulated(name: str, load: float, case: Bottleneck) -> Estimate:
    subscription_streams = case.streams_of_each_subscription()
    members = subscription_streams if name == BY_SUBSCRIPTION else []
    # A class is described as its subscriptions see it: a packet that serves two of them counts
    # twice.
    serves = np.bincount(np.concatenate(subscription_streams), minlength=len(case.streams))

    def one(replication: int) -> Floats:
        generator = generator_for(f"{name} at {load}", replication)
        seen = simulate(case, publications=PUBLICATIONS[load], generator=generator)
        heard = np.repeat(seen.delay, serves[seen.stream])
        priority = np.repeat(class_of(case, seen), serves[seen.stream])
        p95 = [np.quantile(heard[priority == k], 0.95) for k in range(case.classes)]
        means = mean_by(priority, heard, case.classes)
        count = np.bincount(seen.stream, minlength=len(case.streams))
        total = np.bincount(seen.stream, seen.delay, minlength=len(case.streams))
        each = [total[rows].sum() / count[rows].sum() for rows in members]
        return np.concatenate([p95, means, each])

    bars = np.repeat([P95_HALF_WIDTH, MEAN_HALF_WIDTH], [case.classes, case.classes + len(members)])
    return estimate(
        lambda numbers: np.array([one(number) for number in numbers]),
        comparisons=COMPARISONS,
        relative_half_width=bars,
        pilot=PILOT,
        most=MOST,
    )


def test_independent_arrivals_miss_what_fan_out_costs() -> None:
    """Why the fan-out-aware model is the default: the other one is far too hopeful."""
    topics = [PublishedTopic(name=f"t{v}", rate=10.0) for v in range(7)]
    wanted = spread_subscriptions(topics, subscribers=30, classes=7)
    case = Bottleneck(topics=topics, wanted=wanted).at_load(0.9)
    generator = generator_for("fan-out of 30", 0)
    seen = simulate(case, publications=400_000, generator=generator)
    simulated = mean_by(class_of(case, seen), seen.delay, case.classes)

    fan_out = class_means(predict(case.scenario()))
    independent = class_means(predict(case.scenario(), model="independent"))

    np.testing.assert_allclose(fan_out, simulated, rtol=0.1)
    assert (simulated[1:] > 5 * independent[1:]).all()

"""Means and percentiles of the fan-out model, checked against the reference simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray

from firedex_models import predict
from tests.models.bottleneck_cases import (
    Bottleneck,
    CaseSubscription,
    PublishedTopic,
    class_means,
    class_p95s,
    spread_subscriptions,
)
from tests.models.joint_confidence import Estimate, estimate
from tests.models.reference_simulation import group_means, packet_classes, simulate
from tests.models.replication_seeds import generator_for

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]

LOADS = (0.6, 0.9)
MEAN_TOLERANCE, MEAN_HALF_WIDTH = 0.02, 0.02
P95_TOLERANCE, P95_HALF_WIDTH = 0.10, 0.05
PUBLICATIONS = {0.6: 60_000, 0.9: 150_000}
PILOT, MAX_REPLICATIONS = 60, 1000


def _prototype(*, exponential: bool) -> Bottleneck:
    """Return a case in which packets of one publication differ in size, class and drop rate."""
    topics = [
        PublishedTopic(name=f"t{v}", rate=5.0 + 2 * v, wire_bytes=size, exponential=exponential)
        for v, size in enumerate((80, 120, 200, 80, 160, 100))
    ]
    subscriptions = spread_subscriptions(topics, subscribers=4, classes=4, drop_per_class=0.1)
    return Bottleneck(topics=topics, subscriptions=subscriptions)


def _building() -> Bottleneck:
    """Return a case with wildcards, and filters that overlap on one flow or on two flows."""
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
    subscriptions = [
        CaseSubscription(subscriber=s, filter=f, topics=v, flow=flow, priority=k, drop_rate=drop)
        for s, f, v, flow, k, drop in rows
    ]
    return Bottleneck(topics=topics, subscriptions=subscriptions)


CASES = {
    "fixed sizes": _prototype(exponential=False),
    "exponential sizes": _prototype(exponential=True),
    "wildcards": _building(),
}
CASE_WITH_SUBSCRIPTIONS = "wildcards"
COMPARISONS = len(LOADS) * (
    sum(2 * case.classes for case in CASES.values())
    + len(CASES[CASE_WITH_SUBSCRIPTIONS].subscriptions)
)


LONG_CASES = {("exponential sizes", 0.6), ("exponential sizes", 0.9), ("wildcards", 0.9)}


@pytest.mark.parametrize(
    ("name", "load"),
    [
        pytest.param(name, load, marks=pytest.mark.long if (name, load) in LONG_CASES else ())
        for load in LOADS
        for name in CASES
    ],
)
def test_means_and_percentiles_agree_with_simulation(name: str, load: float) -> None:
    case = CASES[name].at_load(load)
    table = predict(case.scenario())
    means, p95s = class_means(table), class_p95s(table)
    if name == CASE_WITH_SUBSCRIPTIONS:
        means = np.concatenate([means, table.delay_mean_seconds])
    predicted = np.concatenate([p95s, means])
    tolerance = np.repeat([P95_TOLERANCE, MEAN_TOLERANCE], [len(p95s), len(means)])

    simulated = _simulate_case(name, load, case)

    error = simulated.relative_error(predicted)
    print(
        f"{name} at {load}: {simulated.replications} replications; error of means "
        f"{np.round(error[len(p95s) :], 4)}, of p95 {np.round(error[: len(p95s)], 4)}"
    )
    assert (simulated.error_beyond_interval(predicted) <= tolerance).all(), error


def _simulate_case(name: str, load: float, case: Bottleneck) -> Estimate:
    subscription_streams = case.streams_of_each_subscription()
    members = subscription_streams if name == CASE_WITH_SUBSCRIPTIONS else []
    # The figures of a class are averages over its subscriptions: a packet for two subscriptions
    # counts twice.
    subscriptions_of_stream = np.bincount(
        np.concatenate(subscription_streams), minlength=len(case.streams)
    )

    def replicate(replication: int) -> Floats:
        generator = generator_for(f"{name} at {load}", replication)
        deliveries = simulate(case, publications=PUBLICATIONS[load], generator=generator)
        delay = np.repeat(deliveries.delay, subscriptions_of_stream[deliveries.stream])
        priority = np.repeat(
            packet_classes(case, deliveries), subscriptions_of_stream[deliveries.stream]
        )
        p95 = [np.quantile(delay[priority == k], 0.95) for k in range(case.classes)]
        means = group_means(priority, delay, case.classes)
        count = np.bincount(deliveries.stream, minlength=len(case.streams))
        total = np.bincount(deliveries.stream, deliveries.delay, minlength=len(case.streams))
        subscription_means = [total[rows].sum() / count[rows].sum() for rows in members]
        return np.concatenate([p95, means, subscription_means])

    half_widths = np.repeat(
        [P95_HALF_WIDTH, MEAN_HALF_WIDTH], [case.classes, case.classes + len(members)]
    )
    return estimate(
        lambda numbers: np.array([replicate(number) for number in numbers]),
        comparisons=COMPARISONS,
        relative_half_width=half_widths,
        pilot=PILOT,
        max_replications=MAX_REPLICATIONS,
    )


def test_independent_model_underestimates_delays_with_fan_out() -> None:
    """The independent model is far too optimistic; so the fan-out model is the default."""
    topics = [PublishedTopic(name=f"t{v}", rate=10.0) for v in range(7)]
    subscriptions = spread_subscriptions(topics, subscribers=30, classes=7)
    case = Bottleneck(topics=topics, subscriptions=subscriptions).at_load(0.9)
    generator = generator_for("fan-out of 30", 0)
    deliveries = simulate(case, publications=400_000, generator=generator)
    simulated = group_means(packet_classes(case, deliveries), deliveries.delay, case.classes)

    fan_out = class_means(predict(case.scenario()))
    independent = class_means(predict(case.scenario(), model="independent"))

    np.testing.assert_allclose(fan_out, simulated, rtol=0.1)
    assert (simulated[1:] > 5 * independent[1:]).all()

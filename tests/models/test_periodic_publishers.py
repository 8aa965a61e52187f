"""Predictions for periodic publishers, checked against the reference simulation.

Averaged over random phases, the mean delay of every class is within 15 % of the simulation. The
largest error is printed (``pytest -s``) for ``docs/concepts/model.md``. The phases of a real site
are not known; its delays may be better or worse than this average, which is not tested.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from firedex_models import predict
from tests.models.bottleneck_cases import (
    Bottleneck,
    PublishedTopic,
    class_means,
    spread_subscriptions,
)
from tests.models.joint_confidence import Estimate, estimate
from tests.models.reference_simulation import group_means, packet_classes, simulate
from tests.models.replication_seeds import generator_for

pytestmark = pytest.mark.slow

LOADS = (0.6, 0.9)
TOLERANCE = 0.15
HALF_WIDTH = 0.05
CLASSES = 4
PUBLICATIONS = 10_000
"""Publications of one replication. It is short, because phases cause most of the variance."""
PILOT, MAX_REPLICATIONS = 100, 20_000

EQUAL = (10.0,) * 7
DIFFERENT = (3.0, 5.0, 8.0, 10.0, 12.0, 15.0, 20.0)
MANY = tuple(np.linspace(3.0, 7.0, 40))


def _case(rates: tuple[float, ...], *, every: int, subscribers: int) -> Bottleneck:
    """Return a case in which one of ``every`` topics is periodic and the others are Poisson."""
    topics = [
        PublishedTopic(
            name=f"t{v}", rate=rate, wire_bytes=(80, 120, 160)[v % 3], periodic=v % every == 0
        )
        for v, rate in enumerate(rates)
    ]
    subscriptions = spread_subscriptions(
        topics, subscribers=subscribers, classes=CLASSES, drop_per_class=0.1
    )
    return Bottleneck(topics=topics, subscriptions=subscriptions)


CASES = {
    "equal rates": _case(EQUAL, every=1, subscribers=10),
    "different rates": _case(DIFFERENT, every=1, subscribers=10),
    "half Poisson": _case(DIFFERENT, every=2, subscribers=10),
    "many topics": _case(MANY, every=1, subscribers=4),
    "many topics, half Poisson": _case(MANY, every=2, subscribers=4),
}
COMPARISONS = len(CASES) * len(LOADS) * CLASSES


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.long if each == "equal rates" else ()) for each in CASES],
)
def test_class_means_agree_with_simulation_within_15_percent(name: str, load: float) -> None:
    case = CASES[name].at_load(load)
    predicted = class_means(predict(case.scenario()))
    simulated = _simulate_case(name, load)
    error = simulated.relative_error(predicted)
    print(
        f"{name} at {load}: {simulated.replications} replications; error {np.round(error, 3)}, "
        f"worst {np.abs(error).max():.1%}"
    )
    assert (simulated.error_beyond_interval(predicted) <= TOLERANCE).all(), error


def test_poisson_model_overestimates_delays_of_periodic_publishers() -> None:
    case = CASES["equal rates"].at_load(0.9)
    poisson_case = replace(case, topics=[replace(t, periodic=False) for t in case.topics])
    simulated = _simulate_case("equal rates", 0.9)
    error = simulated.relative_error(class_means(predict(poisson_case.scenario())))
    print(f"uncorrected, equal rates at 0.9: error {np.round(error, 3)}")
    # Low classes wait for the whole load, so the difference is largest there.
    assert error[-1] > 1.0
    assert error.max() > 5 * TOLERANCE


@cache
def _simulate_case(name: str, load: float) -> Estimate:
    case = CASES[name].at_load(load)

    def replicate(replication: int) -> np.ndarray:
        generator = generator_for(f"periodic {name} at {load}", replication)
        deliveries = simulate(case, publications=PUBLICATIONS, generator=generator)
        return group_means(packet_classes(case, deliveries), deliveries.delay, CLASSES)

    return estimate(
        lambda numbers: np.array([replicate(number) for number in numbers]),
        comparisons=COMPARISONS,
        relative_half_width=HALF_WIDTH,
        pilot=PILOT,
        max_replications=MAX_REPLICATIONS,
    )

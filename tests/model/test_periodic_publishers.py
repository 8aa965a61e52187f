"""Publishers that tick like clocks, against the event-by-event simulation.

Averaged over random phases, every class mean is within 15 % of simulation; the worst error is
printed (``pytest -s``) for ``docs/model.md``. A site's own phases, once set, may be luckier or
unluckier than the average: that is not tested, since nobody knows them.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from bottleneck_cases import Bottleneck, PublishedTopic, class_means, spread_subscriptions
from joint_confidence import Estimate, estimate
from reference_simulation import class_of, mean_by, simulate
from replication_seeds import generator_for

from firedex_models import predict

LOADS = (0.6, 0.9)
MAY_DIFFER = 0.15
HALF_WIDTH = 0.05
CLASSES = 4
PUBLICATIONS = 10_000
"""Of one replication: short, since phases differ more from each other than times do."""
PILOT, MOST = 100, 20_000

EQUAL = (10.0,) * 7
DIFFERENT = (3.0, 5.0, 8.0, 10.0, 12.0, 15.0, 20.0)
MANY = tuple(np.linspace(3.0, 7.0, 40))


def _case(rates: tuple[float, ...], *, every: int, subscribers: int) -> Bottleneck:
    """One topic in ``every`` is periodic, the others are Poisson."""
    topics = [
        PublishedTopic(
            name=f"t{v}", rate=rate, wire_bytes=(80, 120, 160)[v % 3], periodic=v % every == 0
        )
        for v, rate in enumerate(rates)
    ]
    wanted = spread_subscriptions(
        topics, subscribers=subscribers, classes=CLASSES, drop_per_class=0.1
    )
    return Bottleneck(topics=topics, wanted=wanted)


CASES = {
    "equal rates": _case(EQUAL, every=1, subscribers=10),
    "different rates": _case(DIFFERENT, every=1, subscribers=10),
    "half Poisson": _case(DIFFERENT, every=2, subscribers=10),
    "many topics": _case(MANY, every=1, subscribers=4),
    "many topics, half Poisson": _case(MANY, every=2, subscribers=4),
}
COMPARISONS = len(CASES) * len(LOADS) * CLASSES


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", CASES)
def test_class_means_are_within_15_percent(name: str, load: float) -> None:
    case = CASES[name].at_load(load)
    predicted = class_means(predict(case.scenario()))
    simulated = _simulated(name, load)
    error = simulated.error_of(predicted)
    print(
        f"{name} at {load}: {simulated.replications} replications; error {np.round(error, 3)}, "
        f"worst {np.abs(error).max():.1%}"
    )
    assert (simulated.excess_of(predicted) <= MAY_DIFFER).all(), error


def test_taking_clockwork_for_poisson_misses_by_far_more() -> None:
    case = CASES["equal rates"].at_load(0.9)
    as_if_poisson = replace(case, topics=[replace(t, periodic=False) for t in case.topics])
    simulated = _simulated("equal rates", 0.9)
    error = simulated.error_of(class_means(predict(as_if_poisson.scenario())))
    print(f"uncorrected, equal rates at 0.9: error {np.round(error, 3)}")
    # The low classes feel the whole load: it is there that clockwork and chance differ.
    assert error[-1] > 1.0
    assert error.max() > 5 * MAY_DIFFER


@cache
def _simulated(name: str, load: float) -> Estimate:
    case = CASES[name].at_load(load)

    def one(replication: int) -> np.ndarray:
        generator = generator_for(f"periodic {name} at {load}", replication)
        seen = simulate(case, publications=PUBLICATIONS, generator=generator)
        return mean_by(class_of(case, seen), seen.delay, CLASSES)

    return estimate(
        lambda numbers: np.array([one(number) for number in numbers]),
        comparisons=COMPARISONS,
        relative_half_width=HALF_WIDTH,
        pilot=PILOT,
        most=MOST,
    )

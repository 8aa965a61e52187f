"""Bursts and guaranteed rates of HTB links, checked against the reference simulation.

The model of a shaped link is an approximation. Its error bounds on links like those of the
prototype (10 subscribers to 7 topics at 10 events/s, packets of 100 bytes, 45 to 80 KB/s) are:

- Burst only: the mean of every class within 5 %.
- With guaranteed rates: every class except the highest within 6 %; the highest within 25 % or 1 ms,
  whichever is larger. Its wait is short, so a single packet of a lower class matters.
"""

import numpy as np
import pytest

from firedex_models import predict
from tests.models.bottleneck_cases import (
    Bottleneck,
    PublishedTopic,
    class_means,
    spread_subscriptions,
)
from tests.models.joint_confidence import estimate
from tests.models.reference_simulation import group_means, packet_classes, simulate
from tests.models.replication_seeds import generator_for

pytestmark = pytest.mark.slow

CLASSES = 7
GUARANTEE = 1500.0
SHORT_LINKS = [
    (speed, burst, guaranteed)
    for speed in (45, 80)
    for burst, guaranteed in ((1000.0, 0.0), (0.0, GUARANTEE), (1000.0, GUARANTEE))
]
LONG_LINKS = [
    (speed, burst, guaranteed)
    for speed in (45, 60, 80)
    for burst in (0.0, 1000.0, 3000.0)
    for guaranteed in (0.0, GUARANTEE)
    if burst or guaranteed
]
SHORT_HALF_WIDTH, LONG_HALF_WIDTH = 0.05, 0.03
PUBLICATIONS = 100_000
PILOT, MAX_REPLICATIONS = 30, 3000


def _prototype(kilobytes_per_second: int, burst: float, guaranteed: float) -> Bottleneck:
    """Return a link with a load of 0.9; drop rates increase linearly with the class."""
    topics = [PublishedTopic(name=f"t{v}", rate=10.0) for v in range(7)]
    offered = 70 * 10 * 100.0
    speed = kilobytes_per_second * 1024.0
    mean_drop_rate = max(1.0 - 0.9 * speed / offered, 0.0)
    drop_per_class = mean_drop_rate / ((CLASSES - 1) / 2)
    subscriptions = spread_subscriptions(
        topics, subscribers=10, classes=CLASSES, drop_per_class=drop_per_class
    )
    return Bottleneck(
        topics=topics,
        subscriptions=subscriptions,
        bytes_per_second=speed,
        burst_bytes=burst,
        guaranteed_bytes_per_second=guaranteed,
    )


@pytest.mark.parametrize(("speed", "burst", "guaranteed"), SHORT_LINKS)
def test_class_means_agree_with_simulation(speed: int, burst: float, guaranteed: float) -> None:
    _check(speed, burst, guaranteed, links=len(SHORT_LINKS), half_width=SHORT_HALF_WIDTH)


@pytest.mark.long
@pytest.mark.parametrize(("speed", "burst", "guaranteed"), LONG_LINKS)
def test_class_means_agree_with_simulation_on_more_links(
    speed: int, burst: float, guaranteed: float
) -> None:
    _check(speed, burst, guaranteed, links=len(LONG_LINKS), half_width=LONG_HALF_WIDTH)


def _check(speed: int, burst: float, guaranteed: float, *, links: int, half_width: float) -> None:
    case = _prototype(speed, burst, guaranteed)
    predicted = class_means(predict(case.scenario()))

    def replicate(replication: int) -> np.ndarray:
        generator = generator_for(f"shaped {speed} {burst} {guaranteed}", replication)
        deliveries = simulate(case, publications=PUBLICATIONS, generator=generator)
        return group_means(packet_classes(case, deliveries), deliveries.delay, CLASSES)

    simulated = estimate(
        lambda numbers: np.array([replicate(number) for number in numbers]),
        comparisons=links * CLASSES,
        relative_half_width=half_width,
        pilot=PILOT,
        max_replications=MAX_REPLICATIONS,
    )
    tolerance = np.full(CLASSES, 0.06 if guaranteed else 0.05)
    if guaranteed:
        tolerance[0] = max(0.25, 0.001 / simulated.mean[0])
    print(
        f"{speed} KB/s, burst {burst:.0f}, guarantee {guaranteed:.0f}: "
        f"error {np.round(simulated.relative_error(predicted), 3)}, "
        f"ms {np.round(simulated.mean * 1e3, 2)}"
    )
    assert (simulated.error_beyond_interval(predicted) <= tolerance).all(), (
        simulated.relative_error(predicted)
    )

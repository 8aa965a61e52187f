"""Bursts and guaranteed rates, as HTB has them, against the event-by-event simulation.

The model of a shaped link is an approximation; these are the bounds it keeps on links like those of
the prototype: 10 subscribers to 7 topics at 10 events/s, packets of 100 bytes, 45 to 80 KB/s.

- Burst alone: every class mean within 5 %.
- With guaranteed rates: every class but the highest within 6 %; the highest within 25 % or 1 ms,
  whichever is more. It waits little, so that a packet lent to a lower leaf matters to it.
"""

import numpy as np
import pytest
from bottleneck_cases import Bottleneck, PublishedTopic, class_means, spread_subscriptions
from joint_confidence import estimate
from reference_simulation import class_of, mean_by, simulate
from replication_seeds import generator_for

from firedex_models import predict

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
PILOT, MOST = 30, 3000


def _prototype(kilobytes_per_second: int, burst: float, guaranteed: float) -> Bottleneck:
    """Drop rates that rise with the class bring each link to a load of 0.9."""
    topics = [PublishedTopic(name=f"t{v}", rate=10.0) for v in range(7)]
    offered = 70 * 10 * 100.0
    speed = kilobytes_per_second * 1024.0
    to_drop = max(1.0 - 0.9 * speed / offered, 0.0)
    drop_per_class = to_drop / ((CLASSES - 1) / 2)
    wanted = spread_subscriptions(
        topics, subscribers=10, classes=CLASSES, drop_per_class=drop_per_class
    )
    return Bottleneck(
        topics=topics,
        wanted=wanted,
        bytes_per_second=speed,
        burst_bytes=burst,
        guaranteed_bytes_per_second=guaranteed,
    )


@pytest.mark.parametrize(("speed", "burst", "guaranteed"), SHORT_LINKS)
def test_class_means_keep_the_stated_bounds(speed: int, burst: float, guaranteed: float) -> None:
    _check(speed, burst, guaranteed, links=len(SHORT_LINKS), half_width=SHORT_HALF_WIDTH)


@pytest.mark.long
@pytest.mark.parametrize(("speed", "burst", "guaranteed"), LONG_LINKS)
def test_they_do_on_more_links_and_more_closely(
    speed: int, burst: float, guaranteed: float
) -> None:
    _check(speed, burst, guaranteed, links=len(LONG_LINKS), half_width=LONG_HALF_WIDTH)


def _check(speed: int, burst: float, guaranteed: float, *, links: int, half_width: float) -> None:
    case = _prototype(speed, burst, guaranteed)
    predicted = class_means(predict(case.scenario()))

    def one(replication: int) -> np.ndarray:
        generator = generator_for(f"shaped {speed} {burst} {guaranteed}", replication)
        seen = simulate(case, publications=PUBLICATIONS, generator=generator)
        return mean_by(class_of(case, seen), seen.delay, CLASSES)

    simulated = estimate(
        lambda numbers: np.array([one(number) for number in numbers]),
        comparisons=links * CLASSES,
        relative_half_width=half_width,
        pilot=PILOT,
        most=MOST,
    )
    allowed = np.full(CLASSES, 0.06 if guaranteed else 0.05)
    if guaranteed:
        allowed[0] = max(0.25, 0.001 / simulated.mean[0])
    print(
        f"{speed} KB/s, burst {burst:.0f}, guarantee {guaranteed:.0f}: "
        f"error {np.round(simulated.error_of(predicted), 3)}, "
        f"ms {np.round(simulated.mean * 1e3, 2)}"
    )
    assert (simulated.excess_of(predicted) <= allowed).all(), simulated.error_of(predicted)

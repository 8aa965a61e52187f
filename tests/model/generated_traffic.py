"""Traffic of one queue as hypothesis makes it, and what the model says of it."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from firedex_models.link_queues import LinkQueues, StageDelays, stage_delays
from firedex_models.periodic_arrivals import Sources
from firedex_models.queue_traffic import QueueTraffic

CLASSES = 4
NOBODY_PERIODIC = Sources(
    topic=np.array([], dtype=np.int64),
    rate=np.array([]),
    kept=np.array([]),
    periodic=np.array([], dtype=bool),
)


@st.composite
def traffic(
    draw: st.DrawFn,
    *,
    most_members: int = 4,
    least_load: float = 0.05,
    most_load: float = 0.95,
    classes: int = CLASSES,
    sizes: tuple[float, float] = (0.2, 3.0),
    random_sizes: bool = True,
) -> QueueTraffic:
    """Up to four publications, each with a few members in any classes, scaled to a drawn load."""
    members = draw(st.lists(st.integers(1, most_members), min_size=1, max_size=4))
    publication = np.repeat(np.arange(len(members)), members)
    count = len(publication)

    def of_publications(values: st.SearchStrategy[float]) -> NDArray[np.float64]:
        drawn = draw(st.lists(values, min_size=len(members), max_size=len(members)))
        return np.array(drawn, dtype=float)[publication]

    def of_members(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    rate = of_publications(st.floats(0.5, 20.0))
    survival = np.array(of_members(st.floats(0.05, 1.0)))
    service = of_publications(st.floats(*sizes))
    load = draw(st.floats(least_load, most_load))
    service *= load / (rate * survival * service).sum()
    variability = of_publications(st.sampled_from([0.0, 1.0] if random_sizes else [0.0]))
    return QueueTraffic(
        queues=1,
        classes=classes,
        queue=np.zeros(count, dtype=np.int64),
        priority=np.array(of_members(st.integers(0, classes - 1)), dtype=np.int64),
        publication=publication,
        topic=publication,
        rate=rate,
        survival=survival,
        service_seconds=service,
        size_variability=variability,
    )


def independent(given: QueueTraffic) -> QueueTraffic:
    """The same streams, none of which arrives together with another."""
    return replace(given, publication=np.arange(len(given.rate)))


def delays(given: QueueTraffic, *, burst_seconds: float = 0.0) -> StageDelays:
    link = replace(LinkQueues.plain(1), burst_seconds=np.array([burst_seconds]))
    return stage_delays(given, link, NOBODY_PERIODIC)


def waits(given: QueueTraffic, *, burst_seconds: float = 0.0) -> NDArray[np.float64]:
    """Mean wait before the own transmission, of which a shaper takes its burst."""
    own = np.maximum(given.service_seconds - burst_seconds, 0.0)
    return delays(given, burst_seconds=burst_seconds).mean - own

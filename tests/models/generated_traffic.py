"""Hypothesis strategies for the traffic of one queue, and the delays that the model predicts."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from firedex_models.link_queues import LinkQueues, StageDelays, stage_delays
from firedex_models.periodic_arrivals import Sources
from firedex_models.queue_traffic import QueueTraffic

CLASSES = 4
NO_PERIODIC_SOURCES = Sources(
    topic=np.array([], dtype=np.int64),
    rate=np.array([]),
    arriving_fraction=np.array([]),
    periodic=np.array([], dtype=bool),
)


@st.composite
def traffic(
    draw: st.DrawFn,
    *,
    max_packets: int = 4,
    min_load: float = 0.05,
    max_load: float = 0.95,
    classes: int = CLASSES,
    sizes: tuple[float, float] = (0.2, 3.0),
    random_sizes: bool = True,
) -> QueueTraffic:
    """Draw up to four publications with a few packets each, in any classes, at a random load."""
    packets = draw(st.lists(st.integers(1, max_packets), min_size=1, max_size=4))
    publication = np.repeat(np.arange(len(packets)), packets)
    count = len(publication)

    def draw_per_publication(values: st.SearchStrategy[float]) -> NDArray[np.float64]:
        drawn = draw(st.lists(values, min_size=len(packets), max_size=len(packets)))
        return np.array(drawn, dtype=float)[publication]

    def draw_per_packet(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    rate = draw_per_publication(st.floats(0.5, 20.0))
    survival = np.array(draw_per_packet(st.floats(0.05, 1.0)))
    service = draw_per_publication(st.floats(*sizes))
    load = draw(st.floats(min_load, max_load))
    service *= load / (rate * survival * service).sum()
    variability = draw_per_publication(st.sampled_from([0.0, 1.0] if random_sizes else [0.0]))
    return QueueTraffic(
        queues=1,
        classes=classes,
        queue=np.zeros(count, dtype=np.int64),
        priority=np.array(draw_per_packet(st.integers(0, classes - 1)), dtype=np.int64),
        publication=publication,
        topic=publication,
        rate=rate,
        survival=survival,
        service_seconds=service,
        size_variability=variability,
    )


def make_independent(streams: QueueTraffic) -> QueueTraffic:
    """Return the same streams without common publications: all arrivals are independent."""
    return replace(streams, publication=np.arange(len(streams.rate)))


def delays(streams: QueueTraffic, *, burst_seconds: float = 0.0) -> StageDelays:
    link = replace(LinkQueues.without_limits(1), burst_seconds=np.array([burst_seconds]))
    return stage_delays(streams, link, NO_PERIODIC_SOURCES)


def waits(streams: QueueTraffic, *, burst_seconds: float = 0.0) -> NDArray[np.float64]:
    """Return the mean wait before transmission; a burst shortens the transmission time."""
    own = np.maximum(streams.service_seconds - burst_seconds, 0.0)
    return delays(streams, burst_seconds=burst_seconds).mean - own

"""What is published when: Poisson or periodic, every event with a size of its own."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Scenario
from firedex_models.network_hops import Route, uplinks
from firedex_models.simulation.batch import Batch
from firedex_models.simulation.weighted_choice import WeightedChoice

__all__ = ["Clock", "Sources", "sources_of"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """One row for each pair of publisher and topic, then for what other brokers forward.

    ``publisher``: its position in the scenario; −1 for another broker, which has no uplink.
    """

    publisher: Integers
    topic: Integers
    rate: Floats
    periodic: Booleans
    wire_bytes: Floats
    exponential: Booleans
    route: Route


def sources_of(scenario: Scenario, wire_bytes: Floats) -> Sources:
    """The sources of a scenario; ``wire_bytes``: mean size on each publisher's uplink."""
    route, published = uplinks(scenario)
    position = {topic.name: row for row, topic in enumerate(scenario.topics)}
    who = {publisher.id: row for row, publisher in enumerate(scenario.publishers)}
    forwarded = scenario.network.broker.forwarded
    topic = [position[p.topic] for _, p in published] + [position[f.topic] for f in forwarded]
    exponential = np.array([t.size_distribution == "exponential" for t in scenario.topics], bool)
    return Sources(
        publisher=np.array([who[p.id] for p, _ in published] + [-1] * len(forwarded), np.int64),
        topic=np.array(topic, dtype=np.int64),
        rate=np.array(
            [p.rate_per_second for _, p in published] + [f.rate_per_second for f in forwarded],
            dtype=float,
        ),
        periodic=np.array(
            [p.arrivals == "periodic" for _, p in published] + [False] * len(forwarded), dtype=bool
        ),
        wire_bytes=np.append(wire_bytes, np.zeros(len(forwarded))),
        exponential=exponential[np.array(topic, dtype=np.int64)],
        route=route,
    )


class Clock:
    """Draws publications slice by slice: Poisson sources forget, periodic ones keep their beat."""

    def __init__(self, sources: Sources, generator: np.random.Generator) -> None:
        self._sources, self._generator = sources, generator
        self._published = 0
        self._poisson = np.flatnonzero(~sources.periodic & (sources.rate > 0))
        self._choice = WeightedChoice(sources.rate[self._poisson])
        self._periodic = np.flatnonzero(sources.periodic & (sources.rate > 0))
        # a phase of its own for each: nobody winds publishers' clocks
        self._next = generator.random(len(self._periodic)) / sources.rate[self._periodic]

    def publish(self, start: float, end: float) -> Batch:
        """Everything that is published between two moments, in order."""
        times, keys = [], []
        if self._choice.total > 0:
            count = int(self._generator.poisson(self._choice.total * (end - start)))
            # gaps over their sum: uniform moments, already in order
            gaps = np.cumsum(self._generator.exponential(size=count + 1))
            times.append(start + (end - start) * (gaps[:-1] / gaps[-1]))
            keys.append(self._poisson[self._choice.positions(self._generator.random(count))])
        for row, source in enumerate(self._periodic.tolist()):
            period = 1.0 / self._sources.rate[source]
            moments = np.arange(self._next[row], end, period)
            self._next[row] += len(moments) * period
            times.append(moments)
            keys.append(np.full(len(moments), source))
        if not times:
            return Batch.empty()
        time, key = np.concatenate(times), np.concatenate(keys).astype(np.int32)
        if len(times) > 1:
            order = np.argsort(time, kind="stable")
            time, key = time[order], key[order]
        number = self._published + np.arange(len(time))
        self._published += len(time)
        nothing_yet = np.zeros(len(time), np.int8)
        return Batch(number, key, key, time, self._factors(key), time, nothing_yet)

    def _factors(self, key: NDArray[np.int32]) -> Floats:
        """The size of each publication over the mean."""
        exponential = self._sources.exponential
        if exponential.all():
            return self._generator.exponential(size=len(key))
        factor = np.ones(len(key))
        random = np.flatnonzero(exponential[key])
        factor[random] = self._generator.exponential(size=len(random))
        return factor

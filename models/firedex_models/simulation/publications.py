"""Generation of publications: Poisson or periodic times, fixed or exponential sizes."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from firedex.wire import Scenario
from firedex_models.columns import Booleans, Floats, Integers
from firedex_models.routes import Route, uplinks
from firedex_models.simulation.batch import Batch

__all__ = ["PublicationGenerator", "Sources", "WeightedChoice", "compile_sources"]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """One row for each pair of publisher and topic, then one for each forwarded topic.

    ``publisher``: its position in the scenario; −1 for another broker, which has no uplink.
    """

    publisher: Integers
    topic: Integers
    rate: Floats
    periodic: Booleans
    wire_bytes: Floats
    exponential: Booleans
    route: Route


def compile_sources(scenario: Scenario, wire_bytes: Floats) -> Sources:
    """Return the sources of a scenario; ``wire_bytes``: mean size on each publisher's uplink."""
    route, published = uplinks(scenario)
    position = {topic.name: row for row, topic in enumerate(scenario.topics)}
    publisher_rows = {publisher.id: row for row, publisher in enumerate(scenario.publishers)}
    forwarded = scenario.network.broker.forwarded
    topic = [position[p.topic] for _, p in published] + [position[f.topic] for f in forwarded]
    exponential = np.array([t.size_distribution == "exponential" for t in scenario.topics], bool)
    return Sources(
        publisher=np.array(
            [publisher_rows[p.id] for p, _ in published] + [-1] * len(forwarded), np.int64
        ),
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


class PublicationGenerator:
    """Draws the publications of one time slice after another.

    Periodic sources continue with the same phase in the next slice.
    """

    def __init__(self, sources: Sources, generator: np.random.Generator) -> None:
        self._sources, self._generator = sources, generator
        self._published = 0
        self._poisson = np.flatnonzero(~sources.periodic & (sources.rate > 0))
        self._choice = WeightedChoice(sources.rate[self._poisson])
        self._periodic = np.flatnonzero(sources.periodic & (sources.rate > 0))
        # Publishers are not synchronised: each periodic source has a random phase.
        self._next = generator.random(len(self._periodic)) / sources.rate[self._periodic]

    def publish(self, start: float, end: float) -> Batch:
        """Return all publications between two times, in order."""
        times, keys = [], []
        if self._choice.total > 0:
            count = int(self._generator.poisson(self._choice.total * (end - start)))
            # Cumulative gaps divided by their total are sorted uniform times.
            gaps = np.cumsum(self._generator.exponential(size=count + 1))
            times.append(start + (end - start) * (gaps[:-1] / gaps[-1]))
            keys.append(self._poisson[self._choice.positions(self._generator.random(count))])
        for row, source in enumerate(self._periodic.tolist()):
            period = 1.0 / self._sources.rate[source]
            source_times = np.arange(self._next[row], end, period)
            self._next[row] += len(source_times) * period
            times.append(source_times)
            keys.append(np.full(len(source_times), source))
        if not times:
            return Batch.empty()
        time, key = np.concatenate(times), np.concatenate(keys).astype(np.int32)
        if len(times) > 1:
            order = np.argsort(time, kind="stable")
            time, key = time[order], key[order]
        number = self._published + np.arange(len(time))
        self._published += len(time)
        outcomes = np.zeros(len(time), np.int8)
        return Batch(number, key, key, time, self._factors(key), time, outcomes)

    def _factors(self, key: NDArray[np.int32]) -> Floats:
        """Return the size of each publication relative to the mean."""
        exponential = self._sources.exponential
        if exponential.all():
            return self._generator.exponential(size=len(key))
        factor = np.ones(len(key))
        random = np.flatnonzero(exponential[key])
        factor[random] = self._generator.exponential(size=len(random))
        return factor


MIN_CELLS = 512


class WeightedChoice:
    """Chooses positions with probabilities proportional to their weights (all positive)."""

    def __init__(self, weights: Floats) -> None:
        self._cumulative = np.cumsum(weights)
        self.total = float(self._cumulative[-1]) if len(weights) else 0.0
        # At least two cells per weight, so the search from the first position of a cell needs few
        # steps. The number is a power of two, so a number is assigned to its cell without rounding.
        cells = max(2 << len(weights).bit_length(), MIN_CELLS)
        cell_starts = np.arange(cells) / cells * self.total
        self._first_of_cell = np.searchsorted(self._cumulative, cell_starts)

    def positions(self, uniform: Floats) -> Integers:
        """Return one position for each number between 0 and 1."""
        chosen: Integers = _search_cells(uniform, self.total, self._cumulative, self._first_of_cell)
        return chosen


@njit(cache=True)
def _search_cells(uniform, total, cumulative, first_of_cell):  # type: ignore[no-untyped-def]
    chosen = np.empty(len(uniform), dtype=np.int64)
    cells, last = len(first_of_cell), len(cumulative) - 1
    for row in range(len(uniform)):
        position = first_of_cell[int(uniform[row] * cells)]
        while position < last and cumulative[position] < uniform[row] * total:
            position += 1
        chosen[row] = position
    return chosen

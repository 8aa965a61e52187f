"""Ports, lookups and meters on the way, each with its memory from one slice to the next."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from firedex_models.network_hops import Hop, Route
from firedex_models.simulation.batch import AT_BUFFER, AT_METER, DELIVERED, ON_LINK, Batch, Timeline
from firedex_models.simulation.endless_kernel import transmit_endless
from firedex_models.simulation.link_kernel import (
    ENDLESS,
    PER_CLASS,
    SHARED,
    WAITING,
    transmit_plain,
    transmit_shaped,
)
from firedex_models.simulation.server_kernels import serve

__all__ = ["Crossing", "Traveller"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Traveller:
    """What a crossing must know of a key (a source, or a stream).

    ``way``: its row of the route. ``rate``: how many there are of it, roughly. ``metered``: the
    fraction that the first managed switch drops.
    """

    def __init__(
        self,
        way: Integers,
        priority: Integers,
        wire_bytes: Floats,
        rate: Floats,
        metered: Floats | None = None,
    ) -> None:
        self.way, self.wire_bytes, self.metered = way, wire_bytes, metered
        self.rate = rate
        self.priority = priority.astype(np.int32)
        self.classes = int(priority.max(initial=0)) + 1


class Crossing:
    """A way through several hops, stage by stage."""

    def __init__(self, route: Route, traveller: Traveller, generator: np.random.Generator) -> None:
        self._stages = [
            _Stage(route, depth, traveller, generator) for depth in range(route.stage.shape[1])
        ]

    def feed(self, batch: Batch, until: float) -> Batch:
        """Send packets on; those that have arrived, or never will, come back."""
        for stage in self._stages:
            batch = stage.feed(batch, until)
        return batch

    @property
    def ports(self) -> list["_Port"]:
        """All ports on the way."""
        return [port for stage in self._stages for port in stage.ports.values()]


class _Stage:
    """All hops at one depth."""

    def __init__(
        self, route: Route, depth: int, traveller: Traveller, generator: np.random.Generator
    ) -> None:
        self._hop_of_key = route.stage[traveller.way, depth]
        self._all_cross = bool((self._hop_of_key >= 0).all())
        earlier = route.stage[traveller.way, :depth]
        managed = np.array([hop.switch.managed for hop in route.hops] + [False])
        self._generator, self._traveller = generator, traveller
        numbers = np.unique(self._hop_of_key[self._hop_of_key >= 0]).tolist()
        self.ports = {n: _Port(route.hops[n], traveller, generator) for n in numbers}
        self._timeline, self._looked_up = Timeline(), Timeline()
        self._lookup: dict[str, Floats] = {}
        # whoever has met a managed switch before has met its meter
        self._polices = managed[self._hop_of_key] & ~managed[earlier].any(axis=1)

    def feed(self, batch: Batch, until: float) -> Batch:
        here = batch.fate == DELIVERED
        if not self._all_cross:
            here &= self._hop_of_key[batch.key] >= 0
        passing = batch.take(~here)
        due = self._look_up(self._timeline.due(batch.take(here), until))
        due = self._looked_up.due(due, until)  # a lookup can last beyond the slice
        due, policed = self._police(due)
        return Batch.joined(passing, policed, *self._send(due, until))

    def _send(self, due: Batch, until: float) -> list[Batch]:
        if len(self.ports) == 1:
            return [port.feed(due, until) for port in self.ports.values()]
        hop = self._hop_of_key[due.key]
        return [port.feed(due.take(hop == n), until) for n, port in self.ports.items()]

    def _look_up(self, due: Batch) -> Batch:
        """The inbound queue of every managed switch (M/M/1), shared by its ports."""
        rated = [p for p in self.ports.values() if p.hop.switch.in_packets_per_second is not None]
        if not any(port.hop.switch.managed for port in rated):
            return due
        time = due.time.copy()
        hop = self._hop_of_key[due.key]
        for name in sorted({port.hop.switch.id for port in self.ports.values()}):
            numbers = [n for n, port in self.ports.items() if port.hop.switch.id == name]
            switch = self.ports[numbers[0]].hop.switch
            if not switch.managed or switch.in_packets_per_second is None:
                continue
            rows = np.flatnonzero(np.isin(hop, numbers))
            service = self._generator.exponential(1.0 / switch.in_packets_per_second, len(rows))
            free = self._lookup.setdefault(name, np.zeros(1))
            time[rows] = serve(time[rows], np.zeros(len(rows), np.int64), service, free)
        return replace(due, time=time)

    def _police(self, due: Batch) -> tuple[Batch, Batch]:
        if self._traveller.metered is None:
            return due, Batch.empty()
        chance = np.where(self._polices, self._traveller.metered, 0.0)[due.key]
        lost = self._generator.random(len(due)) < chance
        gone = due.take(lost)
        return due.take(~lost), replace(gone, fate=np.full(len(gone), AT_METER, np.int8))


class _Port:
    """One outbound queue."""

    def __init__(self, hop: Hop, traveller: Traveller, generator: np.random.Generator) -> None:
        self.hop = hop
        self.work = self.found = 0.0
        self.arrivals = 0
        self._traveller, self._generator = traveller, generator
        switch, buffer = hop.switch, hop.switch.buffer
        self._kind = ENDLESS
        if buffer is not None:
            self._kind = SHARED if buffer.kind == "shared-push-out" else PER_CLASS
        self._room = buffer.packets if buffer else 0
        self._classes = traveller.classes if switch.managed else 1
        speed = hop.bandwidth_bits_per_second
        self._seconds = traveller.wire_bytes * 8 / speed
        self._burst = switch.burst_bytes * 8 / speed
        # a shared buffer is no HTB
        self._guaranteed = (
            0.0 if self._kind == SHARED else switch.guaranteed_bits_per_second / speed
        )
        self._waiting = Batch.empty()
        self._free = 0.0
        # what an idle bucket holds beyond a packet of mean size
        total = float(traveller.rate.sum())
        mean = float((self._seconds * traveller.rate).sum() / total) if total > 0 else 0.0
        self._full = max(self._burst - mean, 0.0)
        self._state = np.array([0.0, self._full])
        self._owed = np.zeros(self._classes)

    def feed(self, due: Batch, until: float) -> Batch:
        """Send what is due; what waits at the end of the slice stays."""
        carried = len(self._waiting)
        packets = Batch.joined(self._waiting, due)
        if not len(packets):
            return packets
        service = self._seconds[packets.key] * packets.factor
        self.work += float(service[carried:].sum())
        self.arrivals += len(due)
        departure = self._departures(packets, service, carried, until)
        waits = departure == WAITING
        self._waiting = packets.take(waits)
        gone = packets.take(~waits)
        return self._arrived(gone, departure[~waits])

    def _departures(self, packets: Batch, service: Floats, carried: int, until: float) -> Floats:
        priority = (
            self._traveller.priority[packets.key]
            if self._classes > 1
            else np.zeros(len(packets), dtype=np.int32)
        )
        departure: Floats
        if self._burst > 0 or self._guaranteed > 0:
            departure, found = transmit_shaped(
                packets.time, priority, service, self._classes, self._kind, self._room, carried,
                until, self._state, self._owed, self._full, self._burst, self._guaranteed,
            )  # fmt: skip
        elif self._kind == ENDLESS:
            departure, self._free, found = transmit_endless(
                packets.time, priority, service, self._classes, carried, until, self._free
            )
        else:
            departure, self._free, found = transmit_plain(
                packets.time, priority, service, self._classes, self._kind, self._room, carried,
                until, self._free,
            )  # fmt: skip
        self.found += found
        return departure

    def _arrived(self, packets: Batch, departure: Floats) -> Batch:
        fate, time = packets.fate, departure + self.hop.switch.propagation_seconds
        overflowed = np.isnan(departure)
        if overflowed.any():
            time = np.where(overflowed, packets.time, time)
            fate = np.where(overflowed, np.int8(AT_BUFFER), fate)
        if self.hop.switch.error_rate > 0:
            fate = fate.copy()
            lost = self._generator.random(len(fate)) < self.hop.switch.error_rate
            fate[lost & ~overflowed] = ON_LINK
        return replace(packets, time=time, fate=fate)

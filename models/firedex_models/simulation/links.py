"""Switch ports, lookups and meters on a path; their state continues in the next time slice."""

from dataclasses import replace

import numpy as np

from firedex_models.columns import Floats, Integers
from firedex_models.routes import Hop, Route
from firedex_models.simulation.batch import (
    AT_BUFFER,
    AT_METER,
    DELIVERED,
    ON_LINK,
    Batch,
    PendingPackets,
)
from firedex_models.simulation.kernels import (
    INFINITE,
    PER_CLASS,
    SHARED,
    WAITING,
    serve,
    transmit_finite,
    transmit_infinite,
    transmit_shaped,
)

__all__ = ["NetworkPath", "StreamProperties"]


class StreamProperties:
    """The properties of each key (a source, or a stream).

    ``route_row``: its row of the route. ``rate``: its approximate packets per second. ``metered``:
    the fraction that the meter of the first managed switch drops.
    """

    def __init__(
        self,
        route_row: Integers,
        priority: Integers,
        wire_bytes: Floats,
        rate: Floats,
        metered: Floats | None = None,
    ) -> None:
        self.route_row, self.wire_bytes, self.metered = route_row, wire_bytes, metered
        self.rate = rate
        self.priority = priority.astype(np.int32)
        self.classes = int(priority.max(initial=0)) + 1


class NetworkPath:
    """A path through several hops, stage by stage."""

    def __init__(
        self, route: Route, streams: StreamProperties, generator: np.random.Generator
    ) -> None:
        self._stages = [
            _Stage(route, depth, streams, generator) for depth in range(route.stage.shape[1])
        ]

    def forward(self, batch: Batch, until: float) -> Batch:
        """Forward packets until a time; return the packets that arrived or were lost."""
        for stage in self._stages:
            batch = stage.forward(batch, until)
        return batch

    @property
    def ports(self) -> list["_Port"]:
        """All ports on the path."""
        return [port for stage in self._stages for port in stage.ports.values()]


class _Stage:
    """All hops at one depth."""

    def __init__(
        self, route: Route, depth: int, streams: StreamProperties, generator: np.random.Generator
    ) -> None:
        self._hop_of_key = route.stage[streams.route_row, depth]
        self._all_keys_cross = bool((self._hop_of_key >= 0).all())
        earlier = route.stage[streams.route_row, :depth]
        managed = np.array([hop.switch.managed for hop in route.hops] + [False])
        self._generator, self._streams = generator, streams
        numbers = np.unique(self._hop_of_key[self._hop_of_key >= 0]).tolist()
        self.ports = {n: _Port(route.hops[n], streams, generator) for n in numbers}
        self._timeline, self._looked_up = PendingPackets(), PendingPackets()
        self._lookup_free_at: dict[str, Floats] = {}
        # Only the first managed switch on a path applies the meter.
        self._has_meter = managed[self._hop_of_key] & ~managed[earlier].any(axis=1)

    def forward(self, batch: Batch, until: float) -> Batch:
        is_here = batch.outcome == DELIVERED
        if not self._all_keys_cross:
            is_here &= self._hop_of_key[batch.key] >= 0
        passing = batch.take(~is_here)
        due = self._look_up(self._timeline.take_due(batch.take(is_here), until))
        due = self._looked_up.take_due(due, until)  # a lookup may end after the slice
        due, dropped = self._apply_meters(due)
        return Batch.concatenate(passing, dropped, *self._send(due, until))

    def _send(self, due: Batch, until: float) -> list[Batch]:
        if len(self.ports) == 1:
            return [port.forward(due, until) for port in self.ports.values()]
        hop = self._hop_of_key[due.key]
        return [port.forward(due.take(hop == n), until) for n, port in self.ports.items()]

    def _look_up(self, due: Batch) -> Batch:
        """Apply the inbound queue of every managed switch (M/M/1), which all its ports share."""
        limited = [p for p in self.ports.values() if p.hop.switch.in_packets_per_second is not None]
        if not any(port.hop.switch.managed for port in limited):
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
            free_at = self._lookup_free_at.setdefault(name, np.zeros(1))
            time[rows] = serve(time[rows], np.zeros(len(rows), np.int64), service, free_at)
        return replace(due, time=time)

    def _apply_meters(self, due: Batch) -> tuple[Batch, Batch]:
        if self._streams.metered is None:
            return due, Batch.empty()
        probability = np.where(self._has_meter, self._streams.metered, 0.0)[due.key]
        lost = self._generator.random(len(due)) < probability
        lost_packets = due.take(lost)
        return due.take(~lost), replace(
            lost_packets, outcome=np.full(len(lost_packets), AT_METER, np.int8)
        )


class _Port:
    """One outbound queue."""

    def __init__(self, hop: Hop, streams: StreamProperties, generator: np.random.Generator) -> None:
        self.hop = hop
        self.work = self.waiting_at_arrivals = 0.0
        self.arrivals = 0
        self._streams, self._generator = streams, generator
        switch, buffer = hop.switch, hop.switch.buffer
        self._kind = INFINITE
        if buffer is not None:
            self._kind = SHARED if buffer.kind == "shared-push-out" else PER_CLASS
        self._buffer_packets = buffer.packets if buffer else 0
        self._classes = streams.classes if switch.managed else 1
        speed = hop.bandwidth_bits_per_second
        self._seconds = streams.wire_bytes * 8 / speed
        self._burst = switch.burst_bytes * 8 / speed
        # a shared buffer has no HTB classes
        self._guaranteed = (
            0.0 if self._kind == SHARED else switch.guaranteed_bits_per_second / speed
        )
        self._waiting = Batch.empty()
        self._free_at = 0.0
        # tokens of an idle bucket beyond a packet of mean size
        total = float(streams.rate.sum())
        mean = float((self._seconds * streams.rate).sum() / total) if total > 0 else 0.0
        self._max_tokens = max(self._burst - mean, 0.0)
        self._state = np.array([0.0, self._max_tokens])
        self._class_debt = np.zeros(self._classes)

    def forward(self, due: Batch, until: float) -> Batch:
        """Send packets; the ones that wait at the end of the slice stay in the queue."""
        carried = len(self._waiting)
        packets = Batch.concatenate(self._waiting, due)
        if not len(packets):
            return packets
        service = self._seconds[packets.key] * packets.factor
        self.work += float(service[carried:].sum())
        self.arrivals += len(due)
        departure = self._departures(packets, service, carried, until)
        is_waiting = departure == WAITING
        self._waiting = packets.take(is_waiting)
        decided = packets.take(~is_waiting)
        return self._finish(decided, departure[~is_waiting])

    def _departures(self, packets: Batch, service: Floats, carried: int, until: float) -> Floats:
        priority = (
            self._streams.priority[packets.key]
            if self._classes > 1
            else np.zeros(len(packets), dtype=np.int32)
        )
        departure: Floats
        if self._burst > 0 or self._guaranteed > 0:
            departure, waiting_found = transmit_shaped(
                packets.time, priority, service, self._classes, self._kind,
                self._buffer_packets, carried, until, self._state, self._class_debt,
                self._max_tokens, self._burst, self._guaranteed,
            )  # fmt: skip
        elif self._kind == INFINITE:
            departure, self._free_at, waiting_found = transmit_infinite(
                packets.time, priority, service, self._classes, carried, until, self._free_at
            )
        else:
            departure, self._free_at, waiting_found = transmit_finite(
                packets.time, priority, service, self._classes, self._kind,
                self._buffer_packets, carried, until, self._free_at,
            )  # fmt: skip
        self.waiting_at_arrivals += waiting_found
        return departure

    def _finish(self, packets: Batch, departure: Floats) -> Batch:
        outcome, time = packets.outcome, departure + self.hop.switch.propagation_seconds
        overflowed = np.isnan(departure)
        if overflowed.any():
            time = np.where(overflowed, packets.time, time)
            outcome = np.where(overflowed, np.int8(AT_BUFFER), outcome)
        if self.hop.switch.error_rate > 0:
            outcome = outcome.copy()
            lost = self._generator.random(len(outcome)) < self.hop.switch.error_rate
            outcome[lost & ~overflowed] = ON_LINK
        return replace(packets, time=time, outcome=outcome)

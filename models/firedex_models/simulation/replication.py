"""One run through the whole network: publishers, broker, gateway, switches, subscribers."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firedex_models.demand import event_wire_bytes
from firedex_models.errors import ModelError
from firedex_models.grouping import group_sums
from firedex_models.simulation.batch import AT_GATEWAY, DELIVERED, Batch, Timeline
from firedex_models.simulation.links import Crossing, Traveller
from firedex_models.simulation.publications import Clock, Sources, sources_of
from firedex_models.simulation.server_kernels import fan_out, serve
from firedex_models.simulation.tally import Tally, count
from firedex_models.site import Site

__all__ = ["Arrivals", "LostCount", "Workload", "replicate"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Arrivals = Literal["fan-out", "independent"]
WARM_UP, COOL_DOWN = 0.1, 0.02
"""Shares of the time that are not looked at: queues still fill, or are about to be left alone."""
PUBLICATIONS_OF_A_SLICE = 100_000
NOTIFICATIONS_OF_A_SLICE = 1_000_000


class LostCount(ModelError):
    """Notifications went in that did not come out, or the other way round: a bug."""


class Workload:
    """A site as the simulation needs it, compiled once for all replications."""

    def __init__(self, site: Site) -> None:
        self.site = site
        scenario = site.scenario
        self.sources: Sources = sources_of(
            scenario,
            np.array(
                [
                    event_wire_bytes(
                        scenario,
                        scenario.topics[self._topics[publication.topic]],
                        publisher.transport or scenario.transport,
                        0,
                    )
                    for publisher in scenario.publishers
                    for publication in publisher.publications
                ],
                dtype=float,
            ),
        )

    @cached_property
    def _topics(self) -> dict[str, int]:
        return {topic.name: row for row, topic in enumerate(self.site.scenario.topics)}

    @cached_property
    def streams_by_topic(self) -> tuple[Integers, Integers]:
        """Where the streams of each topic begin, and the streams in that order."""
        topic = self.site.streams.topic
        order = np.argsort(topic, kind="stable")
        topics = len(self.site.scenario.topics)
        return np.searchsorted(topic[order], np.arange(topics + 1)), order

    @cached_property
    def subscriptions_by_stream(self) -> tuple[Integers, Integers]:
        """Where the subscriptions of each stream begin, and the subscriptions in that order."""
        stream = self.site.member_stream
        order = np.argsort(stream, kind="stable")
        streams = len(self.site.streams.topic)
        start = np.searchsorted(stream[order], np.arange(streams + 1))
        return start, self.site.member_subscription[order]

    @cached_property
    def topic_rate(self) -> Floats:
        """Publications a second of each topic."""
        topics = len(self.site.scenario.topics)
        return group_sums(self.sources.topic, self.sources.rate, topics)

    @property
    def notifications_of_a_publication(self) -> float:
        """How many a publication makes, on average."""
        total = float(self.topic_rate.sum())
        return float(self.topic_rate[self.site.streams.topic].sum()) / total if total > 0 else 0.0

    def duration(self, publications: int) -> float:
        """How long it takes to publish so many, on average."""
        total = float(self.sources.rate.sum())
        return publications / total if total > 0 else 1.0


def replicate(
    workload: Workload,
    *,
    publications: int,
    arrivals: Arrivals,
    generator: np.random.Generator,
    keep: Callable[[Batch], None] | None = None,
) -> Tally:
    """Simulate once; ``keep`` is given every notification when its fate is known."""
    duration = workload.duration(publications)
    run = _Run(workload, arrivals, duration, generator)
    made = publications * max(1.0, workload.notifications_of_a_publication)
    slices = max(publications // PUBLICATIONS_OF_A_SLICE, int(made / NOTIFICATIONS_OF_A_SLICE), 1)
    for number in range(slices):
        start, end = duration * number / slices, duration * (number + 1) / slices
        done = run.advance(run.clock.publish(start, end), start, end)
        if keep is not None:
            keep(done)
    rest = run.advance(Batch.empty(), duration, np.inf)
    if keep is not None:
        keep(rest)
    return run.finish()


class _Run:
    """The stages of one replication, with what each remembers."""

    def __init__(
        self,
        workload: Workload,
        arrivals: Arrivals,
        duration: float,
        generator: np.random.Generator,
    ) -> None:
        site, sources = workload.site, workload.sources
        self._workload, self._generator, self._duration = workload, generator, duration
        self.clock = Clock(sources, generator)
        own = np.flatnonzero(sources.publisher >= 0)
        self._up = Crossing(
            sources.route,
            Traveller(
                way=np.arange(len(own)),
                priority=np.zeros(len(own), dtype=np.int64),
                wire_bytes=sources.wire_bytes[own],
                rate=sources.rate[own],
            ),
            generator,
        )
        self._broker = _Broker(workload, generator)
        self._independent = _Independent(workload, generator) if arrivals == "independent" else None
        flows, flow = site.flows, site.streams.flow
        metered = np.where(flows.at_meter, flows.drop_rate, 0.0)[flow]
        self._dropped = np.where(flows.at_meter, 0.0, flows.drop_rate)[flow]
        self._down = Crossing(
            site.downlinks,
            Traveller(
                way=flows.subscriber[flow],
                priority=flows.priority[flow],
                wire_bytes=site.streams.wire_bytes,
                rate=workload.topic_rate[site.streams.topic] * (1 - flows.drop_rate[flow]),
                metered=metered if metered.any() else None,
            ),
            generator,
        )
        self._tally = Tally.blank(len(flow), len(site.subscriptions))

    def advance(self, published: Batch, start: float, end: float) -> Batch:
        """Bring everything forward to ``end``; what is decided by then comes back."""
        self._tally.publications += len(published)
        uplinked = self._workload.sources.publisher[published.key] >= 0
        arriving = Batch.joined(
            self._up.feed(published.take(uplinked), end), published.take(~uplinked)
        )
        through = self._broker.take_in(arriving, end)
        if self._independent is None:
            made = self._fan_out(through)
        else:
            made = self._independent.instead_of(through, start, end)
        self._tally.notifications += len(made)
        made = self._gateway(self._broker.hand_out(made, end))
        done = self._down.feed(made, end)
        self._count(done)
        return done

    def _fan_out(self, through: Batch) -> Batch:
        first, streams = self._workload.streams_by_topic
        topic = self._workload.sources.topic[through.key]
        row, stream = fan_out(topic, first, streams, self._generator)
        return replace(through.take(row), key=stream)

    def _gateway(self, leaving: Batch) -> Batch:
        if not self._dropped.any():
            return leaving
        dropped = self._generator.random(len(leaving)) < self._dropped[leaving.key]
        fate = leaving.fate.copy()
        fate[dropped & (fate == DELIVERED)] = AT_GATEWAY
        return replace(leaving, fate=fate)

    def _count(self, done: Batch) -> None:
        arrived = done.fate == DELIVERED
        if (done.time[arrived] < done.published[arrived]).any():
            raise LostCount("a notification arrived before it was published")
        first, subscriptions = self._workload.subscriptions_by_stream
        tally = self._tally
        count(
            done.key,
            done.fate,
            done.time - done.published,
            (done.published >= WARM_UP * self._duration)
            & (done.published <= (1 - COOL_DOWN) * self._duration),
            first,
            subscriptions,
            self._workload.site.demand.deadline_seconds,
            tally.offered,
            tally.delivered,
            tally.delay,
            tally.histogram,
            tally.timely,
            tally.fates,
        )

    def finish(self) -> Tally:
        """The tally, once every notification is accounted for."""
        tally = self._tally
        if int(tally.fates.sum()) != tally.notifications:
            raise LostCount(f"{tally.notifications} notifications, {tally.fates.sum()} fates")
        for port in [*self._up.ports, *self._down.ports]:
            tally.hop_load[port.hop.name] = port.work / self._duration
            tally.hop_waiting[port.hop.name] = port.found / max(port.arrivals, 1)
        return tally


class _Broker:
    """One queue in, one for each subscriber out; both exponential, both in order (paper Eq. 6)."""

    def __init__(self, workload: Workload, generator: np.random.Generator) -> None:
        site = workload.site
        broker = site.scenario.network.broker
        self._in_rate, self._out_rate = broker.in_events_per_second, broker.out_events_per_second
        self._generator = generator
        self._arriving, self._leaving = Timeline(), Timeline()
        self._in_free = np.zeros(1)
        self._subscriber = site.flows.subscriber[site.streams.flow]
        self._out_free = np.zeros(len(site.scenario.subscribers))

    def take_in(self, arriving: Batch, until: float) -> Batch:
        """Publications, in the order in which the broker is done with them."""
        due = self._arriving.due(arriving, until)
        if self._in_rate is None:
            return due
        alive = np.flatnonzero(due.fate == DELIVERED)
        time = due.time.copy()
        service = self._generator.exponential(1.0 / self._in_rate, len(alive))
        time[alive] = serve(time[alive], np.zeros(len(alive), np.int64), service, self._in_free)
        return replace(due, time=time)

    def hand_out(self, made: Batch, until: float) -> Batch:
        """Notifications, when they have left for their subscribers."""
        if self._out_rate is None:
            return made
        due = self._leaving.due(made, until)
        alive = np.flatnonzero(due.fate == DELIVERED)
        time = due.time.copy()
        service = self._generator.exponential(1.0 / self._out_rate, len(alive))
        server = self._subscriber[due.key[alive]]
        time[alive] = serve(time[alive], server, service, self._out_free)
        return replace(due, time=time)


class _Independent:
    """Streams that know nothing of each other: each its own arrivals, at its topic's rate.

    The way to the broker is that of some publication of the topic in the same slice.
    """

    def __init__(self, workload: Workload, generator: np.random.Generator) -> None:
        sources, topics = workload.sources, workload.site.streams.topic
        self._generator, self._topics, self._source_topic = generator, topics, sources.topic
        rate = workload.topic_rate
        exponential = np.zeros(len(rate), dtype=bool)
        exponential[sources.topic[sources.exponential]] = True
        self._clock = Clock(
            Sources(
                publisher=np.full(len(topics), -1),
                topic=topics,
                rate=rate[topics],
                periodic=np.zeros(len(topics), dtype=bool),
                wire_bytes=np.zeros(len(topics)),
                exponential=exponential[topics],
                route=sources.route,
            ),
            generator,
        )

    def instead_of(self, through: Batch, start: float, end: float) -> Batch:
        """Notifications of this slice, for publications that would have made others."""
        if not np.isfinite(end) or not len(through):
            return Batch.empty()
        made = self._clock.publish(start, end)
        topic_of = self._source_topic[through.key]
        by_topic = np.argsort(topic_of, kind="stable")
        bounds = np.searchsorted(topic_of[by_topic], np.arange(int(topic_of.max()) + 2))
        topic = np.minimum(self._topics[made.key], len(bounds) - 2)
        there = np.diff(bounds)[topic]
        drawn = bounds[topic] + (self._generator.random(len(made)) * there).astype(np.int64)
        like = by_topic[np.minimum(drawn, len(by_topic) - 1)]
        upstream = np.where(there > 0, (through.time - through.published)[like], 0.0)
        return replace(
            made,
            publication=through.publication[like],
            source=through.source[like],
            time=made.time + upstream,
            fate=np.where(there > 0, through.fate[like], DELIVERED).astype(np.int8),
        )

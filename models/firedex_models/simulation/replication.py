"""One simulation of the whole network: publishers, broker, gateway, switches, subscribers."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np

from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.errors import ModelError
from firedex_models.simulation.batch import AT_GATEWAY, DELIVERED, Batch, PendingPackets
from firedex_models.simulation.kernels import fan_out, serve
from firedex_models.simulation.links import NetworkPath, StreamProperties
from firedex_models.simulation.publications import PublicationGenerator, Sources, compile_sources
from firedex_models.simulation.summary import Tally, count_packets
from firedex_models.site import Site, event_wire_bytes

__all__ = ["Arrivals", "CountMismatch", "Workload", "replicate"]

Arrivals = Literal["fan-out", "independent"]
WARM_UP, COOL_DOWN = 0.1, 0.02
"""Fractions of the simulated time at its start and end that are not evaluated."""
PUBLICATIONS_PER_SLICE = 100_000
NOTIFICATIONS_PER_SLICE = 1_000_000


class CountMismatch(ModelError):
    """The simulation lost or duplicated notifications; this is a bug in the simulation."""


class Workload:
    """A site in the form that the simulation needs, compiled once for all replications."""

    def __init__(self, site: Site) -> None:
        self.site = site
        scenario = site.scenario
        self.sources: Sources = compile_sources(
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
        """The first position of each topic in a list of streams, and this list."""
        topic = self.site.streams.topic
        order = np.argsort(topic, kind="stable")
        topics = len(self.site.scenario.topics)
        return np.searchsorted(topic[order], np.arange(topics + 1)), order

    @cached_property
    def subscriptions_by_stream(self) -> tuple[Integers, Integers]:
        """The first position of each stream in a list of subscriptions, and this list."""
        stream = self.site.member_stream
        order = np.argsort(stream, kind="stable")
        streams = len(self.site.streams.topic)
        start = np.searchsorted(stream[order], np.arange(streams + 1))
        return start, self.site.member_subscription[order]

    @cached_property
    def topic_rate(self) -> Floats:
        """Publications per second of each topic."""
        topics = len(self.site.scenario.topics)
        return group_sums(self.sources.topic, self.sources.rate, topics)

    @property
    def notifications_per_publication(self) -> float:
        """The mean number of notifications of a publication."""
        total = float(self.topic_rate.sum())
        return float(self.topic_rate[self.site.streams.topic].sum()) / total if total > 0 else 0.0

    def duration(self, publications: int) -> float:
        """Return the mean time in which that many publications occur."""
        total = float(self.sources.rate.sum())
        return publications / total if total > 0 else 1.0


def replicate(
    workload: Workload,
    *,
    publications: int,
    arrivals: Arrivals,
    generator: np.random.Generator,
    on_decided: Callable[[Batch], None] | None = None,
) -> Tally:
    """Simulate once; ``on_decided`` is called with notifications whose outcome is known."""
    duration = workload.duration(publications)
    run = _Run(workload, arrivals, duration, generator)
    expected_notifications = publications * max(1.0, workload.notifications_per_publication)
    slices = max(
        publications // PUBLICATIONS_PER_SLICE,
        int(expected_notifications / NOTIFICATIONS_PER_SLICE),
        1,
    )
    for number in range(slices):
        start, end = duration * number / slices, duration * (number + 1) / slices
        done = run.advance(run.publications.publish(start, end), start, end)
        if on_decided is not None:
            on_decided(done)
    rest = run.advance(Batch.empty(), duration, np.inf)
    if on_decided is not None:
        on_decided(rest)
    return run.finish()


class _Run:
    """The stages of one replication, with their state."""

    def __init__(
        self,
        workload: Workload,
        arrivals: Arrivals,
        duration: float,
        generator: np.random.Generator,
    ) -> None:
        site, sources = workload.site, workload.sources
        self._workload, self._generator, self._duration = workload, generator, duration
        self.publications = PublicationGenerator(sources, generator)
        own = np.flatnonzero(sources.publisher >= 0)
        self._up = NetworkPath(
            sources.route,
            StreamProperties(
                route_row=np.arange(len(own)),
                priority=np.zeros(len(own), dtype=np.int64),
                wire_bytes=sources.wire_bytes[own],
                rate=sources.rate[own],
            ),
            generator,
        )
        self._broker = _Broker(workload, generator)
        self._independent = (
            _IndependentArrivals(workload, generator) if arrivals == "independent" else None
        )
        flows, flow = site.flows, site.streams.flow
        metered = np.where(flows.at_meter, flows.drop_rate, 0.0)[flow]
        self._drop_rate = np.where(flows.at_meter, 0.0, flows.drop_rate)[flow]
        self._down = NetworkPath(
            site.downlinks,
            StreamProperties(
                route_row=flows.subscriber[flow],
                priority=flows.priority[flow],
                wire_bytes=site.streams.wire_bytes,
                rate=workload.topic_rate[site.streams.topic] * (1 - flows.drop_rate[flow]),
                metered=metered if metered.any() else None,
            ),
            generator,
        )
        self._tally = Tally.empty(len(flow), len(site.subscriptions))

    def advance(self, published: Batch, start: float, end: float) -> Batch:
        """Simulate until ``end``, and return the notifications whose outcome is known."""
        self._tally.publications += len(published)
        has_uplink = self._workload.sources.publisher[published.key] >= 0
        arriving = Batch.concatenate(
            self._up.forward(published.take(has_uplink), end), published.take(~has_uplink)
        )
        processed = self._broker.receive(arriving, end)
        if self._independent is None:
            notifications = self._fan_out(processed)
        else:
            notifications = self._independent.draw_instead_of(processed, start, end)
        self._tally.notifications += len(notifications)
        notifications = self._drop_at_gateway(self._broker.deliver(notifications, end))
        done = self._down.forward(notifications, end)
        self._count_decided(done)
        return done

    def _fan_out(self, processed: Batch) -> Batch:
        first, streams = self._workload.streams_by_topic
        topic = self._workload.sources.topic[processed.key]
        row, stream = fan_out(topic, first, streams, self._generator)
        return replace(processed.take(row), key=stream)

    def _drop_at_gateway(self, outbound: Batch) -> Batch:
        if not self._drop_rate.any():
            return outbound
        dropped = self._generator.random(len(outbound)) < self._drop_rate[outbound.key]
        outcome = outbound.outcome.copy()
        outcome[dropped & (outcome == DELIVERED)] = AT_GATEWAY
        return replace(outbound, outcome=outcome)

    def _count_decided(self, done: Batch) -> None:
        is_delivered = done.outcome == DELIVERED
        if (done.time[is_delivered] < done.published[is_delivered]).any():
            raise CountMismatch("a notification arrived before it was published")
        first, subscriptions = self._workload.subscriptions_by_stream
        tally = self._tally
        count_packets(
            done.key,
            done.outcome,
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
            tally.outcomes,
        )

    def finish(self) -> Tally:
        """Return the tally, after a check that every notification has an outcome."""
        tally = self._tally
        if int(tally.outcomes.sum()) != tally.notifications:
            raise CountMismatch(
                f"{tally.notifications} notifications have {tally.outcomes.sum()} outcomes"
            )
        for port in [*self._up.ports, *self._down.ports]:
            tally.hop_load[port.hop.name] = port.work / self._duration
            tally.hop_waiting[port.hop.name] = port.waiting_at_arrivals / max(port.arrivals, 1)
        return tally


class _Broker:
    """One inbound queue, and one outbound queue per subscriber: M/M/1 and FIFO (paper Eq. 6)."""

    def __init__(self, workload: Workload, generator: np.random.Generator) -> None:
        site = workload.site
        broker = site.scenario.network.broker
        self._in_rate, self._out_rate = broker.in_events_per_second, broker.out_events_per_second
        self._generator = generator
        self._arriving, self._outbound = PendingPackets(), PendingPackets()
        self._in_free = np.zeros(1)
        self._subscriber = site.flows.subscriber[site.streams.flow]
        self._out_free = np.zeros(len(site.scenario.subscribers))

    def receive(self, arriving: Batch, until: float) -> Batch:
        """Return the publications that the broker has received by ``until``, in order."""
        due = self._arriving.take_due(arriving, until)
        if self._in_rate is None:
            return due
        valid_rows = np.flatnonzero(due.outcome == DELIVERED)
        time = due.time.copy()
        service = self._generator.exponential(1.0 / self._in_rate, len(valid_rows))
        time[valid_rows] = serve(
            time[valid_rows], np.zeros(len(valid_rows), np.int64), service, self._in_free
        )
        return replace(due, time=time)

    def deliver(self, notifications: Batch, until: float) -> Batch:
        """Return the notifications with the times at which they leave the broker."""
        if self._out_rate is None:
            return notifications
        due = self._outbound.take_due(notifications, until)
        valid_rows = np.flatnonzero(due.outcome == DELIVERED)
        time = due.time.copy()
        service = self._generator.exponential(1.0 / self._out_rate, len(valid_rows))
        server = self._subscriber[due.key[valid_rows]]
        time[valid_rows] = serve(time[valid_rows], server, service, self._out_free)
        return replace(due, time=time)


class _IndependentArrivals:
    """Replaces publications by independent arrivals of each stream, at the rate of its topic.

    The delay up to the broker is that of a random publication of the topic in the same slice.
    """

    def __init__(self, workload: Workload, generator: np.random.Generator) -> None:
        sources, topics = workload.sources, workload.site.streams.topic
        self._generator, self._topics, self._source_topic = generator, topics, sources.topic
        rate = workload.topic_rate
        exponential = np.zeros(len(rate), dtype=bool)
        exponential[sources.topic[sources.exponential]] = True
        self._arrivals = PublicationGenerator(
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

    def draw_instead_of(self, processed: Batch, start: float, end: float) -> Batch:
        """Draw independent notifications of this slice, in place of those of the publications."""
        if not np.isfinite(end) or not len(processed):
            return Batch.empty()
        notifications = self._arrivals.publish(start, end)
        topic_of = self._source_topic[processed.key]
        by_topic = np.argsort(topic_of, kind="stable")
        bounds = np.searchsorted(topic_of[by_topic], np.arange(int(topic_of.max()) + 2))
        topic = np.minimum(self._topics[notifications.key], len(bounds) - 2)
        available = np.diff(bounds)[topic]
        selected = bounds[topic] + (self._generator.random(len(notifications)) * available).astype(
            np.int64
        )
        template = by_topic[np.minimum(selected, len(by_topic) - 1)]
        upstream = np.where(available > 0, (processed.time - processed.published)[template], 0.0)
        return replace(
            notifications,
            publication=processed.publication[template],
            source=processed.source[template],
            time=notifications.time + upstream,
            outcome=np.where(available > 0, processed.outcome[template], DELIVERED).astype(np.int8),
        )

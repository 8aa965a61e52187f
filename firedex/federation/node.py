"""The decisions of a federator: what to announce, where to send events, what to deliver.

No sockets and no files: the node is given its links, its broker and its journal, and its methods
are called when something happens. The same code runs in the federator and, with links in memory, in
fast tests. The parts are `membership`, `interest_exchange`, `event_sender`, `event_receiver`,
`retained_exchange` and `tracing`.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firedex.federation.broker_interface import (
    STATE_TOPIC,
    Broker,
    DropCause,
    is_local_topic,
)
from firedex.federation.event_receiver import EventReceiver
from firedex.federation.event_sender import EventSender, JournalLimits
from firedex.federation.events import Event, Publication, check_publishable, decode_event
from firedex.federation.frames import (
    EventId,
    FrameType,
    MalformedFrame,
    RoutedFrame,
    decode_message,
    decode_routed,
)
from firedex.federation.hybrid_clock import HybridClock
from firedex.federation.interest_exchange import InterestExchange
from firedex.federation.journal import Journal, Operation
from firedex.federation.membership import Membership, Neighbours
from firedex.federation.retained_exchange import RetainedExchange
from firedex.federation.routing import Counters, Router
from firedex.federation.tracing import Tracing

__all__ = ["FederationNode", "NodeLimits"]

log = logging.getLogger("firedex.federation")
MAX_REPORTED_DROPS = 100
"""Up to this number every dropped event is logged; then only when it is a power of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """Limits that keep the memory of a federator bounded."""

    journal_bytes: int = 64 * 1024 * 1024
    journal_events: int = 200_000
    journal_seconds: float = 24 * 3600.0
    filters_per_site: int = 20_000


class FederationNode:
    """The federator of one site, without its sockets."""

    def __init__(
        self,
        site: str,
        *,
        neighbours: Neighbours,
        broker: Broker,
        journal: Journal,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        limits: NodeLimits | None = None,
        may_send: Callable[[str, bytes], bool] = lambda _site, _topic: True,
        defer: Callable[[Callable[[], None]], None] = lambda action: action(),
    ) -> None:
        limits = limits or NodeLimits()
        self.site = site
        self.counters = Counters()
        self.on_site_change: Callable[[str, bool], None] = lambda _site, _is_up: None
        self._broker, self._journal, self._may_send = broker, journal, may_send
        state = journal.load()
        self.epoch = max(state.epoch + 1, int(wall() * 1000))
        self._number = 0
        self._clock = HybridClock(
            wall, max((stored.stamp for stored in state.retained.values()), default=0)
        )
        self._router = Router(site, neighbours, self.counters)
        self.membership = Membership(
            site,
            self.epoch,
            neighbours,
            changed=self._topology_changed,
            epoch_raised=self._epoch_raised,
            clock=monotonic,
            wall=wall,
            defer=defer,
        )
        self.interest = InterestExchange(
            self._router,
            self.membership,
            broker,
            journal,
            max_filters=limits.filters_per_site,
            clock=monotonic,
            filters_added=self._filters_added,
        )
        self.sender = EventSender(
            self._router,
            journal,
            JournalLimits(
                max_bytes=limits.journal_bytes,
                max_events=limits.journal_events,
                max_seconds=limits.journal_seconds,
            ),
            next_id=self._next_id,
            monotonic=monotonic,
            wall=wall,
        )
        self.sender.begin_epoch(self.epoch)
        self.retained = RetainedExchange(
            self._router,
            broker,
            journal,
            self.sender,
            clock=self._clock,
            wall=wall,
            next_id=self._next_id,
            may_send=may_send,
        )
        self.receiver = EventReceiver(self._router, broker, journal, self.retained, monotonic)
        self._tracing = Tracing(self._router, wall)
        self.interest.restore(state.interest)
        self.membership.expect(state.interest)
        self.membership.expect(site for event in state.events for site in event.destinations)
        self.sender.restore(state.events)
        self.receiver.restore(state.delivered, state.finished, state.outgoing)
        self.retained.restore(list(state.retained.values()))
        journal.submit([_epoch_operation(self.epoch)])

    def _next_id(self) -> EventId:
        self._number += 1
        return self.epoch, self._number

    def _epoch_raised(self, epoch: int) -> None:
        log.warning("other sites know a later epoch of this site; continuing with %d", epoch)
        self.epoch, self._number = epoch, 0
        self._journal.submit([_epoch_operation(epoch)])
        self.sender.begin_epoch(epoch)
        self.interest.epoch_changed()

    # -- links ---------------------------------------------------------------------------------

    def link_up(self, neighbour: str, cost: float = 1.0) -> None:
        """Handle a new link, or a new connection of a link: the old one may have lost frames."""
        was_up = neighbour in self.membership.links
        self.membership.link_up(neighbour, cost)
        if was_up:
            for site, hop in self._router.next_hops.items():
                if hop == neighbour:
                    self.sender.resend(site)

    def link_down(self, neighbour: str) -> None:
        """Handle the loss of a link."""
        self.membership.link_down(neighbour)

    def frame_received(self, neighbour: str, kind: int, body: bytes) -> None:
        """Handle a frame of a neighbour; raise MalformedFrame if it is not valid."""
        if kind == FrameType.EVENT:
            if not self._router.forward_event(body):
                self._receive_event(decode_routed(FrameType.EVENT, body))
        elif kind == FrameType.MESSAGE:
            self._receive_message(decode_routed(FrameType.MESSAGE, body))
        elif kind == FrameType.RECORD:
            self.membership.receive_record(neighbour, body)
        elif kind == FrameType.TRACE:
            self._tracing.receive(decode_routed(FrameType.TRACE, body))
        else:
            raise MalformedFrame(f"unexpected frame of type {kind}")

    def _receive_event(self, frame: RoutedFrame) -> None:
        own, onward = self._router.divide(frame)
        if onward is not None:
            self.counters.events_forwarded += 1
            self._router.send(onward, droppable=not frame.reliable)
        if own is not None:
            try:
                event = decode_event(frame.rest)
                check_publishable(event)
            except MalformedFrame as error:
                self._content_refused(str(error))
                return
            if not self._is_known(event):
                self._content_refused(f"an event of {event.origin} does not fit its record")
            elif frame.reliable:
                self.receiver.receive_reliably(event, own.previous)
            else:
                self.receiver.receive_once(event)

    def _is_known(self, event: Event) -> bool:
        """Return whether an event can be of its origin: the record arrives before the event.

        A retained value may be sent for a site that is not known here.
        """
        if is_local_topic(event.topic):
            return False
        if event.state and event.origin != self.site:
            return True
        record = self.membership.topology.records.get(event.origin)
        return event.origin != self.site and record is not None and event.id[0] <= record.epoch

    def _content_refused(self, reason: str) -> None:
        """Drop content of another site; the neighbour that has passed it on is not to blame."""
        self.counters.malformed += 1
        if self.counters.malformed & (self.counters.malformed - 1) == 0:  # 1, 2, 4, 8, ...
            log.warning("dropped (%d until now): %s", self.counters.malformed, reason)

    def _receive_message(self, frame: RoutedFrame) -> None:
        own, onward = self._router.divide(frame)
        if onward is not None:
            self._router.send(onward, droppable=False)
        if own is None:
            return
        try:
            source, content = decode_message(frame.rest)
            if not self._router.is_reachable(source):
                self.membership.apply_due_change()  # its record may have arrived just before
            if self._router.is_reachable(source):
                self._handle_message(source, content)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self._content_refused(f"a message is not valid: {error!r}")

    def _handle_message(self, source: str, content: dict[str, Any]) -> None:
        kind = content.get("kind")
        if kind == "interest":
            self.interest.receive_change(source, content)
        elif kind == "interest-request":
            self.interest.send_all([source])
        elif kind == "interest-all":
            self.interest.receive_all(source, content)
        elif kind == "ack":
            epoch, number = (int(part) for part in content["last"])
            if epoch > self.epoch:  # the site has received events that this journal has lost
                self.membership.raise_epoch(epoch)
            if epoch <= self.epoch:
                resend = bool(content.get("resend"))
                self.sender.receive_acknowledgement(source, (epoch, number), resend=resend)
        elif kind == "trace-result":
            self._tracing.receive_result(content)

    def _topology_changed(self) -> None:
        """Follow the topology: lost sites, new sites and new paths."""
        old, new = self._router.next_hops, dict(self.membership.topology.next_hops())
        self._router.set_next_hops(new)
        for site in old.keys() - new.keys():
            log.warning("site %s is not reachable", site)
            self._site_changed(site, is_up=False)
        for site in new.keys() - old.keys():
            log.info("site %s is reachable", site)
            self._site_changed(site, is_up=True)
            self.retained.send_to(site, list(self.interest.remote.filters.get(site, ())))
        for site, hop in new.items():
            if old.get(site) != hop:
                self.sender.resend(site)
        self.interest.compare_versions()

    def _filters_added(self, site: str, filters: list[str]) -> None:
        self.retained.send_to(site, filters)

    def _site_changed(self, site: str, *, is_up: bool) -> None:
        self.on_site_change(site, is_up)
        self._publish_state(site, is_up=is_up)

    def _publish_state(self, site: str, *, is_up: bool) -> None:
        """Publish at the local broker whether a site can be reached."""
        event = Event(
            origin=self.site,
            id=self._next_id(),
            stamp=0,
            topic=f"{STATE_TOPIC}sites/{site}".encode(),
            payload=b"up" if is_up else b"down",
            retain=True,
        )
        self._broker.publish(event, None)

    # -- broker --------------------------------------------------------------------------------

    def broker_connected(self) -> None:
        """Handle a new broker session: publish the state of all sites, ask for refused events."""
        for site in self.membership.topology.records:
            if site != self.site:
                self._publish_state(site, is_up=self._router.is_reachable(site))
        self.retained.broker_ready()
        self.receiver.broker_ready()

    def broker_ready(self) -> None:
        """Handle that the session accepts publications again."""
        self.retained.broker_ready()
        self.receiver.broker_ready()

    def publication_completed(self, origin: str, identity: EventId) -> None:
        """Handle the end of a QoS 2 publication that an earlier run began."""
        self.receiver.finish_restored(origin, identity)

    def publication_dropped(self, event: Event, cause: DropCause, detail: str) -> None:
        """Count and report an event that the broker does not accept."""
        counters = self.counters
        if cause is DropCause.TOO_LARGE:
            counters.too_large += 1
        else:
            counters.broker_refused += 1
        dropped = counters.too_large + counters.broker_refused
        if dropped <= MAX_REPORTED_DROPS or dropped & (dropped - 1) == 0:
            log.warning(
                "dropped event %d/%d of site %s on topic %s: %s (%d events dropped so far)",
                *event.id,
                event.origin,
                event.topic.decode(errors="replace"),
                detail,
                dropped,
            )

    def retained_found(self, publication: Publication, *, written_meanwhile: bool) -> None:
        """Handle a retained message that the broker has for a new filter."""
        self.retained.found_at_broker(
            publication, self.interest.remote, written_meanwhile=written_meanwhile
        )

    def publication_received(
        self,
        publication: Publication,
        committed: Callable[[], None] | None,
        operations: Sequence[Operation] = (),
    ) -> None:
        """Send an event of the local broker to the sites that want it.

        ``committed`` is called when the event is safe and may be acknowledged to the broker;
        ``operations`` are committed together with it.
        """
        topic = publication.topic
        if is_local_topic(topic):
            self._journal.submit(operations, committed)
            return
        self.counters.events_from_broker += 1
        lifetime = publication.expiry_seconds
        event = Event(
            origin=self.site,
            id=self._next_id(),
            stamp=self._clock.now(),
            topic=topic,
            payload=publication.payload,
            qos=publication.qos,
            retain=publication.retain,
            properties=publication.properties,
            lifetime_milliseconds=None if lifetime is None else lifetime * 1000,
        )
        todo = list(operations)
        if event.retain:
            todo += self.retained.store(event)
        once: list[str] = []
        reliably: dict[str, int] = {}
        for site, wanted_qos in self.interest.remote.destinations(topic):
            if self._may_send(site, topic):
                qos = min(wanted_qos, event.qos)
                if qos:
                    reliably[site] = qos
                else:
                    once.append(site)
        if once:
            self.sender.send_once(event.with_qos(0), once)
        if reliably:
            self.sender.send_reliably(event, reliably, todo, committed)
        elif todo or committed is not None:
            self._journal.submit(todo, committed)

    # -- interest, traces, time ----------------------------------------------------------------

    def set_local_interest(self, source: str, filters: Mapping[str, int]) -> None:
        """Replace the filters that one source (gateway, service, file) wants."""
        self.interest.set_local(source, filters)

    def trace(
        self, topic: str, identifier: str, handler: Callable[[dict[str, Any]], None]
    ) -> tuple[str, ...]:
        """Send a probe along the path of an event on a topic; return its destinations."""
        destinations = self.interest.remote.destinations(topic.encode())
        sites = tuple(site for site, _ in destinations if self._router.is_reachable(site))
        if sites:
            self._tracing.start(sites, identifier, handler)
        return sites

    def end_trace(self, identifier: str) -> None:
        """Stop waiting for the results of a trace."""
        self._tracing.end(identifier)

    def tick(self) -> None:
        """Do what is due by time; called a few times a second."""
        self.interest.tick()
        self.sender.tick()
        self.receiver.tick()
        self.retained.tick()
        for site in self.membership.forget_lost_sites():
            log.warning("site %s was not reachable for too long; it is forgotten", site)
            self.interest.forget(site)
            self.sender.forget(site)

    def reachable(self) -> dict[str, str]:
        """Return the next hop to each site that can be reached."""
        return dict(self._router.next_hops)


def _epoch_operation(epoch: int) -> Operation:
    return "INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (epoch,)

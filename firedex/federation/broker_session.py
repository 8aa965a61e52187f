"""The session of a federator with the broker of its site.

The session is persistent: the broker keeps QoS 1 and 2 events for the federator while it is away.
Packet identifiers of QoS 2 are in the journal, in both directions, so that a restart neither loses
nor repeats an event. A second, short session reads retained messages when a filter is new.
"""

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from firedex.federation.broker_interface import Completed, DropCause
from firedex.federation.broker_publications import BrokerPublications, PacketIds, too_large
from firedex.federation.echoes import EchoFilter
from firedex.federation.events import (
    Event,
    Publication,
    encode_event_as_publish,
    encode_publication,
    read_publication,
)
from firedex.federation.frames import EventId
from firedex.federation.interest import FilterTree, InterestChange
from firedex.federation.journal import Journal, JournalState, Operation
from firedex.federation.retained_reader import RetainedReader
from firedex.transport.back_off import BackOff
from firedex.transport.broker_link import KEEP_ALIVE_SECONDS, BrokerLevel, BrokerLink
from firedex.transport.mqtt import packets as mqtt
from firedex.transport.mqtt.encoding import PacketType
from firedex.transport.mqtt.version import MQTT_5

__all__ = ["BrokerSession", "BrokerSettings", "SessionListener"]

log = logging.getLogger("firedex.federation")

MAX_UNSENT_BYTES = 32 * 1024 * 1024
NO_LOCAL, RETAIN_AS_PUBLISHED, NO_RETAINED = 0x04, 0x08, 0x20
MAX_SUBSCRIPTION_IDENTIFIER = 268_435_455
MAX_PENDING_REQUESTS = 1000
MAX_CACHED_TOPICS = 50_000
SETTLING_SECONDS = 5.0
"""Events that the broker queued before it granted a filter do not carry its identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Where the broker is, and how the session is named."""

    address: tuple[str, int]
    client_id: str
    session_expiry_seconds: int = 24 * 3600


class SessionListener(Protocol):
    """The owner of a session."""

    def publication_received(
        self,
        publication: Publication,
        committed: Callable[[], None] | None,
        operations: Sequence[Operation] = (),
    ) -> None:
        """Handle an event of the broker; call ``committed`` when it may be acknowledged."""

    def retained_found(self, publication: Publication, *, written_meanwhile: bool) -> None:
        """Handle a retained message that the broker has for a new filter."""

    def publication_completed(self, origin: str, identity: EventId) -> None:
        """Handle the end of a QoS 2 publication that an earlier run began."""

    def publication_dropped(self, event: Event, cause: DropCause, detail: str) -> None:
        """Report an event that the broker does not accept."""

    def broker_connected(self) -> None:
        """Handle a new session."""

    def broker_ready(self) -> None:
        """Handle that the session accepts publications again."""


@dataclass(frozen=True, slots=True)
class _Granted:
    """A filter that the broker has granted."""

    identifier: int
    qos: int
    since: float


class BrokerSession:
    """Publishes events at the broker and receives those that other sites want."""

    def __init__(
        self,
        settings: BrokerSettings,
        journal: Journal,
        state: JournalState,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._journal, self._clock = settings, journal, clock
        self._level = BrokerLevel()
        self._link: BrokerLink | None = None
        self.is_connected = False
        self._back_off = BackOff(0.1, 2.0)
        self._reconnect: asyncio.TimerHandle | None = None
        self._wanted: dict[str, int] = {}
        self._subscribed: dict[str, int] = dict(state.subscriptions)
        self._granted: FilterTree[_Granted] = FilterTree()
        self._granted_identifiers: set[int] = set()
        self._chosen_filters: dict[bytes, int | None] = {}
        self._unread_filters: set[str] = set()
        self._requests: deque[tuple[str, int | None]] = deque()
        self._pending_subscriptions: dict[int, tuple[str, int | None]] = {}
        self._refused_filters: set[str] = set()
        self._packet_ids = PacketIds()
        self._received: set[int] = set(state.received_packets)
        self._stored_publications = state.outgoing
        self._publications = BrokerPublications(
            journal, self._packet_ids, published=self._note_echo, dropped=self._dropped
        )
        self._was_full = False
        self._closed = False
        self._echoes: EchoFilter | None = None
        self._reader: RetainedReader | None = None
        self.refusal: str | None = None
        for name, qos in self._subscribed.items():
            self._grant(name, qos)

    # -- life ----------------------------------------------------------------------------------

    def start(self, listener: SessionListener, subscriptions: Mapping[str, int]) -> None:
        """Connect; ``subscriptions`` are the filters known at the start."""
        self._listener = listener
        self._publications.restore(self._stored_publications, listener.publication_completed)
        self._wanted = dict(subscriptions)
        self._connect()

    def _connect(self) -> None:
        self._reconnect = None
        if not self._closed:
            self._link = BrokerLink(
                self._settings.address,
                self,
                self._level,
                self._clock,
                max_unsent_bytes=MAX_UNSENT_BYTES,
            )

    def tick(self) -> None:
        """Do what is due by time; called about once a second."""
        if self._link is not None:
            self._link.tick(self._clock())
        self._publications.tick()
        if self._reader is not None:
            self._reader.tick()
        if self._echoes is not None and self.is_connected and self._link is not None:
            sentinel = self._echoes.sentinel_due(self._clock())
            if sentinel is not None:
                self._link.send(encode_publication(sentinel, level=self._link.level))

    def close(self) -> None:
        """End the connection; the broker keeps the session."""
        self._closed = True
        if self._reconnect is not None:
            self._reconnect.cancel()
        if self._reader is not None:
            self._reader.close()
        if self._link is not None:
            self._link.close()

    # -- called by the node --------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the session is up and its queue has room."""
        ready = self.is_connected and not self._publications.is_full
        if not ready:
            self._was_full = True
        return ready

    def set_subscriptions(self, filters: Mapping[str, int], change: InterestChange) -> None:
        """Subscribe to exactly these filters."""
        self._wanted = dict(filters)
        if self.is_connected:
            self._unread_filters |= change.announce.keys() - self._subscribed.keys()
            for name, qos in change.announce.items():
                self._subscribe(name, qos)
            for name in change.withdraw:
                if name not in self._wanted:
                    self._unsubscribe(name)

    def publish(self, event: Event, done: Completed | None) -> bool:
        """Publish an event; ``done`` is called when the broker has acknowledged it."""
        if not self.is_connected or self._link is None:
            return False
        if event.qos == 0:
            if self._link.congested and not event.retain:
                return False
            packet = encode_event_as_publish(event, 0, self._link.level)
            is_accepted = len(packet) <= self._link.maximum_packet_bytes
            if is_accepted:
                self._link.send(packet)
                self._note_echo(event)
            else:
                detail = too_large(len(packet), self._link.maximum_packet_bytes)
                self._dropped(event, DropCause.TOO_LARGE, detail)
            if done is not None:
                done(is_accepted)
            return True
        if self._publications.is_full:
            self._was_full = True
            return False
        self._publications.add(event, done)
        return True

    def _dropped(self, event: Event, cause: DropCause, detail: str) -> None:
        self._listener.publication_dropped(event, cause, detail)

    def _publication_completed(self, number: int, code: int) -> None:
        self._publications.complete(number, code)
        if self._was_full and self.is_connected and not self._publications.is_full:
            self._was_full = False
            self._listener.broker_ready()

    def _note_echo(self, event: Event) -> None:
        if self._echoes is not None and self._chosen_filter(event.topic) is not None:
            self._echoes.published(event.topic, event.payload)

    # -- subscriptions -------------------------------------------------------------------------

    def _subscribe(self, name: str, qos: int) -> None:
        self._requests.append((name, qos))
        self._send_requests()

    def _unsubscribe(self, name: str) -> None:
        self._requests.append((name, None))
        self._send_requests()

    def _send_requests(self) -> None:
        """Send waiting SUBSCRIBE and UNSUBSCRIBE packets, a limited number at once."""
        while (
            self._requests
            and self._link is not None
            and len(self._pending_subscriptions) < MAX_PENDING_REQUESTS
        ):
            name, qos = self._requests.popleft()
            packet_id = self._packet_ids.take()
            self._pending_subscriptions[packet_id] = (name, qos)
            level = self._link.level
            if qos is None:
                packet = mqtt.encode_unsubscribe(packet_id, name.encode(), level=level)
            else:
                options = qos
                if level == MQTT_5:
                    options |= NO_LOCAL | RETAIN_AS_PUBLISHED | NO_RETAINED
                packet = mqtt.encode_subscribe(
                    packet_id, name.encode(), options, level=level, identifier=_identifier(name)
                )
            self._link.send(packet)

    def _request_answered(self, number: int, code: int) -> None:
        """Handle SUBACK or UNSUBACK: from now on the broker acts on the request."""
        name, qos = self._pending_subscriptions.pop(number, ("", None))
        self._packet_ids.release(number)
        if name and qos is None:
            self._withdraw(name)
        elif name and qos is not None and code >= 0x80:
            self._refused_filters.add(name)
            self._withdraw(name)
            log.warning("the broker refused the subscription to %s (0x%02x)", name, code)
        elif name and qos is not None:
            self._refused_filters.discard(name)
            self._grant(name, qos)
            self._subscribed[name] = qos
            self._journal.submit(
                [("INSERT OR REPLACE INTO subscriptions VALUES (?, ?)", (name, qos))]
            )
            if name in self._unread_filters and self._reader is not None:
                self._unread_filters.discard(name)
                self._reader.read(name, written_meanwhile=True)
        self._send_requests()

    def _grant(self, name: str, qos: int) -> None:
        known = self._granted.get(name)
        since = self._clock() if known is None else known.since
        self._granted.set(name, _Granted(_identifier(name), qos, since))
        self._granted_identifiers.add(_identifier(name))
        self._chosen_filters.clear()

    def _withdraw(self, name: str) -> None:
        self._granted.remove(name)
        self._granted_identifiers.discard(_identifier(name))
        self._chosen_filters.clear()
        if self._subscribed.pop(name, None) is not None:
            self._journal.submit([("DELETE FROM subscriptions WHERE filter = ?", (name,))])

    def _chosen_filter(self, topic: bytes) -> int | None:
        """Return the identifier of the filter whose copy of an event is passed on.

        It is the one with the highest QoS; of several, not one that was granted a moment ago.
        """
        if topic in self._chosen_filters:
            return self._chosen_filters[topic]
        recent = self._clock() - SETTLING_SECONDS
        matching = [entry for _, entry in self._granted.matching(topic.decode(errors="replace"))]
        chosen = min(
            ((-entry.qos, entry.since > recent, entry.identifier) for entry in matching),
            default=(0, False, None),
        )[2]
        if all(entry.since <= recent for entry in matching):  # time alone does not change it
            if len(self._chosen_filters) >= MAX_CACHED_TOPICS:
                self._chosen_filters.clear()
            self._chosen_filters[topic] = chosen
        return chosen

    def _is_extra_copy(self, publication: Publication) -> bool:
        """Return whether another copy of an event is passed on, that of another filter."""
        if not publication.subscriptions:
            return False
        if self._granted_identifiers.isdisjoint(publication.subscriptions):
            return False  # of a filter that was withdrawn meanwhile; perhaps there is no other copy
        chosen = self._chosen_filter(publication.topic)
        return chosen is not None and chosen not in publication.subscriptions

    # -- called by the link --------------------------------------------------------------------

    def connect_packet(self, level: int) -> bytes:
        """Return the CONNECT packet."""
        return mqtt.encode_connect(
            self._settings.client_id,
            level=level,
            clean_start=False,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            session_expiry_seconds=self._settings.session_expiry_seconds,
        )

    def broker_connected(self) -> None:
        """Resume or replace the session."""
        link = self._link
        if link is None:
            return
        self.is_connected, self.refusal = True, None
        self._back_off.reset()
        for number in self._pending_subscriptions:
            self._packet_ids.release(number)
        self._pending_subscriptions.clear()
        self._requests.clear()
        if link.level != MQTT_5 and self._echoes is None:
            self._echoes = EchoFilter(self._settings.client_id)
        if self._reader is None:
            self._reader = RetainedReader(
                self._settings, self._level, self._retained_found, self._clock
            )
        log.info(
            "connected to the broker (MQTT %s, session %s)",
            "5" if link.level == MQTT_5 else "3.1.1",
            "resumed" if link.session_present else "new",
        )
        if not link.session_present:
            self._received.clear()
            self._journal.submit([("DELETE FROM received_packets", ())])
        self._synchronise_subscriptions(link, self._reader)
        self._listener.broker_connected()
        self._publications.connected(
            link.send,
            level=link.level,
            receive_maximum=link.receive_maximum,
            maximum_packet_bytes=link.maximum_packet_bytes,
            session_present=link.session_present,
        )

    def _synchronise_subscriptions(self, link: BrokerLink, reader: RetainedReader) -> None:
        """Make the subscriptions of the session those that other sites want."""
        self._unread_filters.clear()
        if link.session_present:
            self._unread_filters |= self._wanted.keys() - self._subscribed.keys()
        else:
            for name in list(self._subscribed):
                self._withdraw(name)
        for name in set(self._subscribed) - set(self._wanted):
            self._unsubscribe(name)
        for name, qos in self._wanted.items():
            if name not in self._unread_filters:
                reader.read(name, written_meanwhile=link.session_present)
            # A request may have been lost with the connection, and a broker that crashed may have
            # restored the session without it, so all filters are subscribed again.
            self._subscribe(name, qos)
        if self._echoes is not None:
            number = self._packet_ids.take()
            self._pending_subscriptions[number] = ("", None)
            link.send(mqtt.encode_subscribe(number, self._echoes.topic, 0, level=link.level))

    def _retained_found(self, publication: Publication, written_meanwhile: bool) -> None:
        self._listener.retained_found(publication, written_meanwhile=written_meanwhile)

    def packet_received(self, packet: bytes) -> None:
        """Handle a packet of the broker."""
        kind = packet[0] >> 4
        link = self._link
        if link is None:
            return
        if kind == PacketType.PUBLISH:
            self._publish_received(read_publication(packet, level=link.level))
        elif kind in (PacketType.PUBACK, PacketType.PUBCOMP):
            number, code = mqtt.read_acknowledgement(packet)
            self._publication_completed(number, code)
        elif kind == PacketType.PUBREC:
            self._publications.receive_pubrec(*mqtt.read_acknowledgement(packet))
        elif kind == PacketType.PUBREL:
            self._on_pubrel(mqtt.read_acknowledgement(packet)[0])
        elif kind == PacketType.SUBACK:
            self._request_answered(*mqtt.read_suback(packet, level=link.level))
        elif kind == PacketType.UNSUBACK:
            self._request_answered(mqtt.read_acknowledgement(packet)[0], 0)
        elif kind == PacketType.DISCONNECT:
            log.warning("the broker ended the session")

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:
        """Reconnect after a wait."""
        was_connected, self.is_connected, self._link = self.is_connected, False, None
        self._publications.disconnected()
        self._was_full = True
        self.refusal = reason if refused else None
        if self._closed:
            return
        (log.warning if was_connected or refused else log.info)("broker: %s", reason)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._echoes is not None:
            self._echoes.disconnected()
        loop = asyncio.get_running_loop()
        self._reconnect = loop.call_later(self._back_off.next_seconds(), self._connect)

    # -- events of the broker ------------------------------------------------------------------

    def _publish_received(self, publication: Publication) -> None:
        link = self._link
        if link is None:
            return
        number = publication.packet_id
        if self._echoes is not None and self._echoes.is_echo(
            publication.topic, publication.payload
        ):
            self._settle(publication)
            return
        if link.level != MQTT_5 and publication.retain:
            # a stored message: MQTT 3.1.1 sends it with every SUBSCRIBE; the reader reads it
            self._settle(publication)
            return
        if self._is_extra_copy(publication):
            self._settle(publication)
            return
        if publication.qos == 0:
            self._listener.publication_received(publication, None)
        elif publication.qos == 1:
            self._listener.publication_received(
                publication, lambda: self._acknowledge(link, PacketType.PUBACK, number)
            )
        elif number in self._received:
            # not before what was received first is committed
            self._journal.submit([], lambda: self._acknowledge(link, PacketType.PUBREC, number))
        else:
            self._received.add(number)
            self._listener.publication_received(
                publication,
                lambda: self._acknowledge(link, PacketType.PUBREC, number),
                [("INSERT OR REPLACE INTO received_packets VALUES (?)", (number,))],
            )

    def _settle(self, publication: Publication) -> None:
        """Acknowledge an event that is not passed on."""
        link, number = self._link, publication.packet_id
        if publication.qos == 1:
            self._acknowledge(link, PacketType.PUBACK, number)
        elif publication.qos == 2:
            self._received.add(number)
            self._journal.submit(
                [("INSERT OR REPLACE INTO received_packets VALUES (?)", (number,))],
                lambda: self._acknowledge(link, PacketType.PUBREC, number),
            )

    def _acknowledge(self, link: BrokerLink | None, kind: PacketType, number: int) -> None:
        """Acknowledge on the connection that the packet came from; identifiers are reused."""
        if link is not None and self._link is link and self.is_connected:
            link.send(mqtt.encode_acknowledgement(kind, number))

    def _on_pubrel(self, number: int) -> None:
        link = self._link
        self._received.discard(number)
        self._journal.submit(
            [("DELETE FROM received_packets WHERE packet_id = ?", (number,))],
            lambda: self._acknowledge(link, PacketType.PUBCOMP, number),
        )


def _identifier(name: str) -> int:
    """Return the subscription identifier of a filter.

    It is the same in every run, because the broker keeps the session and the events in it.
    """
    made = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(made, "big") % MAX_SUBSCRIPTION_IDENTIFIER + 1

"""The subscriptions of a subscriber, and the delivery of events to them.

A stamped event reaches a subscription once, even if it arrives over several connections. An event
without a valid stamp cannot be recognised as a duplicate: while a filter moves, it may be delivered
twice. Exceptions of callbacks are logged and have no other effect.
"""

import logging
import time
import zlib
from collections.abc import Callable, Sequence

from firedex.transport.event_stamp import read_stamp, split_header
from firedex.wire import Statistics, Subscription
from firedex.wire.mqtt_names import matches
from firedex_clients.duplicates import ReceivedEvents
from firedex_clients.events import Event, OnEvent
from firedex_clients.flow import FilterRequest
from firedex_clients.flow_set import FlowSlot
from firedex_clients.flow_statistics import FlowStatistics

__all__ = ["ActiveSubscription", "OnDelivery", "Subscriptions"]

log = logging.getLogger("firedex.clients")
MAX_CACHED_TOPICS = 10_000
"""For how many topics of one connection the matching subscriptions are cached."""
MAX_SUBSCRIPTION_IDENTIFIER = 268_435_455
OnDelivery = Callable[[Event], None]


class ActiveSubscription:
    """One subscription, the events it has received, and its callback."""

    def __init__(self, subscription: Subscription, number: int, on_event: OnEvent) -> None:
        self.subscription, self.number, self.on_event = subscription, number, on_event
        self.filter = subscription.filter
        self.received = ReceivedEvents()
        self.duplicates = 0

    def request(self) -> FilterRequest:
        """Return the request to a connection."""
        return FilterRequest(
            filter=self.filter, number=self.number, qos=self.subscription.qos, retained=True
        )


class Subscriptions:
    """All subscriptions of a subscriber, by filter and by MQTT subscription identifier."""

    def __init__(self, subscriber: str, on_delivery: OnDelivery | None = None) -> None:
        self._by_filter: dict[str, ActiveSubscription] = {}
        self._by_number: dict[int, ActiveSubscription] = {}
        self._statistics = FlowStatistics(subscriber)
        self._revision = 0
        self._on_delivery = on_delivery

    def add(self, subscription: Subscription, on_event: OnEvent) -> ActiveSubscription:
        """Add or replace the subscription to a filter."""
        old = self._by_filter.get(subscription.filter)
        number = self._number(subscription.filter) if old is None else old.number
        added = ActiveSubscription(subscription, number, on_event)
        self._revision += 1
        self._by_filter = {**self._by_filter, subscription.filter: added}
        self._by_number = {**self._by_number, number: added}
        return added

    def _number(self, name: str) -> int:
        """Return a number that is the same in every run: brokers store it with sessions."""
        number = zlib.crc32(name.encode()) % MAX_SUBSCRIPTION_IDENTIFIER + 1
        while number in self._by_number:
            number = number % MAX_SUBSCRIPTION_IDENTIFIER + 1
        return number

    def remove(self, name: str) -> None:
        """Remove the subscription to a filter."""
        removed = self._by_filter[name]
        self._revision += 1
        self._by_filter = {k: v for k, v in self._by_filter.items() if k != name}
        self._by_number = {k: v for k, v in self._by_number.items() if k != removed.number}

    def __contains__(self, name: str) -> bool:
        return name in self._by_filter

    def all(self) -> tuple[ActiveSubscription, ...]:
        """Return all subscriptions in the order of their creation."""
        return tuple(self._by_filter.values())

    def deliver(
        self,
        slot: FlowSlot,
        topic: str,
        payload: bytes | bytearray,
        qos: int,
        retained: bool,
        properties: list[tuple[str, str]] | None,
        numbers: Sequence[int] | None,
    ) -> None:
        """Deliver one event to the subscriptions that it matches."""
        now = time.time()
        stamp = read_stamp(properties) if properties else None
        if stamp is None:
            header, payload = split_header(bytes(payload))
            if header is not None:
                stamp = (header.origin, header.sequence, header.published_at_nanoseconds)
        if numbers:
            by_number = self._by_number
            matching = [by_number[number] for number in numbers if number in by_number]
        else:
            matching = self._matching(slot, topic)
        flow = slot.flow
        for active in matching:
            if retained and slot.has_received_retained(active.filter):
                continue
            event_id = published_at = None
            if stamp is not None:
                origin, sequence, nanoseconds = stamp
                received = active.received
                is_new = (received.is_new_retained if retained else received.is_new)(
                    topic, origin, sequence
                )
                if is_new:
                    event_id, published_at = f"{origin.hex()}-{sequence}", nanoseconds / 1e9
                elif is_new is not None:
                    active.duplicates += 1
                    continue
            event = Event(
                topic,
                active.filter,
                bytes(payload),
                flow.number,
                flow.priority,
                slot.version,
                event_id,
                published_at,
                now,
                qos,
                retained,
            )
            self._statistics.count(event)
            if self._on_delivery is not None:
                _call(self._on_delivery, event)
            _call(active.on_event, event)

    def take_statistics(
        self, flow_number: Callable[[str], int | None], clock_offset_seconds: float | None
    ) -> tuple[Statistics, ...]:
        """Return the statistics since the last call; ``flow_number`` maps a filter to its flow."""
        for each in self.all():
            missing = each.received.take_missing()
            number = flow_number(each.filter)
            if number is not None:
                for topic, events in missing.items():
                    self._statistics.missing(number, topic, events)
        return self._statistics.take(clock_offset_seconds)

    def _matching(self, slot: FlowSlot, topic: str) -> list[ActiveSubscription]:
        """Return the subscriptions whose filters on a connection match a topic (cached)."""
        connection = slot.connection
        key = (connection.revision, self._revision)
        if slot.matching_for != key:
            slot.matching_for, slot.matching = key, {}
        matching: list[ActiveSubscription] | None = slot.matching.get(topic)
        if matching is None:
            names = (*connection.requests, *connection.draining)
            matching = [
                self._by_filter[name]
                for name in names
                if name in self._by_filter and matches(name, topic)
            ]
            if len(slot.matching) < MAX_CACHED_TOPICS:
                slot.matching[topic] = matching
        return matching


def _call(callback: OnEvent, event: Event) -> None:
    """Call a callback; no exception, not even ``SystemExit``, ends the event loop."""
    try:
        callback(event)
    except BaseException:
        log.exception("the callback of filter %r raised an exception", event.filter)

"""A subscriber's subscriptions, and handing each event to those that it belongs to.

Runs in the loop's thread, once for every event. An event that is stamped reaches a subscription
once, whatever number of connections and filters it came over; of one that is not, nobody can tell
whether it has come before, so while a filter moves it may come twice.
"""

import logging
import time
import zlib
from collections.abc import Callable

from firedex.wire import Subscription
from firedex.wire.mqtt_names import matches
from firedex_clients.duplicates import Seen
from firedex_clients.event import Event, OnEvent
from firedex_clients.event_stamp import EventStamp, split_header
from firedex_clients.flow_connection import Wanted
from firedex_clients.flow_set import Place
from firedex_clients.flow_statistics import FlowStatistics

__all__ = ["Subscribed", "Subscriptions"]

log = logging.getLogger("firedex.clients")
LARGEST_NUMBER = 268_435_455
"""Of an MQTT 5 subscription identifier."""
OnDelivery = Callable[[Event], None]


class Subscribed:
    """One subscription, what has come of it, and who is told."""

    def __init__(self, subscription: Subscription, number: int, on_event: OnEvent) -> None:
        self.subscription, self.number, self.on_event = subscription, number, on_event
        self.filter = subscription.filter
        self.seen = Seen()
        self.duplicates = 0

    def wanted(self) -> Wanted:
        """As connections need it."""
        return Wanted(
            filter=self.filter, number=self.number, qos=self.subscription.qos, retained=True
        )


class Subscriptions:
    """All of a subscriber's, by filter and by the number that brokers send along."""

    def __init__(self, statistics: FlowStatistics) -> None:
        self._by_filter: dict[str, Subscribed] = {}
        self._by_number: dict[int, Subscribed] = {}
        self._statistics = statistics
        self.on_delivery: OnDelivery | None = None

    def add(self, subscription: Subscription, on_event: OnEvent) -> Subscribed:
        """Add or replace the subscription to a filter."""
        old = self._by_filter.get(subscription.filter)
        number = self._number(subscription.filter) if old is None else old.number
        made = Subscribed(subscription, number, on_event)
        self._by_filter = {**self._by_filter, subscription.filter: made}
        self._by_number = {**self._by_number, number: made}
        return made

    def _number(self, name: str) -> int:
        """The same in every run, since brokers keep it with a session that lasts."""
        number = zlib.crc32(name.encode()) % LARGEST_NUMBER + 1
        while number in self._by_number:
            number = number % LARGEST_NUMBER + 1
        return number

    def remove(self, name: str) -> None:
        """End the subscription to a filter."""
        gone = self._by_filter[name]
        self._by_filter = {k: v for k, v in self._by_filter.items() if k != name}
        self._by_number = {k: v for k, v in self._by_number.items() if k != gone.number}

    def __contains__(self, name: str) -> bool:
        return name in self._by_filter

    def all(self) -> tuple[Subscribed, ...]:
        """In the order in which they were made."""
        return tuple(self._by_filter.values())

    def deliver(
        self,
        place: Place,
        topic: str,
        payload: bytes | bytearray,
        qos: int,
        retained: bool,
        properties: list[tuple[str, str]] | None,
        numbers: list[int] | None,
    ) -> None:
        """Hand one event out."""
        now = time.time()
        stamp = EventStamp.from_properties(properties) if properties else None
        if stamp is None:
            stamp, payload = split_header(bytes(payload))
        if numbers:
            by_number = self._by_number
            found = [by_number[number] for number in numbers if number in by_number]
        else:
            found = [
                self._by_filter[name]
                for name in (*place.connection.wanted, *place.connection.leaving)
                if name in self._by_filter and matches(name, topic)
            ]
        for subscribed in found:
            if retained and place.has_had_retained(subscribed.filter):
                continue
            if stamp is not None and not subscribed.seen.is_new(
                stamp.origin, stamp.sequence, topic
            ):
                subscribed.duplicates += 1
                continue
            self._hand_out(subscribed, place, topic, payload, qos, retained, stamp, now)

    def _hand_out(
        self,
        subscribed: Subscribed,
        place: Place,
        topic: str,
        payload: bytes | bytearray,
        qos: int,
        retained: bool,
        stamp: EventStamp | None,
        now: float,
    ) -> None:
        flow = place.flow
        event = Event(
            topic=topic,
            filter=subscribed.filter,
            payload=bytes(payload),
            flow=flow.number,
            priority=flow.priority,
            configuration_version=place.version,
            event_id=None if stamp is None else stamp.event_id,
            published_at_seconds=None if stamp is None else stamp.published_at_nanoseconds / 1e9,
            received_at_seconds=now,
            qos=qos,
            retained=retained,
        )
        self._statistics.count(event)
        if self.on_delivery is not None:
            self.on_delivery(event)
        try:
            subscribed.on_event(event)
        except Exception:
            log.exception("on_event of %r raised", subscribed.filter)

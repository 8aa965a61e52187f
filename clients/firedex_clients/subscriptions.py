"""A subscriber's subscriptions, and handing each event to those that it belongs to.

Runs in the loop's thread, once for every event. An event that is stamped reaches a subscription
once, whatever number of connections and filters it came over; of one that is not (or whose stamp
cannot be believed), nobody can tell whether it has come before, so while a filter moves it may come
twice. What callbacks raise is told in the log and harms nothing else.
"""

import logging
import time
import zlib
from collections.abc import Callable

from firedex.event_stamp import read_stamp, split_header
from firedex.wire import Subscription
from firedex.wire.mqtt_names import matches
from firedex_clients.duplicates import Seen
from firedex_clients.event import Event, OnEvent
from firedex_clients.flow_connection import Wanted
from firedex_clients.flow_set import Place
from firedex_clients.flow_statistics import FlowStatistics

__all__ = ["Subscribed", "Subscriptions"]

log = logging.getLogger("firedex.clients")
MOST_REMEMBERED = 10_000
"""Topics of one connection whose subscriptions are remembered."""
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
        self._revision = 0
        self.on_delivery: OnDelivery | None = None

    def add(self, subscription: Subscription, on_event: OnEvent) -> Subscribed:
        """Add or replace the subscription to a filter."""
        old = self._by_filter.get(subscription.filter)
        number = self._number(subscription.filter) if old is None else old.number
        made = Subscribed(subscription, number, on_event)
        self._revision += 1
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
        self._revision += 1
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
        stamp = read_stamp(properties) if properties else None
        if stamp is None:
            header, payload = split_header(bytes(payload))
            if header is not None:
                stamp = (header.origin, header.sequence, header.published_at_nanoseconds)
        if numbers:
            by_number = self._by_number
            found = [by_number[number] for number in numbers if number in by_number]
        else:
            found = self._matching(place, topic)
        flow = place.flow
        for subscribed in found:
            if retained and place.has_had_retained(subscribed.filter):
                continue
            event_id = published_at = None
            if stamp is not None:
                origin, sequence, nanoseconds = stamp
                seen = subscribed.seen
                is_new = (seen.is_new_retained if retained else seen.is_new)(
                    topic, origin, sequence
                )
                if is_new:
                    event_id, published_at = f"{origin.hex()}-{sequence}", nanoseconds / 1e9
                elif is_new is not None:
                    subscribed.duplicates += 1
                    continue
            event = Event(
                topic,
                subscribed.filter,
                bytes(payload),
                flow.number,
                flow.priority,
                place.version,
                event_id,
                published_at,
                now,
                qos,
                retained,
            )
            self._statistics.count(event)
            if self.on_delivery is not None:
                _tell(self.on_delivery, event)
            _tell(subscribed.on_event, event)

    def _matching(self, place: Place, topic: str) -> list[Subscribed]:
        """Whose filters on a connection match a topic; remembered until filters change."""
        connection = place.connection
        key = (connection.revision, self._revision)
        if place.matching_for != key:
            place.matching_for, place.matching = key, {}
        found: list[Subscribed] | None = place.matching.get(topic)
        if found is None:
            names = (*connection.wanted, *connection.leaving)
            found = [
                self._by_filter[name]
                for name in names
                if name in self._by_filter and matches(name, topic)
            ]
            if len(place.matching) < MOST_REMEMBERED:
                place.matching[topic] = found
        return found


def _tell(callback: OnEvent, event: Event) -> None:
    """Also ``sys.exit`` must not end the thread that reads all connections."""
    try:
        callback(event)
    except BaseException:
        log.exception("a callback for an event of %r raised", event.filter)

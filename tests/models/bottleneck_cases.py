"""One shared link and its traffic, as input of the model and as input of a simulation.

A case is defined in packets and classes. ``scenario`` converts it into the input of ``predict``,
``streams`` into the input of a simulation. The topics that a filter matches are listed explicitly,
so the simulation does not use any code of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firedex.wire import Scenario, from_plain
from firedex_models import PredictionTable

UDP_HEADERS = 49
"""Header bytes of an event of up to 248 bytes: Ethernet 14, IP 20, UDP 8, MQTT-SN 7."""
NO_LIMIT = 1e13
"""Bits per second of the publishers' link, so high that its delay (0.1 ns) does not matter."""


@dataclass(frozen=True, kw_only=True)
class PublishedTopic:
    name: str
    rate: float
    wire_bytes: int = 100
    exponential: bool = False
    periodic: bool = False


@dataclass(frozen=True, kw_only=True)
class CaseSubscription:
    """One subscription; ``topics`` are the positions of the topics that its filter matches."""

    subscriber: str
    filter: str
    topics: tuple[int, ...]
    priority: int
    flow: int = 0
    drop_rate: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The packets of one topic on one flow."""

    topic: int
    priority: int
    survival: float
    wire_bytes: float
    rate: float

    @property
    def bytes_per_second(self) -> float:
        return self.rate * self.survival * self.wire_bytes


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """A case: topics, subscriptions in the order of their subscribers, and the link."""

    topics: Sequence[PublishedTopic]
    subscriptions: Sequence[CaseSubscription]
    bytes_per_second: float = 1.0
    burst_bytes: float = 0.0
    guaranteed_bytes_per_second: float = 0.0
    buffer: dict[str, Any] | None = None

    def at_load(self, load: float) -> "Bottleneck":
        """Return the same traffic on a link whose load after drops is ``load``."""
        return replace(self, bytes_per_second=self.offered_bytes_per_second / load)

    @property
    def offered_bytes_per_second(self) -> float:
        return sum(stream.bytes_per_second for stream in self.streams)

    @property
    def classes(self) -> int:
        return 1 + max(subscription.priority for subscription in self.subscriptions)

    @property
    def _stream_keys(self) -> dict[tuple[int, str, int], CaseSubscription]:
        """One key per stream: a flow carries an event once, even if several filters match."""
        keys = {(v, s.subscriber, s.flow): s for s in self.subscriptions for v in s.topics}
        return dict(sorted(keys.items()))

    @property
    def streams(self) -> list[Stream]:
        """All streams, ordered by topic."""
        return [
            Stream(
                topic=topic,
                priority=subscription.priority,
                survival=1.0 - subscription.drop_rate,
                wire_bytes=self.topics[topic].wire_bytes,
                rate=self.topics[topic].rate,
            )
            for (topic, _, _), subscription in self._stream_keys.items()
        ]

    def streams_of_each_subscription(self) -> list[list[int]]:
        position = {key: row for row, key in enumerate(self._stream_keys)}
        return [[position[v, s.subscriber, s.flow] for v in s.topics] for s in self.subscriptions]

    def scenario(self) -> Scenario:
        plain: dict[str, Any] = {
            "name": "bottleneck",
            "transport": "udp",
            "topics": [
                {
                    "name": topic.name,
                    "event_bytes": topic.wire_bytes - UDP_HEADERS,
                    "size_distribution": "exponential" if topic.exponential else "fixed",
                }
                for topic in self.topics
            ],
            "publishers": [
                {"id": f"p{row}", "switch": "s0", "publications": [_publication(topic)]}
                for row, topic in enumerate(self.topics)
            ],
            "subscribers": [
                {"id": name, "switch": "s1", "subscriptions": self._filters_of(name)}
                for name in dict.fromkeys(
                    subscription.subscriber for subscription in self.subscriptions
                )
            ],
            "network": {"switches": self._switches(), "broker": {"id": "b1"}},
            "assignment": [
                {
                    "subscriber": subscription.subscriber,
                    "filter": subscription.filter,
                    "flow": subscription.flow,
                    "priority": subscription.priority,
                    "drop_rate": subscription.drop_rate,
                }
                for subscription in self.subscriptions
            ],
        }
        return from_plain(Scenario, plain)

    def _filters_of(self, subscriber: str) -> list[dict[str, Any]]:
        return [
            {"filter": subscription.filter, "utility": {"kind": "log", "weight": 1.0}}
            for subscription in self.subscriptions
            if subscription.subscriber == subscriber
        ]

    def _switches(self) -> list[dict[str, Any]]:
        shared: dict[str, Any] = {
            "id": "s1",
            "bandwidth_bits_per_second": self.bytes_per_second * 8,
            "burst_bytes": self.burst_bytes,
            "guaranteed_bits_per_second": self.guaranteed_bytes_per_second * 8,
        }
        if self.buffer is not None:
            shared["buffer"] = self.buffer
        return [{"id": "s0", "managed": False, "bandwidth_bits_per_second": NO_LIMIT}, shared]


def _publication(topic: PublishedTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "rate_per_second": topic.rate,
        "arrivals": "periodic" if topic.periodic else "poisson",
    }


def class_means(table: PredictionTable) -> np.ndarray:
    """Return the predicted mean delay of every class with subscriptions; NaN if it has none."""
    return np.array([c.delay_mean_seconds for c in table.classes()], dtype=float)


def class_p95s(table: PredictionTable) -> np.ndarray:
    return np.array([c.delay_p95_seconds for c in table.classes()], dtype=float)


def spread_subscriptions(
    topics: Sequence[PublishedTopic],
    *,
    subscribers: int,
    classes: int,
    drop_per_class: float = 0.0,
) -> list[CaseSubscription]:
    """Return subscriptions of every subscriber to every topic, each on its own flow.

    The class depends on subscriber and topic, as in the prototype: one publication is a batch of
    packets of different classes.
    """
    subscriptions = []
    for s in range(subscribers):
        for v, topic in enumerate(topics):
            priority = (s + v * (s // classes + 1)) % classes
            subscriptions.append(
                CaseSubscription(
                    subscriber=f"n{s}",
                    filter=topic.name,
                    topics=(v,),
                    flow=v,
                    priority=priority,
                    drop_rate=drop_per_class * priority,
                )
            )
    return subscriptions

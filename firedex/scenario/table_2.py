"""The paper's evaluation scenario (Table 2), generated from a seed.

Every value is drawn from an exponential distribution, and drawn again until it lies within its
range (§5.1). The paper leaves some points open; this module assumes: every publisher publishes
every topic, each pair at its own rate (the offered load is then 1.7 to 2.0, as the paper states);
sizes are sizes on the wire; all subscribers share one queue, unless ``shared`` is false, when each
has its own queue. With ``load`` the bandwidth is chosen to give that load, instead of the paper's
8 Mbit/s per subscriber.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from firedex.wire import Scenario, from_plain
from firedex.wire.packet_sizes import wire_bytes
from firedex.wire.values import Count, Flag, Positive, PositiveCount, value

__all__ = ["Table2"]

BITS_PER_SUBSCRIBER = 8_000_000
FLOWS = CLASSES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class _TruncatedExponential:
    """A truncated exponential distribution: the mean before truncation, and the range."""

    mean: float
    minimum: float
    maximum: float

    def draw(self, random: np.random.Generator, count: int) -> list[float]:
        values: list[float] = []
        while len(values) < count:
            values_drawn = random.exponential(self.mean, size=count)
            values += values_drawn[
                (values_drawn >= self.minimum) & (values_drawn <= self.maximum)
            ].tolist()
        return values[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicClass:
    name: str
    topics: int
    rate: _TruncatedExponential
    size: _TruncatedExponential
    weight: _TruncatedExponential


TELEMETRY = _TopicClass(
    name="telemetry",
    topics=140,
    rate=_TruncatedExponential(mean=6, minimum=4, maximum=7),
    size=_TruncatedExponential(mean=110, minimum=90, maximum=500),
    weight=_TruncatedExponential(mean=0.5, minimum=0.01, maximum=2),
)
EVENTS = _TopicClass(
    name="events",
    topics=60,
    rate=_TruncatedExponential(mean=4, minimum=3, maximum=5),
    size=_TruncatedExponential(mean=800, minimum=500, maximum=1100),
    weight=_TruncatedExponential(mean=1, minimum=0.1, maximum=4),
)


ClientCount = Annotated[int, Field(strict=True, ge=1, le=10_000)]


@value
class Table2:
    """The parameters of the scenario; equal parameters give equal scenarios."""

    seed: Count = 2
    subscribers: ClientCount = 10
    publishers: ClientCount = 10
    telemetry_subscriptions: Annotated[int, Field(strict=True, ge=0, le=TELEMETRY.topics)] = 70
    event_subscriptions: Annotated[int, Field(strict=True, ge=0, le=EVENTS.topics)] = 42
    event_weight_factor: Positive = 1.0
    deadline_seconds: Positive | None = None
    shared: Flag = True
    load: Positive | None = None
    buffer_packets: PositiveCount = 2000

    def scenario(self) -> Scenario:
        """Return the scenario that these parameters generate."""
        random = np.random.default_rng(self.seed)
        topics: list[dict[str, Any]] = []
        publications: list[list[dict[str, Any]]] = [[] for _ in range(self.publishers)]
        headers = wire_bytes(payload_bytes=0, transport="udp", topic="", qos=0, stamped=False)
        for kind in (TELEMETRY, EVENTS):
            names = [f"{kind.name}/{number}" for number in range(kind.topics)]
            sizes = kind.size.draw(random, kind.topics)
            topics += [
                {
                    "name": name,
                    "event_bytes": round(size) - headers,
                    "size_distribution": "exponential",
                }
                for name, size in zip(names, sizes, strict=True)
            ]
            for publisher in publications:
                rates = kind.rate.draw(random, kind.topics)
                publisher += [
                    {"topic": name, "rate_per_second": rate}
                    for name, rate in zip(names, rates, strict=True)
                ]
        subscriptions_by_subscriber = [self._subscriptions(random) for _ in range(self.subscribers)]
        bits = {topic["name"]: 8.0 * (topic["event_bytes"] + headers) for topic in topics}
        offered = dict.fromkeys(bits, 0.0)
        for publication in (p for published in publications for p in published):
            topic = publication["topic"]
            offered[topic] += publication["rate_per_second"] * bits[topic]
        switches = self._switches(
            [sum(offered[s["filter"]] for s in each) for each in subscriptions_by_subscriber]
        )
        return from_plain(
            Scenario,
            {
                "name": f"table-2, seed {self.seed}",
                "transport": "udp",
                "topics": topics,
                "publishers": [
                    {"id": f"p{number}", "switch": "in", "publications": published}
                    for number, published in enumerate(publications)
                ],
                "subscribers": [
                    {
                        "id": f"s{number}",
                        "switch": switches[number % len(switches)]["id"],
                        "subscriptions": subscriptions_by_subscriber[number],
                    }
                    for number in range(self.subscribers)
                ],
                "network": {
                    "switches": [
                        {"id": "in", "managed": False, "bandwidth_bits_per_second": 1e9},
                        *switches,
                    ],
                    "broker": {
                        "id": "broker",
                        "in_events_per_second": 800_000,
                        "out_events_per_second": 800_000,
                    },
                },
                "planning": {
                    "flows_per_subscriber": FLOWS,
                    "priorities": CLASSES,
                    "rho_tolerance": 0.1,
                },
            },
        )

    def _switches(self, offered: list[float]) -> list[dict[str, Any]]:
        """Return the switches to subscribers; ``offered`` is in bits per second per subscriber."""
        each = [
            BITS_PER_SUBSCRIBER if self.load is None else max(bits, 1.0) / self.load
            for bits in offered
        ]
        speeds = {"out": sum(each)} if self.shared else {f"out{n}": b for n, b in enumerate(each)}
        return [
            {
                "id": name,
                "bandwidth_bits_per_second": speed,
                "in_packets_per_second": 800_000,
                "priorities": CLASSES,
                "buffer": {"kind": "shared-push-out", "packets": self.buffer_packets},
            }
            for name, speed in speeds.items()
        ]

    def _subscriptions(self, random: np.random.Generator) -> list[dict[str, Any]]:
        subscriptions: list[dict[str, Any]] = []
        for kind, count, factor in (
            (TELEMETRY, self.telemetry_subscriptions, 1.0),
            (EVENTS, self.event_subscriptions, self.event_weight_factor),
        ):
            chosen = random.choice(kind.topics, size=count, replace=False)
            weights = kind.weight.draw(random, count)
            for number, weight in zip(chosen.tolist(), weights, strict=True):
                subscription: dict[str, Any] = {
                    "filter": f"{kind.name}/{number}",
                    "utility": {"kind": "log", "weight": weight * factor},
                }
                if self.deadline_seconds is not None:
                    subscription["deadline_seconds"] = self.deadline_seconds
                subscriptions.append(subscription)
        return subscriptions

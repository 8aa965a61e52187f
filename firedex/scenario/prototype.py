"""The scenario of the paper authors' prototype, for any number of subscribers and any load.

One publisher, seven topics with 10 events per second each, packets of 100 bytes by default. Every
subscriber subscribes to all seven topics with random utilities; seven classes share one link. The
packet size includes the event stamp.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from firedex.wire import DropPolicy, Scenario, from_plain
from firedex.wire.packet_sizes import wire_bytes
from firedex.wire.values import Count, Positive, PositiveCount, value

__all__ = ["Prototype"]

TOPICS = 7
EVENTS_PER_SECOND = 10.0


@value
class Prototype:
    """The parameters of the scenario. ``load``: offered load as a fraction of the shared link."""

    subscribers: Annotated[int, Field(strict=True, ge=1, le=200)] = 10
    load: Positive = 0.9
    seed: Count = 1
    deadline_seconds: Positive | None = None
    drop_policy: DropPolicy = "optimized"
    buffer_packets: PositiveCount = 2000
    packet_bytes: Annotated[int, Field(strict=True, ge=90, le=1500)] = 100

    def scenario(self) -> Scenario:
        """Return the scenario that these parameters generate."""
        random = np.random.default_rng(self.seed)
        headers = wire_bytes(payload_bytes=0, transport="udp", topic="", stamped=True)
        names = [f"topic/{number}" for number in range(TOPICS)]
        offered = self.subscribers * TOPICS * EVENTS_PER_SECOND * self.packet_bytes * 8
        # A load below 1 is not dropped; a higher load is reduced to 0.8.
        free = max(1 - self.load, 0.05) if self.load < 1 else 0.2
        return from_plain(
            Scenario,
            {
                "name": f"prototype, {self.subscribers} subscribers, load {self.load:g}",
                "transport": "udp",
                "stamped_events": True,
                "topics": [
                    {"name": name, "event_bytes": self.packet_bytes - headers} for name in names
                ],
                "publishers": [
                    {
                        "id": "sensors",
                        "switch": "lan",
                        "publications": [
                            {"topic": name, "rate_per_second": EVENTS_PER_SECOND} for name in names
                        ],
                    }
                ],
                "subscribers": [
                    {
                        "id": f"s{number}",
                        "switch": "bottleneck",
                        "subscriptions": [
                            {
                                "filter": name,
                                "utility": {"kind": "log", "weight": float(weight)},
                                "deadline_seconds": self.deadline_seconds,
                            }
                            for name, weight in zip(
                                names, random.uniform(1, 10, TOPICS).round(2), strict=True
                            )
                        ],
                    }
                    for number in range(self.subscribers)
                ],
                "network": {
                    "switches": [
                        {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e8},
                        {
                            "id": "bottleneck",
                            "bandwidth_bits_per_second": round(offered / self.load),
                            "priorities": 8,
                            "buffer": {
                                "kind": "per-class-head-drop",
                                "packets": self.buffer_packets,
                            },
                        },
                    ],
                    "broker": {"id": "edge"},
                },
                "planning": {
                    "flows_per_subscriber": TOPICS,
                    "priorities": TOPICS,
                    "rho_tolerance": free,
                    "drop_policy": self.drop_policy,
                },
            },
        )

"""The set-up of the paper authors' own prototype, at any number of subscribers and any load.

One publisher, seven topics at 10 events a second, packets of 100 bytes (or others), every
subscriber subscribed to all seven with utilities of its own, seven classes on one shared link.
Events carry FireDeX's stamp, which is part of them.
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
    """What may be varied. ``load``: what is offered, as a share of the shared link."""

    subscribers: Annotated[int, Field(strict=True, ge=1, le=200)] = 10
    load: Positive = 0.9
    seed: Count = 1
    deadline_seconds: Positive | None = None
    drop_policy: DropPolicy = "optimized"
    buffer_packets: PositiveCount = 2000
    packet_bytes: Annotated[int, Field(strict=True, ge=90, le=1500)] = 100

    def scenario(self) -> Scenario:
        """The scenario that is drawn from these parameters."""
        random = np.random.default_rng(self.seed)
        headers = wire_bytes(payload_bytes=0, transport="udp", topic="", stamped=True)
        names = [f"topic/{number}" for number in range(TOPICS)]
        offered = self.subscribers * TOPICS * EVENTS_PER_SECOND * self.packet_bytes * 8
        # A load that fits is not dropped; one that does not is brought to four fifths.
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

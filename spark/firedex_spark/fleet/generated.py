"""Generated sites, all different."""

from collections.abc import Iterator

import numpy as np

from firedex.wire import Scenario, from_plain

__all__ = ["generated_fleet"]

SENSORS = ("smoke", "heat", "vitals", "doors", "water")
SUBSCRIPTIONS_PER_SUBSCRIBER = 10


def generated_fleet(
    sites: int, subscriptions: int, seed: int = 0
) -> Iterator[tuple[str, Scenario]]:
    """Yield sites with that many subscriptions each, behind two overloaded switches."""
    for number in range(sites):
        random = np.random.default_rng([seed, number])
        yield f"site{number:05}", _site(number, subscriptions, random)


def _site(number: int, subscriptions: int, random: np.random.Generator) -> Scenario:
    floors = max(-(-subscriptions // 25), 2)  # enough topics for any subscriber
    topics = [f"{sensor}/floor{floor}" for floor in range(floors) for sensor in SENSORS]
    rates = random.uniform(0.5, 5.0, len(topics))
    subscribers = []
    for index, first in enumerate(range(0, subscriptions, SUBSCRIPTIONS_PER_SUBSCRIBER)):
        count = min(SUBSCRIPTIONS_PER_SUBSCRIBER, subscriptions - first)
        chosen = random.choice(len(topics), count, replace=False)
        weights = random.uniform(0.5, 10.0, len(chosen))
        subscribers.append(
            {
                "id": f"crew{index}",
                "switch": f"floor-switch{index % 2}",
                "subscriptions": [
                    {"filter": topics[t], "utility": {"kind": "log", "weight": float(w)}}
                    for t, w in zip(chosen, weights, strict=True)
                ],
            }
        )
    bits = float(rates.mean()) * subscriptions * 8 * 100 / 2 / random.uniform(1.2, 2.5)
    switch = {"managed": True, "bandwidth_bits_per_second": max(bits, 10_000.0)}
    return from_plain(
        Scenario,
        {
            "name": f"site {number}",
            "topics": [{"name": name, "event_bytes": 51} for name in topics],
            "publishers": [
                {
                    "id": "sensors",
                    "switch": "lan",
                    "publications": [
                        {"topic": name, "rate_per_second": float(rate)}
                        for name, rate in zip(topics, rates, strict=True)
                    ],
                }
            ],
            "subscribers": subscribers,
            "network": {
                "switches": [
                    {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
                    {"id": "floor-switch0", **switch},
                    {"id": "floor-switch1", **switch},
                ],
                "broker": {"id": "edge"},
            },
        },
    )

"""A city of sensors and subscribers, as large as one likes.

A fifth of the subscriptions are wildcards; there is a topic for every 25 subscriptions.
"""

from collections.abc import Iterator

import numpy as np

from firedex.wire import Scenario, from_plain

__all__ = ["city"]

SENSORS = ("smoke", "heat", "vitals", "doors", "water")
FLOORS = 5
PER_SUBSCRIBER = 20
CLASSES = 8


def city(subscriptions: int, seed: int = 1) -> Scenario:
    """A scenario with about so many subscriptions, overloaded and cut back by drop rates.

    A subscriber's doubles fall out, so there are a few less.
    """
    random = np.random.default_rng(seed)
    buildings = max(subscriptions // 25 // (FLOORS * len(SENSORS)), 1)
    topics = [
        f"b{building}/f{floor}/{sensor}"
        for building in range(buildings)
        for floor in range(FLOORS)
        for sensor in SENSORS
    ]
    subscribers, assignment = [], []
    rate = 0.0
    for number in range(subscriptions // PER_SUBSCRIBER):
        wanted = dict.fromkeys(_filters(random, buildings))
        name = f"s{number}"
        subscribers.append(
            {
                "id": name,
                "switch": "out",
                "subscriptions": [
                    {"filter": f, "utility": {"kind": "log", "weight": 1.0 + row}}
                    for row, f in enumerate(wanted)
                ],
            }
        )
        for row, f in enumerate(wanted):
            priority = row * CLASSES // len(wanted)
            matched = FLOORS if "+" in f else len(SENSORS) if "#" in f else 1
            rate += matched * (1 - 0.08 * priority)
            assignment.append(
                {
                    "subscriber": name,
                    "filter": f,
                    "flow": priority,
                    "priority": priority,
                    "drop_rate": 0.08 * priority,
                }
            )
    return from_plain(
        Scenario,
        {
            "name": f"city of {subscriptions}",
            "topics": [{"name": name, "event_bytes": 51} for name in topics],
            "publishers": [
                {
                    "id": "sensors",
                    "switch": "in",
                    "publications": [{"topic": name, "rate_per_second": 1.0} for name in topics],
                }
            ],
            "subscribers": subscribers,
            "network": {
                "switches": [
                    {"id": "in", "managed": False, "bandwidth_bits_per_second": 1e12},
                    {"id": "out", "bandwidth_bits_per_second": rate * 800 / 0.9},
                ],
                "broker": {"id": "b"},
            },
            "assignment": assignment,
        },
    )


def _filters(random: np.random.Generator, buildings: int) -> Iterator[str]:
    for row in range(PER_SUBSCRIBER):
        building, floor = random.integers(buildings), random.integers(FLOORS)
        sensor = SENSORS[random.integers(len(SENSORS))]
        if row % 10 == 0:
            yield f"b{building}/+/{sensor}"
        elif row % 10 == 5:
            yield f"b{building}/f{floor}/#"
        else:
            yield f"b{building}/f{floor}/{sensor}"

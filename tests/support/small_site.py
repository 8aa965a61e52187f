"""A small site as plain data, which tests change.

::

    p0 ─▶ s0 (unmanaged) ─▶ broker ─▶ s1 (managed, 1 Mbit/s) ─▶ command

An event of 51 bytes has 100 bytes (800 bits) on the wire: 1 Mbit/s carries 1250 per second.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

from firedex.wire import Prediction, Scenario, from_plain
from firedex_models import predict

__all__ = [
    "Document",
    "assign",
    "path_of_two_switches",
    "predict_site",
    "publisher_entry",
    "queue_load",
    "site",
    "subscriber_entry",
    "topic",
    "write_scenario",
]

Document = dict[str, Any]


def site(**changes: Any) -> Document:
    """Return the small site with changed top-level keys."""
    document: Document = {
        "name": "small",
        "topics": [topic("smoke/1"), topic("smoke/2"), topic("heat/1")],
        "publishers": [publisher_entry("p0", {"smoke/1": 10.0, "smoke/2": 20.0, "heat/1": 40.0})],
        "subscribers": [subscriber_entry("command", "smoke/#")],
        "network": {
            "switches": [
                {"id": "s0", "managed": False, "bandwidth_bits_per_second": 1e9},
                {"id": "s1", "bandwidth_bits_per_second": 1e6},
            ],
            "broker": {"id": "b1"},
        },
        "assignment": [assign("command", "smoke/#")],
    }
    return copy.deepcopy({**document, **changes})


def topic(name: str, event_bytes: int = 51, **more: Any) -> Document:
    return {"name": name, "event_bytes": event_bytes, **more}


def publisher_entry(
    name: str, rates: dict[str, float], switch: str = "s0", **more: Any
) -> Document:
    publications = [{"topic": t, "rate_per_second": rate} for t, rate in rates.items()]
    return {"id": name, "switch": switch, "publications": publications, **more}


def subscriber_entry(name: str, *filters: str, switch: str = "s1", **each: Any) -> Document:
    """Return a subscriber; ``each`` is added to each of its subscriptions."""
    subscriptions = [
        {"filter": f, "utility": {"kind": "log", "weight": 1.0}, **each} for f in filters
    ]
    return {"id": name, "switch": switch, "subscriptions": subscriptions}


def assign(
    subscriber: str,
    name: str,
    flow: int = 0,
    priority: int = 0,
    drop_rate: float = 0.0,
    **more: Any,
) -> Document:
    return {
        "subscriber": subscriber,
        "filter": name,
        "flow": flow,
        "priority": priority,
        "drop_rate": drop_rate,
        **more,
    }


def path_of_two_switches(**second: Any) -> Document:
    """Return a site: broker ─▶ s1 ─▶ s2 ─▶ command; ``second`` changes s2."""
    document = site(subscribers=[subscriber_entry("command", "smoke/#", switch="s2")])
    document["network"]["switches"].append({"id": "s2", "bandwidth_bits_per_second": 5e5, **second})
    document["network"]["links"] = [{"from": "s1", "to": "s2"}]
    return document


def predict_site(document: Document, **options: Any) -> Prediction:
    return predict(from_plain(Scenario, document), **options).to_prediction()


def queue_load(prediction: Prediction, name: str) -> float:
    """Return the utilization of the queue ``name``."""
    loads = {queue.id: queue.utilization for queue in prediction.queues}
    assert name in loads, f"{name!r} is not among {sorted(loads)}"
    return loads[name]


def write_scenario(folder: Path, document: Document | str) -> str:
    """Write a scenario file; return its path."""
    text = document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    file = folder / "site.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)

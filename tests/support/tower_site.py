"""A site for screenshots: four switches, crews with deadlines, one link at half its bandwidth.

::

    sensors ─▶ riser ─▶ broker ─▶ core ─▶ lobby (command), floor-5, floor-7 (crews)

The service is real. The counters of the fake controller and the clients' reports are computed from
the predictions with small random errors, so that screenshots do not depend on the machine's load.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from firedex.service.running import RunningService
from firedex.service.state import class_history
from firedex.wire import Scenario, Statistics, from_plain
from tests.support.fake_controller import FakeController, running_controller
from tests.support.service_site import Client, publisher, serving

FLOORS = (5, 7)
RATES = {"smoke": (4.0, 120), "heat": (2.0, 80), "vitals": (6.0, 200), "video": (30.0, 1100)}
MINUTES_OF_HISTORY = 10
SEED = 7


def tower(floor_bandwidth: float = 1.2e6) -> Scenario:
    shaped = [("core", 8e6), ("lobby", 2e6)] + [(f"floor-{n}", floor_bandwidth) for n in FLOORS]
    return from_plain(
        Scenario,
        {
            "name": "Harbour Tower",
            "transport": "tcp",
            "topics": [],
            "network": {
                "switches": [
                    {"id": "riser", "managed": False, "bandwidth_bits_per_second": 1e9},
                    *({"id": name, "bandwidth_bits_per_second": rate} for name, rate in shaped),
                ],
                "links": [{"from": "core", "to": name} for name, _ in shaped[1:]],
                "broker": {"id": "edge", "switch": "core"},
            },
            "planning": {"flows_per_subscriber": 4, "priorities": 4},
        },
    )


def _subscriber(name: str, switch: str, number: int, role: str) -> dict[str, Any]:
    weights = {"smoke": (10.0, 0.5), "vitals": (8.0, 0.5), "heat": (4.0, 1.0), "video": (1.0, None)}
    floors = FLOORS if role == "command" else (5 if switch == "floor-5" else 7,)
    return {
        "subscriber": {
            "id": name,
            "switch": switch,
            "role": role,
            "subscriptions": [
                {
                    "filter": f"floor/{floor}/{kind}",
                    "utility": {"kind": "log", "weight": weight},
                    **({"deadline_seconds": deadline} if deadline else {}),
                }
                for floor in floors
                for kind, (weight, deadline) in weights.items()
            ],
        },
        "address": f"10.0.0.{number}",
    }


def _set_controller_state(controller: FakeController, shares: dict[str, Any]) -> None:
    names = ("core", "lobby", *(f"floor-{n}" for n in FLOORS))
    controller.switches = [
        {"switch": name, "datapath_id": f"{n + 1:016x}", "connected": True, "settled": True}
        for n, name in enumerate(names)
    ]
    controller.links = [
        {"from": "core", "from_port": f"core-{name}", "to": name, "to_port": f"{name}-core"}
        for name in names[1:]
    ]
    controller.statistics = [
        {"switch": name, "window_seconds": 1.0, **shares.get(name, {})} for name in names
    ]


def _counters(client: Client, generator: random.Random) -> dict[str, Any]:
    links = client.get("/v1/overview").json["links"]
    desired = {
        name: client.get(f"/v1/switches/{name}").json["desired"]
        for name in {link["switch"] for link in links}
    }
    found: dict[str, Any] = {}
    for link in links:
        port = f"core-{link['towards']}" if link["towards"] else f"{link['switch']}-hosts"
        queues = found.setdefault(link["switch"], {"queues": [], "flows": []})["queues"]
        for share in link["classes"]:
            rate = share["planned_bits_per_second"] * generator.uniform(0.9, 1.05)
            packets = int(rate / 8 / 300 * 600)
            queues.append(
                {
                    "port": port,
                    "priority": share["priority"],
                    "packets": packets,
                    "bytes": packets * 300,
                    "bits_per_second": rate,
                }
            )
    for name, each in desired.items():
        for rule in (each or {}).get("flows", []):
            rate = generator.uniform(2, 20)
            found[name]["flows"].append(
                {
                    "subscriber": rule["subscriber"],
                    "flow": rule["flow"],
                    "packets": int(rate * 600),
                    "bytes": int(rate * 600 * 300),
                    "packets_per_second": rate,
                }
            )
    return found


def _reports(configuration: dict[str, Any], generator: random.Random) -> list[dict[str, Any]]:
    """Return reports of clients: the prediction for each flow with a random error.

    On floor 7, smoke and all lower classes are late.
    """
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in configuration["prediction"]["subscriptions"]:
        rows.setdefault((row["subscriber"], row["flow"]), []).append(row)
    (smoke,) = [
        row["priority"]
        for row in configuration["prediction"]["subscriptions"]
        if (row["subscriber"], row["filter"]) == ("engine-7", "floor/7/smoke")
    ]
    reports = []
    for (subscriber, flow), flow_rows in rows.items():
        slow = 1.67 if subscriber.endswith("-7") and flow_rows[0]["priority"] >= smoke else 0.0
        mean = max((r["delay_mean_seconds"] or 0.02) for r in flow_rows) * generator.uniform(
            0.85, 1.2
        )
        p95 = max((r["delay_p95_seconds"] or 0.05) for r in flow_rows) * generator.uniform(
            0.85, 1.2
        )
        reports.append(
            {
                "reporter": subscriber,
                "subscriber": subscriber,
                "flow": flow,
                "configuration_version": configuration["version"],
                "window_start": datetime.now(UTC).isoformat(),
                "window_seconds": 50.0,
                "topics": [
                    {
                        "topic": row["filter"],
                        "delivered_events": (
                            delivered := int(
                                row["offered_events_per_second"] * 50 * row["success_rate"]
                            )
                        ),
                        "missing_events": int(row["offered_events_per_second"] * 50) - delivered,
                    }
                    for row in flow_rows
                ],
                "delay_mean_seconds": mean + slow * 0.7,
                "delay_p95_seconds": p95 + slow,
            }
        )
    return reports


def _write_history(
    running: RunningService, configuration: dict[str, Any], generator: random.Random
) -> None:
    """Write ten minutes of earlier client reports to the database."""
    flows = {
        (f["subscriber"], f["flow"]): class_history.ReportedFlow(f["priority"], 1000.0)
        for f in configuration["flows"]
    }
    now = time.time()
    steps = int(MINUTES_OF_HISTORY * 60 / class_history.STEP_SECONDS)
    with running.service.database.writing() as connection:
        for step in range(steps, 0, -1):
            reports = [from_plain(Statistics, each) for each in _reports(configuration, generator)]
            at = now - step * class_history.STEP_SECONDS
            class_history.add_reports(
                connection, reports, lambda r: flows.get((r.subscriber, r.flow)), at
            )


@contextmanager
def tower_with_incident(folder: Path) -> Iterator[tuple[RunningService, Callable[[], object]]]:
    """Run the service during an incident; yield it and a function that sends client reports."""
    generator = random.Random(SEED)  # noqa: S311  # not secret
    controller = FakeController()
    with (
        running_controller(controller) as url,
        serving(folder / "state.sqlite", of=tower(), controller=url) as running,
    ):
        client = Client(running.url)
        topics = {f"floor/{n}/{kind}": rate for n in FLOORS for kind, (rate, _) in RATES.items()}
        registration = publisher("sensors", topics)
        registration["publisher"]["switch"] = "riser"
        for topic in registration["topics"]:
            topic["event_bytes"] = RATES[topic["name"].rpartition("/")[2]][1]
        client.register(registration, wait=0)
        crews = [("command", "lobby", "command"), ("engine-5", "floor-5", "crew")]
        crews += [("ladder-5", "floor-5", "crew"), ("engine-7", "floor-7", "crew")]
        crews += [("medic-7", "floor-7", "medic"), ("search-7", "floor-7", "crew")]
        for number, (name, switch, role) in enumerate(crews, 1):
            client.register(_subscriber(name, switch, number, role))
        rules = [{"filter": "floor/+/vitals", "factor": 3.0}]
        client.ask("PUT", "/v1/profiles/search?wait_seconds=20", {"rules": rules})
        rules = [{"filter": "floor/+/smoke", "factor": 3.0}]
        client.ask("PUT", "/v1/profiles/attack?wait_seconds=20", {"rules": rules})
        opening = {"title": "Fire on floor 7", "phase": "search"}
        client.ask("POST", "/v1/incident?wait_seconds=20", opening)
        network = client.get("/v1/network").json["network"]
        for switch in network["switches"]:
            if switch["id"] == "floor-7":
                switch["bandwidth_bits_per_second"] /= 2
        client.ask("PUT", "/v1/network?wait_seconds=20", network)
        _set_controller_state(controller, {})
        time.sleep(1.1)  # the service polls the controller once a second
        _set_controller_state(controller, _counters(client, generator))
        configuration = client.get("/v1/configuration").json
        _write_history(running, configuration, generator)
        _send_heartbeats(client, [name for name, *_ in crews])
        reports = _reports(configuration, generator)
        yield running, lambda: client.ask("POST", "/v1/statistics", reports)


def _send_heartbeats(client: Client, crews: list[str]) -> None:
    now = datetime.now(UTC).isoformat()
    parts = [("gateway", "gateway"), ("broker", "broker"), *((name, "client") for name in crews)]
    for part, kind in parts:
        beat = {"part": part, "kind": kind, "started_at": now, "sent_at": now}
        every = 0.2 if part == "ladder-5" else 100.0  # one client no longer sends heartbeats
        client.ask("POST", "/v1/heartbeats", {**beat, "every_seconds": every})

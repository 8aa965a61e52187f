"""A site without problems: all parts send heartbeats, and measurements equal predictions.

The service is real. The controller is the fake one, whose ``behaviour`` can simulate failures.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.fake_controller import FakeController, running_controller
from tests.support.service_site import Client, publisher, serving, subscriber

RATES = {"alarm/1": 20.0, "camera/1": 20.0}
WINDOW_SECONDS = 5.0


@dataclass(kw_only=True)
class HealthySite:
    """The URL of the service, its controller and a client."""

    url: str
    controller: FakeController
    client: Client
    validation_report: Path

    def report(self) -> None:
        """Send the reports and heartbeats of all parts: all events arrived in time."""
        configuration = self.client.get("/v1/configuration").json
        flows: dict[int, list[dict[str, Any]]] = {}
        for row in configuration["prediction"]["subscriptions"]:
            flows.setdefault(row["flow"], []).append(row)
        reports = [_report(configuration["version"], flow, rows) for flow, rows in flows.items()]
        assert self.client.ask("POST", "/v1/statistics", reports).status == 202
        now = datetime.now(UTC).isoformat()
        for part, kind in (("gateway", "gateway"), ("broker", "broker"), ("crew", "client")):
            beat = {"part": part, "kind": kind, "started_at": now, "sent_at": now}
            self.client.ask("POST", "/v1/heartbeats", {**beat, "every_seconds": 100.0})


def _report(version: int, flow: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts = [
        (row["filter"].replace("#", "1"), row["offered_events_per_second"], row["success_rate"])
        for row in rows
    ]
    return {
        "reporter": "crew",
        "subscriber": "crew",
        "flow": flow,
        "configuration_version": version,
        "window_start": datetime.now(UTC).isoformat(),
        "window_seconds": WINDOW_SECONDS,
        "topics": [
            {
                "topic": topic,
                "delivered_events": int(rate * WINDOW_SECONDS * success),
                "missing_events": int(rate * WINDOW_SECONDS * (1 - success)),
            }
            for topic, rate, success in counts
        ],
        "delay_mean_seconds": max(row["delay_mean_seconds"] for row in rows),
        "delay_p95_seconds": max(row["delay_p95_seconds"] for row in rows),
    }


@contextmanager
def healthy_site(folder: Path) -> Iterator[HealthySite]:
    controller = FakeController()
    names = ("core", "roof")
    controller.switches = [
        {"switch": name, "datapath_id": f"{n:016x}", "connected": True, "settled": True}
        for n, name in enumerate(names, 1)
    ]
    controller.statistics = [{"switch": name, "window_seconds": 1.0} for name in names]
    report = folder / "report.html"
    report.write_text("<!DOCTYPE html><title>Validation</title><p>Predictions hold.</p>", "utf-8")
    with (
        running_controller(controller) as url,
        serving(folder / "s.sqlite", controller=url, validation_report=report) as running,
    ):
        client = Client(running.url)
        client.register(publisher("p0", RATES))
        crew = subscriber("crew", {"alarm/#": 10.0, "camera/#": 1.0})
        for each in crew["subscriber"]["subscriptions"]:
            each["deadline_seconds"] = 2.0
        client.register(crew)
        yield HealthySite(
            url=running.url, controller=controller, client=client, validation_report=report
        )

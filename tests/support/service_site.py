"""A small site, registrations for it, and a client of the service.

::

    p0 ─▶ lan (unmanaged) ─▶ broker ─▶ core (managed) ─▶ subscribers
                                   └─▶ roof (managed) ─▶
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from firedex.service.core import ServiceOptions
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.schedule import ScheduleSettings
from firedex.service.planner.site_plan import Gateway
from firedex.service.running import RunningService, ServeOptions, running_service
from firedex.transport.http import HttpTarget
from firedex.wire import Scenario, from_plain

GATEWAY = Gateway(address=IPv4Address("127.0.0.1"), port=1884)
FAST_SCHEDULE = ScheduleSettings(
    quiet_seconds=0.005,
    longest_wait_seconds=0.05,
    first_retry_seconds=0.05,
    longest_retry_seconds=0.2,
    poll_seconds=0.2,
)
TOKENS_WITHOUT_LIMITS: dict[str, Any] = {
    "open_to_all": False,
    "request_rate": None,
    "wrong_token_rate": None,
}


def site(*, bandwidth_bits_per_second: float = 5e6, **planning: Any) -> Scenario:
    """Return the site without registrations."""
    return from_plain(
        Scenario,
        {
            "name": "served",
            "transport": "tcp",
            "topics": [],
            "network": {
                "switches": [
                    {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
                    {"id": "core", "bandwidth_bits_per_second": bandwidth_bits_per_second},
                    {"id": "roof", "bandwidth_bits_per_second": bandwidth_bits_per_second},
                ],
                "broker": {"id": "edge"},
            },
            "planning": {"flows_per_subscriber": 4, "priorities": 4, **planning},
        },
    )


def publisher(name: str, rates: Mapping[str, float], event_bytes: int = 100) -> dict[str, Any]:
    return {
        "publisher": {
            "id": name,
            "switch": "lan",
            "publications": [
                {"topic": topic, "rate_per_second": rate} for topic, rate in rates.items()
            ],
        },
        "topics": [{"name": topic, "event_bytes": event_bytes} for topic in rates],
    }


def subscriber(
    name: str,
    weights: Mapping[str, float],
    *,
    address: str = "10.0.0.1",
    role: str = "crew",
    switch: str = "core",
    qos: int = 0,
) -> dict[str, Any]:
    return {
        "subscriber": {
            "id": name,
            "switch": switch,
            "role": role,
            "subscriptions": [
                {"filter": each, "utility": {"kind": "log", "weight": weight}, "qos": qos}
                for each, weight in weights.items()
            ],
        },
        "address": address,
    }


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A plain HTTP client of the service."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.token = parts.hostname or "", parts.port or 80, token

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        sent |= headers or {}
        try:
            text = body if isinstance(body, bytes | str | None) else json.dumps(body)
            connection.request(method, path, text, sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())  # type: ignore[arg-type]
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def register(self, registration: Mapping[str, Any], wait: float = 30) -> Answer:
        kind = "publisher" if "publisher" in registration else "subscriber"
        path = f"/v1/{kind}s/{registration[kind]['id']}?wait_seconds={wait}"
        return self.ask("PUT", path, registration)


@contextmanager
def serving(
    state: Path | str,
    *,
    of: Scenario | None = None,
    controller: str | None = None,
    schedule: ScheduleSettings = FAST_SCHEDULE,
    planner: Any = "thread",
    **options: Any,
) -> Iterator[RunningService]:
    """Run the service on a free port."""
    options.setdefault("open_to_all", True)
    budgets = options.pop("default_budgets", None)
    settings = SiteSettings(
        site=of or site(), gateway=GATEWAY, **({"default_budgets": budgets} if budgets else {})
    )
    with running_service(
        ServeOptions(
            service=ServiceOptions(settings=settings, **options),
            state=str(state),
            controller=HttpTarget(url=controller, timeout_seconds=5.0) if controller else None,
            schedule=schedule,
            planner=planner,
        )
    ) as running:
        yield running


def wait_until(ready: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


def wait_until_active(client: Client) -> None:
    """Wait until no change is pending; the process of a planner may take long to start."""
    wait_until(
        lambda: client.get("/v1/status").json["pending_changes"] == 0, "no pending changes", 180.0
    )

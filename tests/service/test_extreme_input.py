"""Extreme registrations and reports of one client do not prevent planning for others."""

from pathlib import Path
from typing import Any

import pytest

from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.planner import desired_network
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import RateSnapshot, SnapshotRate
from firedex.service.state.registrations import Limits
from firedex.service.state.site_state import UNREGISTERED, DeclaredTopic, SiteState
from firedex.service.web.app import create_app
from firedex.wire import PublisherRegistration, Scenario, Topic, from_plain, to_plain
from tests.support.service_site import (
    GATEWAY,
    Client,
    publisher,
    serving,
    site,
    subscriber,
    wait_until,
)


def gateway_report(**topics: tuple[int, int]) -> list[dict[str, Any]]:
    return [
        {
            "reporter": "gateway",
            "subscriber": "crew",
            "flow": 0,
            "configuration_version": 1,
            "window_start": "2026-01-01T00:00:00Z",
            "window_seconds": 10.0,
            "topics": [
                {"topic": name, "offered_events": events, "payload_bytes": size}
                for name, (events, size) in topics.items()
            ],
        }
    ]


def test_event_too_large_for_udp_does_not_prevent_planning(tmp_path: Any) -> None:
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        client.register(publisher("p0", {"camera/1": 5.0}, event_bytes=5000))
        small = subscriber("small", {"camera/1": 1.0}, address="10.0.0.2")
        small["subscriber"]["transport"] = "udp"
        assert client.register(small).status == 200
        assert client.register(subscriber("crew", {"camera/1": 1.0})).status == 200
        assert client.get("/v1/ready").status == 200


def test_extreme_measured_sizes_and_rates_are_limited(tmp_path: Any) -> None:
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        client.register(publisher("p0", {"smoke": 5.0}))
        client.register(subscriber("crew", {"smoke": 1.0}))
        body = gateway_report(smoke=(100, 2**53), stray=(2**53, 2**53))
        assert client.ask("POST", "/v1/statistics", body).status == 202
        assert client.get("/v1/topics").status == 200
        assert (
            client.register(subscriber("other", {"smoke": 1.0}, address="10.0.0.3")).status == 200
        )


def test_unreachable_subscriber_and_removal_of_its_link_are_rejected(
    tmp_path: Any,
) -> None:
    linked = to_plain(site().network)
    linked["links"] = [{"from": "core", "to": "roof"}]
    linked["broker"] = {"id": "edge", "switch": "core"}
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        assert client.ask("PUT", "/v1/network", linked).status == 202
        unreachable = subscriber("away", {"smoke": 1.0}, address="10.0.0.2")
        unreachable["subscriber"]["switch"] = "lan"
        assert client.register(unreachable).status == 409
        reachable = subscriber("there", {"smoke": 1.0}, address="10.0.0.3")
        reachable["subscriber"]["switch"] = "roof"
        assert client.register(reachable).status == 200
        assert client.ask("PUT", "/v1/network", {**linked, "links": []}).status == 409


@pytest.mark.parametrize(("rate", "event_bytes"), [(1e15, 100), (1e12, 268_000_000)])
def test_rate_above_the_meter_maximum_becomes_active(
    tmp_path: Path, controller_url: str, rate: float, event_bytes: int
) -> None:
    limits = Limits(events_per_second_each=rate)
    with serving(tmp_path / "s.sqlite", controller=controller_url, limits=limits) as running:
        client = Client(running.url)
        client.register(subscriber("crew", {"#": 1.0}, qos=1))
        assert client.register(publisher("extreme", {"evil": rate}, event_bytes)).status == 200
        assert client.get("/v1/ready").status == 200


def test_extreme_declared_rate_is_rejected(client: Client) -> None:
    refused = client.register(publisher("extreme", {"evil/1": 6e5, "evil/2": 6e5}), wait=0)
    assert (refused.status, "1.2e+06 events per second" in refused.json["error"]) == (409, True)


def test_invalid_desired_network_is_stored_as_failed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desired_network, "BUFFER_PACKETS", 0)
    assert client.register(subscriber("crew", {"smoke": 1.0}), wait=0).status == 202
    wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "a failed attempt")
    wait_until(
        lambda: client.get("/v1/configurations").json[-1]["state"] == "failed",
        "a failed configuration",
    )
    assert "limit_packets" in client.get("/v1/configurations").json[-1]["error"]


def test_reserved_publisher_id_is_rejected(client: Client) -> None:
    assert client.register(publisher(UNREGISTERED, {"smoke": 1.0}), wait=0).status == 409


def test_site_publisher_with_the_reserved_id_can_be_planned() -> None:
    known = publisher(UNREGISTERED, {"smoke": 1.0})
    state = SiteState(
        publishers={UNREGISTERED: from_plain(PublisherRegistration, known)},
        topics={"smoke": DeclaredTopic(topic=Topic(name="smoke", event_bytes=9), declared_by=None)},
    )
    seen = RateSnapshot({"stray": SnapshotRate(rate_per_second=3.0)})
    names = [each.id for each in planning_scenario(site(), state, seen).publishers]
    assert names == [UNREGISTERED, f"{UNREGISTERED}.2"]


def test_network_without_the_switch_of_a_site_publisher_is_rejected(
    tmp_path: Path,
) -> None:
    own = publisher("p0", {"smoke": 1.0})
    scenario = from_plain(
        Scenario,
        {**to_plain(site()), "publishers": [own["publisher"]], "topics": own["topics"]},
    )
    network = to_plain(site().network)
    without = {**network, "switches": [s for s in network["switches"] if s["id"] != "lan"]}
    database = Database(str(tmp_path / "s.sqlite"))
    settings = SiteSettings(site=scenario, gateway=GATEWAY)
    service = ConfigurationService(ServiceOptions(settings=settings, open_to_all=True), database)
    web = create_app(service).test_client()
    refused: Any = web.put("/v1/network", json=without)
    assert (refused.status_code, "'p0'" in refused.json["error"]) == (409, True)
    assert web.post("/v1/what-if", json={"network": without}).status_code == 409
    moved = {**own, "publisher": {**own["publisher"], "switch": "core"}}
    assert web.put("/v1/publishers/p0", json=moved).status_code == 202
    assert web.put("/v1/network", json=without).status_code == 202
    assert web.delete("/v1/publishers/p0").status_code == 409, (
        "the publisher of the site needs its switch"
    )
    database.close()

"""Whatever one party registers or sends, the others have a plan."""

from pathlib import Path
from typing import Any

import pytest
from service_site import Client, publisher, serving, site, subscriber, wait_until

from firedex.service import desired_network
from firedex.service.registrations import Limits
from firedex.wire import to_plain


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


def test_an_event_too_large_for_udp_keeps_nobody_from_a_plan(tmp_path: Any) -> None:
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        client.register(publisher("p0", {"camera/1": 5.0}, event_bytes=5000))
        small = subscriber("small", {"camera/1": 1.0}, address="10.0.0.2")
        small["subscriber"]["transport"] = "udp"
        assert client.register(small).status == 200
        assert client.register(subscriber("crew", {"camera/1": 1.0})).status == 200
        assert client.get("/v1/ready").status == 200


def test_sizes_and_rates_beyond_reason_are_cut_down(tmp_path: Any) -> None:
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


def test_a_subscriber_that_no_link_reaches_is_refused_and_so_is_cutting_one_off(
    tmp_path: Any,
) -> None:
    linked = to_plain(site().network)
    linked["links"] = [{"from": "core", "to": "roof"}]
    linked["broker"] = {"id": "edge", "switch": "core"}
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        assert client.ask("PUT", "/v1/network", linked).status == 202
        away = subscriber("away", {"smoke": 1.0}, address="10.0.0.2")
        away["subscriber"]["switch"] = "lan"
        assert client.register(away).status == 409
        there = subscriber("there", {"smoke": 1.0}, address="10.0.0.3")
        there["subscriber"]["switch"] = "roof"
        assert client.register(there).status == 200
        assert client.ask("PUT", "/v1/network", {**linked, "links": []}).status == 409


@pytest.mark.parametrize(("rate", "event_bytes"), [(1e15, 100), (1e12, 268_000_000)])
def test_a_rate_beyond_what_a_meter_can_have_comes_into_force(
    tmp_path: Path, controller_url: str, rate: float, event_bytes: int
) -> None:
    limits = Limits(events_per_second_each=rate)
    with serving(tmp_path / "s.sqlite", controller=controller_url, limits=limits) as running:
        client = Client(running.url)
        client.register(subscriber("crew", {"#": 1.0}, qos=1))
        assert client.register(publisher("liar", {"evil": rate}, event_bytes)).status == 200
        assert client.get("/v1/ready").status == 200


def test_a_rate_beyond_reason_is_refused(client: Client) -> None:
    refused = client.register(publisher("liar", {"evil/1": 6e5, "evil/2": 6e5}), wait=0)
    assert (refused.status, "1.2e+06 events per second" in refused.json["error"]) == (409, True)


def test_what_the_controller_cannot_be_asked_for_is_kept_as_failed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desired_network, "BUFFER_PACKETS", 0)
    assert client.register(subscriber("crew", {"smoke": 1.0}), wait=0).status == 202
    wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "it is tried")
    wait_until(
        lambda: client.get("/v1/configurations").json[-1]["state"] == "failed", "and has failed"
    )
    assert "limit_packets" in client.get("/v1/configurations").json[-1]["error"]

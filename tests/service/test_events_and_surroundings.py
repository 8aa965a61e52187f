"""Event streams, incidents, what the controller sees, older states, metrics, TLS."""

import http.client
import json
import sqlite3
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_stream import Stream
from fake_controller import FakeController
from service_site import Client, publisher, serving, site, subscriber, wait_until

from firedex.service.core import ServiceOptions
from firedex.service.database import Database
from firedex.service.errors import StateError
from firedex.service.incident_profiles import covers
from firedex.service.planner import SiteSettings
from firedex.service.running import RunningService, ServeOptions, running_service
from firedex.wire import Configuration, from_json

SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", {"smoke/#": 10.0, "camera/#": 1.0})


@pytest.fixture
def stream(client: Client) -> Iterator[Stream]:
    made = Stream(client, "?subscriber=crew")
    yield made
    made.close()


# -- events ------------------------------------------------------------------------------------


def test_a_stream_is_told_of_versions_and_whether_they_are_its_business(
    client: Client, stream: Stream
) -> None:
    assert stream.response.headers["Content-Type"] == "text/event-stream"
    client.register(SMOKE)
    version = client.register(CREW).json["version"]
    wait_until(
        lambda: {"version": version, "changed": True} in stream.of("configuration"), "its own"
    )
    other = client.register(subscriber("other", {"heat/1": 1.0}, address="10.0.0.2"))
    told = {"version": other.json["version"], "changed": False}
    wait_until(lambda: told in stream.of("configuration"), "somebody else's")
    ids = [int(event["id"]) for event in stream.events]
    assert ids == sorted(ids)


def test_who_comes_later_is_told_the_present_version_first(client: Client) -> None:
    version = client.register(SMOKE).json["version"]
    late = Stream(client)
    wait_until(lambda: late.of("configuration") == [{"version": version}], "the present version")
    late.close()


def test_incidents_and_statistics_are_told(client: Client, stream: Stream) -> None:
    client.ask("POST", "/v1/incident", {"title": "fire"})
    client.ask("PUT", "/v1/incident/phase", {"phase": "overhaul"})
    wait_until(lambda: {"phase": "overhaul", "open": True} in stream.of("incident"), "the phase")
    client.ask("DELETE", "/v1/incident")
    wait_until(lambda: {"phase": "overhaul", "open": False} in stream.of("incident"), "its end")


def test_a_phase_is_changed_only_from_the_one_that_was_seen(client: Client) -> None:
    client.ask("POST", "/v1/incident", {"title": "fire", "phase": "search"})
    seen = {"expected_phase_since": client.get("/v1/incident").json["phase_since"]}
    assert client.ask("PUT", "/v1/incident/phase", {"phase": "attack", **seen}).status == 202
    late = client.ask("PUT", "/v1/incident/phase", {"phase": "overhaul", **seen})
    assert (late.status, late.json["error"]) == (
        412,
        "the incident has gone into the phase 'attack' meanwhile",
    )
    assert client.get("/v1/incident").json["phase"] == "attack"
    client.ask("DELETE", "/v1/incident")
    client.ask("POST", "/v1/incident", {"title": "another fire", "phase": "search"})
    assert client.ask("PUT", "/v1/incident/phase", {"phase": "attack", **seen}).status == 412
    put = client.get("/v1/openapi.json").json["paths"]["/v1/incident/phase"]["put"]
    assert "412" in put["responses"]


def test_streams_that_leave_are_forgotten(client: Client) -> None:
    streams = [Stream(client) for _ in range(5)]
    wait_until(lambda: client.get("/v1/status").json["event_streams"] == 5, "five streams")
    for each in streams:
        each.close()
    wait_until(lambda: client.get("/v1/status").json["event_streams"] == 0, "none is left")


# -- incidents ---------------------------------------------------------------------------------


def test_a_phase_swaps_utilities_and_closing_brings_them_back(tmp_path: Path) -> None:
    narrow = site(bandwidth_bits_per_second=60_000)
    with serving(tmp_path / "s.sqlite", of=narrow) as running:
        client = Client(running.url)
        client.register(SMOKE)
        own = client.register(CREW).json
        profile = {
            "rules": [
                {"filter": "camera/#", "role": "crew", "factor": 1000.0},
                {"filter": "#", "utility": {"kind": "linear", "weight": 0.001}},
            ]
        }
        client.ask("PUT", "/v1/profiles/overhaul", profile)
        opened = client.ask("POST", "/v1/incident?wait_seconds=20", {"title": "fire"})
        assert drops(client) == drops_of(own)
        assert opened.status == 200
        client.ask("PUT", "/v1/incident/phase?wait_seconds=20", {"phase": "overhaul"})
        swapped = drops(client)
        assert swapped["camera/#"] < swapped["smoke/#"]
        client.ask("DELETE", "/v1/incident?wait_seconds=20")
        assert drops(client) == pytest.approx(drops_of(own))
        assert client.get("/v1/profiles").json[0]["phase"] == "overhaul"
        hypothetical = client.ask("POST", "/v1/what-if", {"phase": "overhaul"}).json
        assert drops_of(hypothetical) == pytest.approx(swapped)


def drops_of(configuration: Any) -> dict[str, float]:
    return {n: flow["drop_rate"] for flow in configuration["flows"] for n in flow["filters"]}


def drops(client: Client) -> dict[str, float]:
    return drops_of(client.get("/v1/configuration").json)


@pytest.mark.parametrize(
    ("general", "specific", "expected"),
    [
        ("#", "smoke/1", True),
        ("smoke/#", "smoke/1", True),
        ("smoke/#", "smoke", True),
        ("smoke/#", "smoke/#", True),
        ("smoke/+", "smoke/#", False),
        ("smoke/+", "smoke/+", True),
        ("+/1", "smoke/1", True),
        ("smoke/1", "smoke/+", False),
        ("#", "$SYS/x", False),
        ("+/+", "#", False),
    ],
)
def test_a_rule_covers_what_it_matches_whole(general: str, specific: str, expected: bool) -> None:
    assert covers(general, specific) is expected


# -- what the controller sees ------------------------------------------------------------------


def test_a_subscriber_that_moves_is_planned_for_where_it_is(
    client: Client, controller: FakeController
) -> None:
    client.register(SMOKE)
    client.register(CREW)
    controller.hosts = [
        {
            "hardware_address": "00:00:00:00:00:01",
            "address": "10.0.0.1",
            "switch": "roof",
            "port": "roof-eth1",
        }
    ]

    def on(switch: str) -> int:
        network = controller.network
        assert network is not None
        return sum(len(s.flows) for s in network.switches if s.switch == switch)

    wait_until(lambda: on("roof") > 0 and on("core") == 0, "rules on the roof")
    (place,) = client.get("/v1/network").json["places"]
    assert (place["switch"], place["seen"]) == ("roof", True)
    assert client.get("/v1/audit?limit=1").json[0]["actor"] == "controller"
    versions = len(controller.pushes)
    threading.Event().wait(0.8)
    assert len(controller.pushes) == versions, "and is not planned for over and over"


def test_a_plan_keeps_to_the_classes_that_a_switch_has(
    client: Client, controller: FakeController
) -> None:
    client.register(publisher("p0", {f"t/{n}": 10.0 for n in range(4)}))
    four = subscriber("crew", {f"t/{n}": 10.0**n for n in range(4)})
    made = client.register(four).json
    assert {flow["priority"] for flow in made["flows"]} == {0, 1, 2, 3}
    controller.capabilities = [
        {
            "switch": "core",
            "datapath": "userspace",
            "priorities": 2,
            "meters": True,
            "meter_packets_per_second": True,
            "bundles": False,
        }
    ]
    wait_until(
        lambda: {f["priority"] for f in client.get("/v1/configuration").json["flows"]} == {0, 1},
        "two classes",
    )
    network = controller.network
    assert network is not None
    classes = {q.priority for s in network.switches for p in s.ports for q in p.classes}
    assert classes <= {0, 1}
    # A switch that is away for a moment has not changed; another one that is there is news.
    controller.capabilities = [{**controller.capabilities[0], "switch": "roof", "priorities": 7}]
    wait_until(
        lambda: client.get("/v1/audit?limit=1").json[0]["action"] == "capabilities", "the roof"
    )
    now = client.ask("PUT", "/v1/subscribers/crew?wait_seconds=20", four).json
    assert {flow["priority"] for flow in now["flows"]} == {0, 1}


# -- older and newer states --------------------------------------------------------------------


def test_a_state_of_the_first_release_is_taken_over(tmp_path: Path) -> None:
    """As the first form wrote it: two tables, JSON bodies."""
    file = tmp_path / "state.sqlite"
    old = sqlite3.connect(file)
    old.execute(
        "CREATE TABLE registration (kind TEXT, id TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, id))"
    )
    old.execute("CREATE TABLE configuration (version INTEGER PRIMARY KEY, body TEXT)")
    old.execute("INSERT INTO configuration VALUES (17, NULL)")
    old.execute("INSERT INTO registration VALUES ('subscriber', 'crew', ?)", (json.dumps(CREW),))
    old.execute("INSERT INTO registration VALUES ('publisher', 'p0', ?)", (json.dumps(SMOKE),))
    old.commit()
    old.close()
    with serving(file) as running:
        client = Client(running.url)
        wait_until(lambda: client.get("/v1/status").json["in_force_version"] > 0, "a plan")
        made = from_json(Configuration, client.get("/v1/configuration").body)
        assert made.version > 17
        assert {name for flow in made.flows for name in flow.filters} == {"smoke/#", "camera/#"}
        names = {topic["name"] for topic in client.get("/v1/topics").json}
        assert names == {"smoke/1", "camera/1"}


def test_a_state_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    Database(str(file)).close()
    newer = sqlite3.connect(file)
    newer.execute("UPDATE form SET number = 99")
    newer.commit()
    newer.close()
    with pytest.raises(StateError, match="form 99"):
        Database(str(file))


def test_a_state_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    file.write_bytes(b"not a database at all, but long enough to look at" * 50)
    with pytest.raises(StateError, match="cannot use the state"):
        Database(str(file))


# -- metrics and TLS ---------------------------------------------------------------------------


def test_metrics_are_prometheus_s(running: RunningService, client: Client) -> None:
    client.register(SMOKE)
    client.register(CREW)
    text = client.get("/metrics").body.decode()
    assert "firedex_subscriptions 2.0" in text
    assert "firedex_pending_changes 0.0" in text
    assert 'firedex_requests_total{endpoint="put_subscriber",status="202"} 1.0' in text
    assert f"firedex_configuration_version {running.service.version}.0" in text


def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        + ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    from service_site import GATEWAY

    options = ServeOptions(
        service=ServiceOptions(
            settings=SiteSettings(site=site(), gateway=GATEWAY), open_to_all=True
        ),
        state=str(tmp_path / "s.sqlite"),
        planner="thread",
        certificate=certificate,
        key=key,
    )
    with running_service(options) as running:
        assert running.url.startswith("https://")
        port = int(running.url.rpartition(":")[2])
        trusted = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted, timeout=10)
        connection.request("GET", "/v1/health")
        assert connection.getresponse().status == 200
        connection.close()

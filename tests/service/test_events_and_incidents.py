"""Event streams, incidents, changes seen by the controller, invalid states, metrics and TLS."""

import http.client
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firedex.service.core import ServiceOptions
from firedex.service.errors import StateError
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.utility_policy import covers
from firedex.service.running import RunningService, ServeOptions, running_service
from firedex.service.state.database import Database
from tests.support.event_stream import Stream
from tests.support.fake_controller import FakeController
from tests.support.service_site import Client, publisher, serving, site, subscriber, wait_until

SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", {"smoke/#": 10.0, "camera/#": 1.0})


@pytest.fixture
def stream(client: Client) -> Iterator[Stream]:
    configuration = Stream(client, "?subscriber=crew")
    yield configuration
    configuration.close()


# -- events ------------------------------------------------------------------------------------


def test_stream_announces_versions_and_whether_own_flows_changed(
    client: Client, stream: Stream
) -> None:
    assert stream.response.headers["Content-Type"].startswith("text/event-stream")
    client.register(SMOKE)
    version = client.register(CREW).json["version"]
    wait_until(
        lambda: {"version": version, "changed": True} in stream.data_of("configuration"),
        "a change of the own flows",
    )
    other = client.register(subscriber("other", {"heat/1": 1.0}, address="10.0.0.2"))
    expected = {"version": other.json["version"], "changed": False}
    wait_until(lambda: expected in stream.data_of("configuration"), "a change of other flows")
    ids = [int(event["id"]) for event in stream.events]
    assert ids == sorted(ids)


def test_new_stream_starts_with_the_active_version(client: Client) -> None:
    version = client.register(SMOKE).json["version"]
    late = Stream(client)
    wait_until(
        lambda: late.data_of("configuration") == [{"version": version}], "the active version"
    )
    late.close()


def test_stream_announces_incidents(client: Client, stream: Stream) -> None:
    client.ask("POST", "/v1/incident", {"title": "fire"})
    client.ask("PUT", "/v1/incident/phase", {"phase": "overhaul"})
    wait_until(
        lambda: {"phase": "overhaul", "open": True} in stream.data_of("incident"), "the phase"
    )
    client.ask("DELETE", "/v1/incident")
    wait_until(
        lambda: {"phase": "overhaul", "open": False} in stream.data_of("incident"),
        "the end of the incident",
    )


def test_phase_change_is_rejected_if_the_phase_has_changed(client: Client) -> None:
    client.ask("POST", "/v1/incident", {"title": "fire", "phase": "search"})
    seen = {"expected_phase_since": client.get("/v1/incident").json["phase_since"]}
    assert client.ask("PUT", "/v1/incident/phase", {"phase": "attack", **seen}).status == 202
    late = client.ask("PUT", "/v1/incident/phase", {"phase": "overhaul", **seen})
    assert (late.status, late.json["error"]) == (
        412,
        "the phase has changed; the incident is now in the phase 'attack'",
    )
    assert client.get("/v1/incident").json["phase"] == "attack"
    client.ask("DELETE", "/v1/incident")
    client.ask("POST", "/v1/incident", {"title": "another fire", "phase": "search"})
    assert client.ask("PUT", "/v1/incident/phase", {"phase": "attack", **seen}).status == 412
    put = client.get("/v1/openapi.json").json["paths"]["/v1/incident/phase"]["put"]
    assert "412" in put["responses"]


def test_closed_streams_are_not_counted(client: Client) -> None:
    streams = [Stream(client) for _ in range(5)]
    wait_until(lambda: client.get("/v1/status").json["event_streams"] == 5, "five streams")
    for each in streams:
        each.close()
    wait_until(lambda: client.get("/v1/status").json["event_streams"] == 0, "no open stream")


# -- incidents ---------------------------------------------------------------------------------


def test_phase_applies_its_profile_until_the_incident_is_closed(tmp_path: Path) -> None:
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
        assert active_drop_rates(client) == drop_rates_of(own)
        assert opened.status == 200
        client.ask("PUT", "/v1/incident/phase?wait_seconds=20", {"phase": "overhaul"})
        swapped = active_drop_rates(client)
        assert swapped["camera/#"] < swapped["smoke/#"]
        client.ask("DELETE", "/v1/incident?wait_seconds=20")
        assert active_drop_rates(client) == pytest.approx(drop_rates_of(own))
        assert client.get("/v1/profiles").json[0]["phase"] == "overhaul"
        hypothetical = client.ask("POST", "/v1/what-if", {"phase": "overhaul"}).json
        assert drop_rates_of(hypothetical) == pytest.approx(swapped)


def drop_rates_of(configuration: Any) -> dict[str, float]:
    return {n: flow["drop_rate"] for flow in configuration["flows"] for n in flow["filters"]}


def active_drop_rates(client: Client) -> dict[str, float]:
    return drop_rates_of(client.get("/v1/configuration").json)


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
def test_filter_covers_another_filter_only_completely(
    general: str, specific: str, expected: bool
) -> None:
    assert covers(general, specific) is expected


# -- changes seen by the controller -------------------------------------------------------------


def test_moved_subscriber_is_planned_at_its_new_switch(
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

    def rules_on(switch: str) -> int:
        network = controller.network
        assert network is not None
        return sum(len(s.flows) for s in network.switches if s.switch == switch)

    wait_until(lambda: rules_on("roof") > 0 and rules_on("core") == 0, "rules on the roof")
    (place,) = client.get("/v1/network").json["places"]
    assert (place["switch"], place["seen"]) == ("roof", True)
    assert client.get("/v1/audit?limit=1").json[0]["actor"] == "controller"
    versions = len(controller.pushes)
    threading.Event().wait(0.8)
    assert len(controller.pushes) == versions, "the move causes one plan only"


def test_plan_uses_at_most_the_classes_of_the_switch(
    client: Client, controller: FakeController
) -> None:
    client.register(publisher("p0", {f"t/{n}": 10.0 for n in range(4)}))
    four = subscriber("crew", {f"t/{n}": 10.0**n for n in range(4)})
    configuration = client.register(four).json
    assert {flow["priority"] for flow in configuration["flows"]} == {0, 1, 2, 3}
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
    # A disconnected switch keeps its capabilities; a new switch is a change.
    controller.capabilities = [{**controller.capabilities[0], "switch": "roof", "priorities": 7}]
    wait_until(
        lambda: client.get("/v1/audit?limit=1").json[0]["action"] == "capabilities", "the roof"
    )
    now = client.ask("PUT", "/v1/subscribers/crew?wait_seconds=20", four).json
    assert {flow["priority"] for flow in now["flows"]} == {0, 1}


# -- invalid databases ----------------------------------------------------------------


def test_file_that_is_no_database_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    file.write_bytes(b"not a database at all, but long enough to be read" * 50)
    with pytest.raises(StateError, match="cannot use the state"):
        Database(str(file))


# -- metrics and TLS ---------------------------------------------------------------------------


def test_metrics_have_the_prometheus_format(running: RunningService, client: Client) -> None:
    client.register(SMOKE)
    client.register(CREW)
    text = client.get("/metrics").body.decode()
    assert "firedex_subscriptions 2.0" in text
    assert "firedex_pending_changes 0.0" in text
    assert 'firedex_requests_total{endpoint="put_subscriber",status="202"} 1.0' in text
    assert f"firedex_configuration_version {running.service.version}.0" in text


def test_service_uses_tls_with_a_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        + ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    from tests.support.service_site import GATEWAY

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
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted, timeout=60)
        connection.request("GET", "/v1/health")
        assert connection.getresponse().status == 200
        connection.close()

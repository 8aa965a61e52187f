"""Real federators between real Mosquittos."""

import asyncio
import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pyarrow.parquet as pq
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from firedex.federation.frames import FrameSplitter, FrameType, decode_json, encode_json
from tests.support.memory_federation import full_mesh
from tests.support.real_federation import Collector, RealFederation, connected_client
from tests.support.waiting import wait_until

LINE = [("a", "b"), ("b", "c")]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFederation]:
    folder = tmp_path_factory.mktemp("line")
    with RealFederation(
        folder,
        LINE,
        broker_log=True,
        interest={"c": ["static/#"]},
        more_settings={"announcement_log": {"folder": "announcements", "seconds_per_file": 1}},
    ) as federation:
        yield federation


@pytest.fixture
def topic() -> str:
    """Return a topic that no other test uses."""
    return f"alarm/{uuid.uuid4().hex}"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_event_reaches_a_subscriber_two_sites_away(
    line: RealFederation, topic: str, qos: int
) -> None:
    with (
        connected_client(line.broker_ports["c"]) as subscriber,
        connected_client(line.broker_ports["a"]) as publisher,
    ):
        received = Collector(subscriber, topic)
        line.wait_for_interest("c", topic)
        expected = [str(number) for number in range(50)]
        for payload in expected:
            publisher.publish(topic, payload, qos)
        wait_until(lambda: len(received.messages) >= 50, "all events arrive")
        assert received.payloads() == expected
        assert {message.qos for message in received.messages} == {qos}
    wait_until(line.journals_are_empty, "all events are acknowledged", poll_seconds=0.1)


def test_event_that_the_broker_of_a_site_does_not_accept_blocks_no_other(tmp_path: Path) -> None:
    """Mosquitto ends the session if a packet is larger than its limit."""
    with RealFederation(tmp_path, [("a", "b")], interest={"b": ["alarm/#"]}) as federation:
        federation.brokers["b"].kill()
        federation.start_broker("b", "max_packet_size 2000")
        federation.wait_for_interest("b", "alarm/#")
        with (
            connected_client(federation.broker_ports["b"]) as subscriber,
            connected_client(federation.broker_ports["a"]) as publisher,
        ):
            received = Collector(subscriber, "alarm/#")
            for qos in (1, 2):
                publisher.publish(f"alarm/{qos}", "x" * 5000, qos)
                publisher.publish(f"alarm/{qos}", f"small {qos}", qos)
            received.wait_for_count(2)
            assert sorted(received.payloads()) == ["small 1", "small 2"]
        wait_until(federation.journals_are_empty, "all events are acknowledged", poll_seconds=0.1)
        assert federation.status("b")["counters"]["too_large"] == 2
        log = (tmp_path / "b.log").read_text()
        assert log.count("on topic alarm/1:") == log.count("on topic alarm/2:") == 1


def test_properties_and_large_payloads_arrive_unchanged(line: RealFederation, topic: str) -> None:
    payload = bytes(range(256)) * 4096  # 1 MB
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("unit", "°C"), ("unit", "K")]
    properties.ContentType = "application/octet-stream"
    properties.ResponseTopic = "answers/here"
    properties.CorrelationData = b"\x00\x01"
    with (
        connected_client(line.broker_ports["c"]) as subscriber,
        connected_client(line.broker_ports["a"]) as publisher,
    ):
        received = Collector(subscriber, topic)
        line.wait_for_interest("c", topic)
        publisher.publish(topic, payload, 1, properties=properties)
        wait_until(lambda: received.messages, "the event arrives")
        (message,) = received.messages
        assert message.payload == payload
        assert message.properties is not None
        assert message.properties.json() == properties.json()


def test_overlapping_filters_deliver_one_copy(line: RealFederation, topic: str) -> None:
    first, last = topic.split("/")
    with (
        connected_client(line.broker_ports["b"]) as at_b,
        connected_client(line.broker_ports["c"]) as at_c,
        connected_client(line.broker_ports["a"]) as publisher,
    ):
        received_b = Collector(at_b, f"+/{last}")
        received_c = Collector(at_c, f"{first}/{last}")
        line.wait_for_interest("b", f"+/{last}")
        line.wait_for_interest("c", f"{first}/{last}")
        publisher.publish(topic, "once", 1).wait_for_publish(60)
        publisher.publish(topic, "last", 1).wait_for_publish(60)
        for received in (received_b, received_c):
            received.wait_for("last")
            assert received.payloads() == ["once", "last"]


def test_static_interest_needs_no_subscriber_log(line: RealFederation) -> None:
    with (
        connected_client(line.broker_ports["c"]) as subscriber,
        connected_client(line.broker_ports["a"]) as publisher,
    ):
        received = Collector(subscriber, "static/1")
        line.wait_for_interest("c", "static/#")
        publisher.publish("static/1", "x", 1)
        wait_until(lambda: received.payloads() == ["x"], "the event arrives")


def test_retained_value_reaches_a_late_subscriber(line: RealFederation, topic: str) -> None:
    with connected_client(line.broker_ports["a"]) as publisher:
        publisher.publish(topic, "kept", 1, retain=True).wait_for_publish(60)
    with connected_client(line.broker_ports["c"]) as subscriber:
        received = Collector(subscriber, topic)
        wait_until(lambda: received.payloads() == ["kept"], "the retained value arrives")
        with connected_client(line.broker_ports["a"]) as publisher:
            publisher.publish(topic, "", 1, retain=True).wait_for_publish(60)
        wait_until(lambda: received.payloads() == ["kept", ""], "the deletion arrives")
    with connected_client(line.broker_ports["c"]) as subscriber:
        later = Collector(subscriber, topic)
        subscriber.publish(topic, "new", 1).wait_for_publish(60)
        wait_until(lambda: "new" in later.payloads(), "the subscription is active")
        assert later.payloads() == ["new"]


def test_mosquitto_clients_exchange_events(line: RealFederation, topic: str) -> None:
    subscriber = subprocess.Popen(
        ["mosquitto_sub", "-p", str(line.broker_ports["c"]), "-t", topic, "-q", "1", "-C", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line.wait_for_interest("c", topic)
        publish = ["mosquitto_pub", "-p", str(line.broker_ports["a"]), "-t", topic, "-q", "1"]
        subprocess.run([*publish, "-m", "smoke"], check=True)
        assert subscriber.communicate(timeout=60)[0] == "smoke\n"
    finally:
        subscriber.kill()
        subscriber.wait()


def test_system_topics_do_not_cross(line: RealFederation) -> None:
    """Not even for a site that wants everything."""
    with connected_client(line.broker_ports["c"]) as subscriber:
        received = Collector(subscriber, "#")
        line.wait_for_interest("c", "#")
        with connected_client(line.broker_ports["a"]) as publisher:
            publisher.publish("$test/hidden", "x", 1)
            publisher.publish("firedex/federation/fake", "x", 1).wait_for_publish(60)
            publisher.publish("visible", "x", 1).wait_for_publish(60)
        wait_until(lambda: "visible" in {m.topic for m in received.messages}, "visible arrives")
        topics = {m.topic for m in received.messages}
        assert not any(name.startswith("$") or name.endswith("fake") for name in topics)


def test_status_and_trace_commands(line: RealFederation, topic: str) -> None:
    with connected_client(line.broker_ports["c"]) as subscriber:
        Collector(subscriber, topic)
        line.wait_for_interest("c", topic)
        shown = subprocess.run(
            line.command("status", "--json"), capture_output=True, text=True, check=True
        )
        summary = json.loads(shown.stdout)
        assert [site["id"] for site in summary["sites"]] == ["a", "b", "c"]
        assert [link["between"] for link in summary["links"]] == [["a", "b"], ["b", "c"]]
        assert topic in summary["interest"]["c"]
        assert summary["journal"]["a"]["events"] == 0
        traced = subprocess.run(
            line.command("trace", topic, "--from", "a", "--json"),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        (result,) = json.loads(traced.stdout)["results"]
        assert [hop[0] for hop in result["hops"]] == ["a", "b", "c"]


def test_announced_interest_is_logged_at_every_site(line: RealFederation) -> None:
    def logged() -> set[tuple[str, str]]:
        files = (line.folder / "announcements").glob("*.parquet")
        return {
            (row["observer"], row["origin"])
            for file in files
            for row in pq.read_table(file).to_pylist()
            if (row["change"], row["filter"]) == ("announced", "static/#")
        }

    wait_until(lambda: logged() == {(site, "c") for site in "abc"}, "all sites log the filter")
    assert line.status("a")["announcement_log"]["failure"] is None


def test_full_mesh_delivers_one_copy(tmp_path: Path) -> None:
    interest = {f"s{number}": ["smoke/#"] for number in range(6)}
    with RealFederation(tmp_path, full_mesh(6), interest=interest) as federation:
        for site in federation.sites:
            federation.wait_for_interest(site, "smoke/#")
        clients = [connected_client(federation.broker_ports[site]) for site in federation.sites]
        opened = [client.__enter__() for client in clients]
        try:
            received = [Collector(client, "smoke/#") for client in opened]
            for number in range(30):
                opened[0].publish("smoke/1", str(number), number % 3)
            opened[0].publish("smoke/1", "end", 1)
            for collector in received:
                collector.wait_for_count(31)
                numbers = [int(p) for p in collector.payloads() if p != "end"]
                for qos in range(3):
                    of_qos = [number for number in numbers if number % 3 == qos]
                    assert of_qos == list(range(qos, 30, 3))
        finally:
            for client in clients:
                client.__exit__(None, None, None)


def test_killed_federators_lose_no_acknowledged_event(tmp_path: Path) -> None:
    """QoS 2 events arrive exactly once while each federator on the path is killed in turn."""
    with RealFederation(tmp_path, LINE, interest={"c": ["alarm/#"]}) as federation:
        federation.wait_for_interest("c", "alarm/#")
        with (
            connected_client(federation.broker_ports["c"]) as subscriber,
            connected_client(federation.broker_ports["a"]) as publisher,
        ):
            received = Collector(subscriber, "alarm/#")
            sent: list[str] = []

            def publish(count: int) -> list[paho.MQTTMessageInfo]:
                infos = []
                for _ in range(count):
                    sent.append(str(len(sent)))
                    infos.append(publisher.publish("alarm/1", sent[-1], 2))
                return infos

            for site in ("a", "b", "c", "a"):
                infos = publish(30)
                federation.kill(site)
                infos += publish(30)
                federation.restart(site)
                infos += publish(30)
                for info in infos:
                    info.wait_for_publish(60)
            wait_until(lambda: len(received.messages) >= len(sent), "all events arrive")
            wait_until(federation.journals_are_empty, "journals are empty", poll_seconds=0.1)
            assert received.payloads() == sent


def federation_sites(federation: RealFederation) -> dict[str, dict[str, Any]]:
    """Return what site a knows about each site."""
    return {site["id"]: site for site in federation.status("a")["sites"]}


def is_reachable(federation: RealFederation, site: str) -> bool:
    """Return whether site a can reach a site."""
    return bool(federation_sites(federation)[site]["reachable"])


def test_silent_neighbour_is_detected_and_the_detour_is_used(tmp_path: Path) -> None:
    links = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")]
    with RealFederation(
        tmp_path, links, interest={"d": ["alarm/#"]}, lease_seconds=1.0
    ) as federation:
        federation.wait_for_interest("d", "alarm/#")
        with (
            connected_client(federation.broker_ports["d"]) as subscriber,
            connected_client(federation.broker_ports["a"]) as publisher,
        ):
            received = Collector(subscriber, "alarm/#")
            used = federation_sites(federation)["d"]["next_hop"]
            other = {"b": "c", "c": "b"}[used]
            federation.suspend(used)
            publisher.publish("alarm/1", "over the detour", 1)
            wait_until(lambda: received.payloads() == ["over the detour"], "the event arrives")
            wait_until(lambda: not is_reachable(federation, used), "both neighbours lose the site")
            assert federation_sites(federation)["d"]["next_hop"] == other
            federation.resume(used)
            wait_until(lambda: is_reachable(federation, used), "the silent site returns")


def test_loss_of_a_site_is_an_event(tmp_path: Path) -> None:
    with (
        RealFederation(tmp_path, [("a", "b")]) as federation,
        connected_client(federation.broker_ports["a"]) as subscriber,
    ):
        received = Collector(subscriber, "firedex/federation/sites/b")
        wait_until(lambda: received.payloads()[-1:] == ["up"], "b is up")
        federation.kill("b")
        wait_until(lambda: received.payloads()[-1:] == ["down"], "the loss is published")


def test_other_protocol_version_is_refused_by_name(tmp_path: Path) -> None:
    with RealFederation(tmp_path, [("a", "b")]) as federation:

        async def greet() -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", federation.link_ports["a"])
            writer.write(encode_json(
                FrameType.HELLO,
                {"federation": "test", "site": "z", "role": "peer", "protocol": [7, 9]},
            ))  # fmt: skip
            splitter = FrameSplitter(100_000)
            while data := await reader.read(1000):
                for kind, body in splitter.feed(data):
                    if kind == FrameType.REFUSAL:
                        writer.close()
                        return str(decode_json(body)["reason"])
            return ""

        assert "protocol versions [7, 9] are not supported" in asyncio.run(greet())
        refused = federation.status("a")["refused_peers"]
        assert any("protocol versions" in entry["reason"] for entry in refused)

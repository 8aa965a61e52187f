"""A broker with MQTT 3.1.1 only (aMQTT) as one site of a federation."""

import sys
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from firedex.system.processes import ChildProcess, accepts_connections
from tests.support.free_ports import free_port
from tests.support.real_federation import Collector, RealFederation, connected_client
from tests.support.waiting import wait_until


@pytest.fixture
def amqtt_port(tmp_path: Path) -> Iterator[int]:
    """Run aMQTT, and return its port."""
    port = free_port()
    program = Path(__file__).parents[1] / "support" / "amqtt_program.py"
    process = ChildProcess([sys.executable, str(program), str(port)], tmp_path / "amqtt.log")
    try:
        wait_until(lambda: accepts_connections("127.0.0.1", port), "aMQTT listens")
        yield port
    finally:
        process.kill()


@pytest.fixture
def mixed(tmp_path: Path, amqtt_port: int) -> Iterator[RealFederation]:
    interest = {"old": ["alarm/#"], "new": ["alarm/#"]}
    with RealFederation(
        tmp_path, [("old", "new")], interest=interest, external_brokers={"old": amqtt_port}
    ) as federation:
        federation.wait_for_interest("old", "alarm/#")
        federation.wait_for_interest("new", "alarm/#")
        yield federation


def test_events_cross_once_in_both_directions(mixed: RealFederation) -> None:
    """Without no-local, the federator must not send its own events back."""
    with (
        connected_client(mixed.broker_ports["old"], protocol=paho.MQTTv311) as old,
        connected_client(mixed.broker_ports["new"]) as new,
    ):
        at_old, at_new = Collector(old, "alarm/#", qos=1), Collector(new, "alarm/#", qos=1)
        for number in range(20):
            new.publish("alarm/a", f"from new {number}", number % 2)
            old.publish("alarm/b", f"from old {number}", number % 2)
        new.publish("alarm/a", "end", 1).wait_for_publish(60)
        old.publish("alarm/b", "end", 1).wait_for_publish(60)
        for collector in (at_old, at_new):
            collector.wait_for_count(42)
        # a second round trip: an echo of the first events would have arrived before it
        new.publish("alarm/a", "last", 1).wait_for_publish(60)
        at_old.wait_for("last")
        for collector in (at_old, at_new):
            for topic, source in (("alarm/a", "new"), ("alarm/b", "old")):
                expected = [f"from {source} {n}" for n in range(20)]
                found = [p for p in collector.payloads(topic) if p not in ("end", "last")]
                assert sorted(found) == sorted(expected), (source, topic)

"""MQTT-SN clients of two sites, each behind the gateway of its site."""

from pathlib import Path

import pytest

from firedex.transport.mqtt_sn import Puback, Publish
from tests.support.failing_federation import FailingFederation
from tests.support.real_federation import Collector, connected_client
from tests.support.sn_parts import BareClient


@pytest.mark.slow
def test_mqtt_sn_clients_of_two_sites_exchange_events(tmp_path: Path) -> None:
    with (
        FailingFederation(tmp_path, [("a", "b")], lease_seconds=3.0) as federation,
        BareClient(federation.sn_ports["a"], "sensor") as sensor,
        BareClient(federation.sn_ports["b"], "crew") as crew,
        connected_client(federation.gateway_ports["a"]) as chief,
    ):
        crew.connect(seconds=300).subscribe("alarm/+", qos=1)
        at_a = Collector(chief, "report/#")
        federation.wait_for_interest("b", "alarm/+")
        federation.wait_for_interest("a", "report/#")

        sensor.connect(seconds=300)
        topic_id = sensor.register("alarm/floor3")
        alarm = Publish(topic_id=topic_id, message_id=sensor.next_id(), qos=1, payload=b"smoke")
        assert sensor.ask(alarm, Puback).return_code == 0
        event, topic = crew.take_event()
        assert (topic, event.payload, event.qos) == ("alarm/floor3", b"smoke", 1)
        crew.send(Puback(topic_id=event.topic_id, message_id=event.message_id, return_code=0))

        report_id = crew.register("report/floor3")
        report = Publish(topic_id=report_id, message_id=crew.next_id(), qos=1, payload=b"clear")
        crew.send(report)
        at_a.wait_for("clear")

"""Paths through several switches: delays add up, losses multiply, every port is a queue."""

from typing import Any

import pytest

from firedex.planning import plan_scenario
from firedex.wire import Scenario, from_plain
from firedex.wire.network import missing_path_reason, switches_on_path
from tests.support.small_site import (
    Document,
    assign,
    path_of_two_switches,
    predict_site,
    publisher_entry,
    queue_load,
    site,
    subscriber_entry,
)

PACKET_BITS = 800


def mean_delay(document: Document, row: int = 0, **options: Any) -> float:
    delay = predict_site(document, **options).subscriptions[row].delay_mean_seconds
    assert delay is not None
    return delay


def test_delay_of_idle_path_is_sum_of_transmission_and_propagation() -> None:
    document = path_of_two_switches(propagation_seconds=0.2)
    document["publishers"] = [publisher_entry("p0", {"smoke/1": 1e-6})]
    document["network"]["switches"][0]["propagation_seconds"] = 0.05
    document["network"]["switches"][1]["propagation_seconds"] = 0.1
    transmissions = PACKET_BITS / 1e9 + PACKET_BITS / 1e6 + PACKET_BITS / 5e5
    assert mean_delay(document) == pytest.approx(0.05 + 0.1 + 0.2 + transmissions, rel=1e-6)


def test_error_rates_multiply_and_reduce_later_loads() -> None:
    document = path_of_two_switches(error_rate=0.2)
    document["network"]["switches"][0]["error_rate"] = 0.5
    document["network"]["switches"][1]["error_rate"] = 0.1
    document["network"]["broker"]["in_events_per_second"] = 1000.0
    prediction = predict_site(document)
    assert prediction.subscriptions[0].success_rate == pytest.approx(0.5 * 0.9 * 0.8)
    assert queue_load(prediction, "b1 in") == pytest.approx(70 * 0.5 / 1000)
    assert queue_load(prediction, "s1->s2") == pytest.approx(15 * PACKET_BITS / 1e6)
    assert queue_load(prediction, "s2 to hosts") == pytest.approx(15 * 0.9 * PACKET_BITS / 5e5)


def test_link_bandwidth_overrides_switch_bandwidth() -> None:
    document = path_of_two_switches()
    assert queue_load(predict_site(document), "s1->s2") == pytest.approx(30 * PACKET_BITS / 1e6)
    document["network"]["links"][0]["bandwidth_bits_per_second"] = 2e5
    assert queue_load(predict_site(document), "s1->s2") == pytest.approx(30 * PACKET_BITS / 2e5)


def test_each_switch_port_has_its_own_queue() -> None:
    document = path_of_two_switches()
    document["subscribers"].append(subscriber_entry("local", "heat/1", switch="s1"))
    document["assignment"].append(assign("local", "heat/1"))
    prediction = predict_site(document)
    assert queue_load(prediction, "s1->s2") == pytest.approx(30 * PACKET_BITS / 1e6)
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(40 * PACKET_BITS / 1e6)
    switches = {switch.id: switch.utilization for switch in prediction.switches}
    assert switches["s1"] == pytest.approx(40 * PACKET_BITS / 1e6)


@pytest.mark.parametrize("name", ["hosts", "broker"])
def test_switch_may_be_named_hosts_or_broker(name: str) -> None:
    def loads(switch: str) -> list[float]:
        document = path_of_two_switches()
        document["network"]["switches"][2]["id"] = switch
        document["network"]["links"] = [{"from": "s1", "to": switch}]
        document["subscribers"] = [
            subscriber_entry("far", "smoke/#", switch=switch),
            subscriber_entry("near", "heat/1"),
        ]
        document["publishers"].append(publisher_entry("p1", {"heat/1": 5.0}, switch=switch))
        document["publishers"].append(publisher_entry("p2", {"heat/1": 7.0}, switch="s1"))
        document["assignment"] = [assign("far", "smoke/#"), assign("near", "heat/1")]
        return [queue.utilization for queue in predict_site(document).queues]

    assert loads(name) == pytest.approx(loads("s2"))


def test_unmanaged_switch_ignores_priorities() -> None:
    def delays(*, managed: bool) -> list[float]:
        document = path_of_two_switches(managed=managed)
        document["network"]["switches"][1]["bandwidth_bits_per_second"] = 1e12
        document["publishers"] = [publisher_entry("p0", {"smoke/1": 250.0})]
        document["subscribers"] = [
            subscriber_entry("first", "smoke/1", switch="s2"),
            subscriber_entry("second", "smoke/1", switch="s2"),
        ]
        document["assignment"] = [
            assign("first", "smoke/1", priority=0),
            assign("second", "smoke/1", priority=1),
        ]
        return [mean_delay(document, row) for row in range(2)]

    unmanaged_first, unmanaged_second = delays(managed=False)
    first, second = delays(managed=True)
    assert unmanaged_first == pytest.approx(unmanaged_second)
    assert first < unmanaged_first < second


def test_metered_events_load_unmanaged_switches_before_the_meter() -> None:
    document = path_of_two_switches(in_packets_per_second=1000.0)
    document["network"]["switches"][1]["managed"] = False
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.5, enforced_at="meter")]
    prediction = predict_site(document)
    assert queue_load(prediction, "s1->s2") == pytest.approx(30 * PACKET_BITS / 1e6)
    assert queue_load(prediction, "s2 in") == pytest.approx(0.03)
    assert queue_load(prediction, "s2 to hosts") == pytest.approx(15 * PACKET_BITS / 5e5)


def test_metered_events_do_not_load_switches_after_the_meter() -> None:
    document = path_of_two_switches(in_packets_per_second=1000.0)
    document["network"]["switches"][1]["in_packets_per_second"] = 1000.0
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.5, enforced_at="meter")]
    prediction = predict_site(document)
    assert queue_load(prediction, "s1 in") == pytest.approx(0.03)
    assert queue_load(prediction, "s2 in") == pytest.approx(0.015)


def test_number_of_classes_is_the_minimum_on_the_path() -> None:
    document = path_of_two_switches(priorities=2)
    document["subscribers"] = [
        subscriber_entry("command", "smoke/1", "smoke/2", "heat/1", switch="s2")
    ]
    del document["assignment"]
    plan = plan_scenario(from_plain(Scenario, document), drop_policy="none")
    assert sorted(entry.priority for entry in plan.assignment) == [0, 0, 1]


def test_publications_load_every_switch_on_the_path_to_the_broker() -> None:
    document = path_of_two_switches()
    document["publishers"].append(publisher_entry("p1", {"heat/1": 5.0}, switch="s2"))
    prediction = predict_site(document)
    assert queue_load(prediction, "s2->s1") == pytest.approx(5 * PACKET_BITS / 5e5)
    assert queue_load(prediction, "s1 to broker") == pytest.approx(5 * PACKET_BITS / 1e6)


def test_uplink_delay_follows_selected_fifo_model() -> None:
    document = site()
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 70 * PACKET_BITS / 0.5
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 1e13
    service = 0.5 / 70
    assert mean_delay(document) == pytest.approx(1.5 * service, rel=1e-6)
    assert mean_delay(document, fifo="paper") == pytest.approx(2 * service, rel=1e-6)


def test_packets_of_one_publication_wait_for_each_other() -> None:
    document = site(subscribers=[subscriber_entry(f"c{n}", "smoke/1") for n in range(5)])
    document["assignment"] = [assign(f"c{n}", "smoke/1") for n in range(5)]
    document["publishers"] = [publisher_entry("p0", {"smoke/1": 1e-6})]
    service, uplink = PACKET_BITS / 1e6, PACKET_BITS / 1e9
    together = uplink + 3 * service  # on average, two of the other four are sent first
    assert mean_delay(document) == pytest.approx(together, rel=1e-6)
    assert mean_delay(document, model="independent") == pytest.approx(uplink + service, rel=1e-6)


TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]


def test_route_with_fewest_links_is_chosen() -> None:
    assert switches_on_path(TRIANGLE, None, "c") == ("a", "c")
    assert switches_on_path(TRIANGLE, "b", "a") == ("b", "a")
    assert switches_on_path([*TRIANGLE, ("c", "d")], "b", "d") == ("b", "c", "d")


def test_switch_without_links_is_connected_to_the_broker() -> None:
    assert switches_on_path(TRIANGLE, None, "z") == ("z",)
    assert missing_path_reason(TRIANGLE, None, "z") is None
    assert missing_path_reason([], None, "z") is None


def test_links_are_bidirectional_if_broker_switch_is_known() -> None:
    assert switches_on_path([("a", "b")], "b", "a") == ("b", "a")
    assert missing_path_reason([("a", "b")], "b", "a") is None

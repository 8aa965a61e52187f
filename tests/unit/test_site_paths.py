"""Ways through several switches: delays add, losses multiply, every port is a queue."""

from typing import Any

import pytest
from small_site import (
    Document,
    assign,
    path_of_two_switches,
    predicted,
    published,
    queue_of,
    site,
    subscribed,
)

from firedex.planning import plan_scenario
from firedex.wire import Scenario, from_plain
from firedex.wire.network_paths import path_problem, switches_on_path

PACKET_BITS = 800


def mean(document: Document, row: int = 0, **options: Any) -> float:
    delay = predicted(document, **options).subscriptions[row].delay_mean_seconds
    assert delay is not None
    return delay


def test_on_an_idle_path_transmissions_and_propagations_add() -> None:
    document = path_of_two_switches(propagation_seconds=0.2)
    document["publishers"] = [published("p0", {"smoke/1": 1e-6})]
    document["network"]["switches"][0]["propagation_seconds"] = 0.05
    document["network"]["switches"][1]["propagation_seconds"] = 0.1
    transmissions = PACKET_BITS / 1e9 + PACKET_BITS / 1e6 + PACKET_BITS / 5e5
    assert mean(document) == pytest.approx(0.05 + 0.1 + 0.2 + transmissions, rel=1e-6)


def test_error_rates_multiply_and_thin_what_comes_after() -> None:
    document = path_of_two_switches(error_rate=0.2)
    document["network"]["switches"][0]["error_rate"] = 0.5
    document["network"]["switches"][1]["error_rate"] = 0.1
    document["network"]["broker"]["in_events_per_second"] = 1000.0
    prediction = predicted(document)
    assert prediction.subscriptions[0].success_rate == pytest.approx(0.5 * 0.9 * 0.8)
    assert queue_of(prediction, "b1 in") == pytest.approx(70 * 0.5 / 1000)
    assert queue_of(prediction, "s1->s2") == pytest.approx(15 * PACKET_BITS / 1e6)
    assert queue_of(prediction, "s2 to hosts") == pytest.approx(15 * 0.9 * PACKET_BITS / 5e5)


def test_a_links_bandwidth_stands_instead_of_the_switchs() -> None:
    document = path_of_two_switches()
    assert queue_of(predicted(document), "s1->s2") == pytest.approx(30 * PACKET_BITS / 1e6)
    document["network"]["links"][0]["bandwidth_bits_per_second"] = 2e5
    assert queue_of(predicted(document), "s1->s2") == pytest.approx(30 * PACKET_BITS / 2e5)


def test_the_ports_of_a_switch_are_queues_of_their_own() -> None:
    document = path_of_two_switches()
    document["subscribers"].append(subscribed("local", "heat/1", switch="s1"))
    document["assignment"].append(assign("local", "heat/1"))
    prediction = predicted(document)
    assert queue_of(prediction, "s1->s2") == pytest.approx(30 * PACKET_BITS / 1e6)
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(40 * PACKET_BITS / 1e6)
    switches = {switch.id: switch.utilization for switch in prediction.switches}
    assert switches["s1"] == pytest.approx(40 * PACKET_BITS / 1e6)


@pytest.mark.parametrize("name", ["hosts", "broker"])
def test_a_switch_may_be_called_what_a_port_leads_to(name: str) -> None:
    def loads(switch: str) -> list[float]:
        document = path_of_two_switches()
        document["network"]["switches"][2]["id"] = switch
        document["network"]["links"] = [{"from": "s1", "to": switch}]
        document["subscribers"] = [
            subscribed("far", "smoke/#", switch=switch),
            subscribed("near", "heat/1"),
        ]
        document["publishers"].append(published("p1", {"heat/1": 5.0}, switch=switch))
        document["publishers"].append(published("p2", {"heat/1": 7.0}, switch="s1"))
        document["assignment"] = [assign("far", "smoke/#"), assign("near", "heat/1")]
        return [queue.utilization for queue in predicted(document).queues]

    assert loads(name) == pytest.approx(loads("s2"))


def test_an_unmanaged_switch_on_the_way_serves_in_order_of_arrival() -> None:
    def delays(*, managed: bool) -> list[float]:
        document = path_of_two_switches(managed=managed)
        document["network"]["switches"][1]["bandwidth_bits_per_second"] = 1e12
        document["publishers"] = [published("p0", {"smoke/1": 250.0})]
        document["subscribers"] = [
            subscribed("first", "smoke/1", switch="s2"),
            subscribed("second", "smoke/1", switch="s2"),
        ]
        document["assignment"] = [
            assign("first", "smoke/1", priority=0),
            assign("second", "smoke/1", priority=1),
        ]
        return [mean(document, row) for row in range(2)]

    same_first, same_second = delays(managed=False)
    first, second = delays(managed=True)
    assert same_first == pytest.approx(same_second)
    assert first < same_first < second


def test_what_a_meter_drops_has_crossed_the_unmanaged_switches_before_it() -> None:
    document = path_of_two_switches(in_packets_per_second=1000.0)
    document["network"]["switches"][1]["managed"] = False
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.5, enforced_at="meter")]
    prediction = predicted(document)
    assert queue_of(prediction, "s1->s2") == pytest.approx(30 * PACKET_BITS / 1e6)
    assert queue_of(prediction, "s2 in") == pytest.approx(0.03)
    assert queue_of(prediction, "s2 to hosts") == pytest.approx(15 * PACKET_BITS / 5e5)


def test_what_the_first_meter_drops_the_second_switch_never_sees() -> None:
    document = path_of_two_switches(in_packets_per_second=1000.0)
    document["network"]["switches"][1]["in_packets_per_second"] = 1000.0
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.5, enforced_at="meter")]
    prediction = predicted(document)
    assert queue_of(prediction, "s1 in") == pytest.approx(0.03)
    assert queue_of(prediction, "s2 in") == pytest.approx(0.015)


def test_the_number_of_classes_is_the_smallest_on_the_way() -> None:
    document = path_of_two_switches(priorities=2)
    document["subscribers"] = [subscribed("command", "smoke/1", "smoke/2", "heat/1", switch="s2")]
    del document["assignment"]
    plan = plan_scenario(from_plain(Scenario, document), drop_policy="none")
    assert sorted(entry.priority for entry in plan.assignment) == [0, 0, 1]


def test_publications_cross_every_switch_to_the_broker() -> None:
    document = path_of_two_switches()
    document["publishers"].append(published("p1", {"heat/1": 5.0}, switch="s2"))
    prediction = predicted(document)
    assert queue_of(prediction, "s2->s1") == pytest.approx(5 * PACKET_BITS / 5e5)
    assert queue_of(prediction, "s1 to broker") == pytest.approx(5 * PACKET_BITS / 1e6)


def test_a_publishers_link_by_pollaczek_khinchine_or_by_the_paper() -> None:
    document = site()
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 70 * PACKET_BITS / 0.5
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 1e13
    service = 0.5 / 70
    assert mean(document) == pytest.approx(1.5 * service, rel=1e-6)
    assert mean(document, fifo="paper") == pytest.approx(2 * service, rel=1e-6)


def test_packets_that_arrive_together_wait_for_each_other() -> None:
    document = site(subscribers=[subscribed(f"c{n}", "smoke/1") for n in range(5)])
    document["assignment"] = [assign(f"c{n}", "smoke/1") for n in range(5)]
    document["publishers"] = [published("p0", {"smoke/1": 1e-6})]
    service, uplink = PACKET_BITS / 1e6, PACKET_BITS / 1e9
    together = uplink + 3 * service  # two of the four mates go first
    assert mean(document) == pytest.approx(together, rel=1e-6)
    assert mean(document, model="independent") == pytest.approx(uplink + service, rel=1e-6)


TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]


def test_the_way_with_the_fewest_links_is_taken() -> None:
    assert switches_on_path(TRIANGLE, None, "c") == ("a", "c")
    assert switches_on_path(TRIANGLE, "b", "a") == ("b", "a")
    assert switches_on_path([*TRIANGLE, ("c", "d")], "b", "d") == ("b", "c", "d")


def test_a_switch_without_links_has_the_broker_right_behind_it() -> None:
    assert switches_on_path(TRIANGLE, None, "z") == ("z",)
    assert path_problem(TRIANGLE, None, "z") is None
    assert path_problem([], None, "z") is None


def test_links_are_followed_both_ways_when_the_broker_is_known() -> None:
    assert switches_on_path([("a", "b")], "b", "a") == ("b", "a")
    assert path_problem([("a", "b")], "b", "a") is None

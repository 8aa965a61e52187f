"""What the controller does to a switch: the same tests on the fake and on Open vSwitch.

Here they run on the fake; ``tests/emulation/test_enforcement.py`` runs this file again, inside a
sandbox, with FIREDEX_SUITE_SWITCH=ovs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_process import FRAMEWORKS, ControllerProcess, wait_until
from desired_examples import flow_rule, network
from suite_switches import FakeSuiteSwitch, OpenVSwitch, SuiteSwitch

from firedex.wire import DesiredNetwork, to_json
from firedex_controller.fake_switch import FakeNetwork
from firedex_controller.marks import dscp_of_class

ON_OPEN_VSWITCH = os.environ.get("FIREDEX_SUITE_SWITCH") == "ovs"
THREE = network(*(flow_rule(flow=n, priority=n) for n in range(3)), version=1)


@pytest.fixture(params=FRAMEWORKS)
def controller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerProcess]:
    made = ControllerProcess(request.param, tmp_path, {"core": 1})
    made.start()
    yield made
    made.kill()


@pytest.fixture
def switch(controller: ControllerProcess) -> Iterator[SuiteSwitch]:
    if ON_OPEN_VSWITCH:
        real = OpenVSwitch(controller.openflow)
        controller.wait_until_settled()
        yield real
        real.close()
        return
    with FakeNetwork(controller=controller.openflow) as fakes:
        fake = FakeSuiteSwitch(fakes)
        controller.wait_until_settled()
        yield fake


def ports(switch: SuiteSwitch) -> list[int]:
    return [flow.port for flow in switch.flows()]


def test_every_flow_gets_its_class_mark_and_meter(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    change = controller.put(THREE)
    found = switch.flows()
    assert [flow.port for flow in found] == [20_000 + n for n in range(6)]
    assert [flow.queue for flow in found] == [0, 0, 1, 1, 2, 2]
    assert all(flow.dscp == dscp_of_class(flow.queue) for flow in found)
    assert all(flow.version == 1 for flow in found)
    assert len({flow.meter for flow in found}) == 3
    assert all(switch.meters()[flow.meter] == 200 for flow in found)
    assert (change["meters_added"], change["bundled"]) == (3, True)


def test_what_is_there_already_is_not_touched(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    again = network(*THREE.switches[0].flows, version=2)
    change = controller.put(again)
    assert change["flows_unchanged"] > 6
    assert not any(
        change[count]
        for count in ("flows_added", "flows_modified", "flows_removed", "meters_modified")
    )
    assert {flow.version for flow in switch.flows()} == {1}


def test_only_what_changes_is_changed(controller: ControllerProcess, switch: SuiteSwitch) -> None:
    controller.put(THREE)
    before = switch.flows()
    change = controller.put(
        network(
            flow_rule(flow=0, priority=5),
            flow_rule(flow=2, priority=2, packets_per_second=50.0),
            flow_rule(flow=7, priority=1),
            version=2,
        )
    )
    after = {flow.port: flow for flow in switch.flows()}
    assert sorted(after) == [20_000, 20_001, 20_004, 20_005, 20_014, 20_015]
    assert (after[20_000].queue, after[20_000].version) == (5, 2)
    assert after[20_000].meter == before[0].meter
    assert after[20_004] == before[4], "its entry is as it was; its meter is not"
    assert switch.meters()[after[20_004].meter] == 50
    assert before[2].meter not in switch.meters(), "the meter of the flow that left"
    counts = ("flows_added", "flows_modified", "flows_removed", "meters_modified", "meters_removed")
    assert [change[count] for count in counts] == [2, 3, 2, 1, 1]


def test_a_switch_that_is_not_listed_carries_nothing_of_ours(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    empty = DesiredNetwork(configuration_version=2, switches=())
    controller.put(empty)
    assert switch.flows() == []
    assert len(switch.meters()) == 1, "only the one that bounds ARP"


def test_a_refusal_names_the_rule_and_leaves_everything_as_it_was(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    flows, meters = switch.flows(), switch.meters()
    switch.hold_at_most(10)
    many = network(*(flow_rule(flow=n, priority=7 - n % 8) for n in range(30)), version=2)
    status, answer = controller.ask("PUT", "/v1/network", to_json(many))
    assert status == 409, answer
    assert answer["switch"] == "core"
    assert "TABLE_FULL" in answer["error"]
    assert answer["rule"].startswith("flow ")
    assert answer["rule"].endswith(" of crew")
    assert (switch.flows(), switch.meters()) == (flows, meters)
    assert controller.ask("GET", "/v1/network")[1]["configuration_version"] == 1
    assert controller.settled()


def test_a_switch_that_is_away_is_told_and_comes_back_to_what_is_desired(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    before = switch.flows()
    switch.disconnect()
    wait_until(lambda: not controller.settled(), "the controller has noticed")
    status, answer = controller.ask("PUT", "/v1/network", to_json(network(version=2)))
    assert (status, answer["switch"]) == (503, "core")
    assert switch.flows() == before, "rules stay while the channel is away"
    switch.reconnect()
    controller.wait_until_settled()
    assert switch.flows() == before


def test_a_switch_that_lost_everything_gets_it_back(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    before = switch.flows()
    switch.restart()
    wait_until(lambda: switch.flows() == before, "the rules are back", seconds=5.0)


def test_a_killed_controller_finds_everything_as_it_should_be(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    before, meters = switch.flows(), switch.meters()
    controller.kill()
    assert switch.flows() == before
    controller.start()
    controller.wait_until_settled()
    assert (switch.flows(), switch.meters()) == (before, meters)
    assert controller.put(network(*THREE.switches[0].flows, version=2))["flows_unchanged"] > 6


def test_rules_for_a_switch_that_nobody_knows_are_refused_by_name(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    status, answer = controller.ask("PUT", "/v1/network", to_json(network(switch="attic")))
    assert status == 400
    assert "there is no switch 'attic'; there are core" in answer["error"]
    assert switch.flows() == []


def test_statistics_know_flows_by_their_subscribers(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE)
    status, answer = controller.ask("GET", "/v1/statistics")
    assert status == 200
    (core,) = answer["switches"]
    assert [(flow["subscriber"], flow["flow"]) for flow in core["flows"]] == [
        ("crew", 0),
        ("crew", 1),
        ("crew", 2),
    ]
    assert {flow["packets"] for flow in core["flows"]} == {0}
    assert len(ports(switch)) == 6

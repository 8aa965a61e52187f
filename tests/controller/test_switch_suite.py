"""The controller process with one switch: the same tests on the fake switch and on Open vSwitch.

By default the tests run on the fake switch. ``tests/on_switches/test_enforcement.py`` runs this
file in a sandbox with FIREDEX_SUITE_SWITCH=ovs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from firedex.wire import DesiredNetwork, to_json
from firedex_controller.rules import dscp_of_class
from tests.support.controller_process import FRAMEWORKS, ControllerProcess
from tests.support.desired_examples import flow_rule, network
from tests.support.fake_switch import FakeNetwork
from tests.support.suite_switches import FakeSuiteSwitch, OpenVSwitch, SuiteSwitch
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ON_OPEN_VSWITCH = os.environ.get("FIREDEX_SUITE_SWITCH") == "ovs"
THREE_FLOWS = network(*(flow_rule(flow=n, priority=n) for n in range(3)), version=1)


@pytest.fixture(params=FRAMEWORKS)
def controller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(request.param, tmp_path, {"core": 1})
    process.start()
    yield process
    process.kill()


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


def test_every_flow_has_its_class_mark_and_meter(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    change = controller.put(THREE_FLOWS)
    flows = switch.flows()
    assert [flow.port for flow in flows] == [20_000 + n for n in range(6)]
    assert [flow.queue for flow in flows] == [0, 0, 1, 1, 2, 2]
    assert all(flow.dscp == dscp_of_class(flow.queue) for flow in flows)
    assert all(flow.version == 1 for flow in flows)
    assert len({flow.meter for flow in flows}) == 3
    assert all(switch.meters()[flow.meter] == 200 for flow in flows)
    assert (change["meters_added"], change["bundled"]) == (3, True)


def test_installed_rules_are_not_sent_again(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
    again = network(*THREE_FLOWS.switches[0].flows, version=2)
    change = controller.put(again)
    assert change["flows_unchanged"] > 6
    assert not any(
        change[count]
        for count in ("flows_added", "flows_modified", "flows_removed", "meters_modified")
    )
    assert {flow.version for flow in switch.flows()} == {1}


def test_only_changed_rules_are_sent(controller: ControllerProcess, switch: SuiteSwitch) -> None:
    controller.put(THREE_FLOWS)
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
    assert after[20_004] == before[4], "only its meter changes"
    assert switch.meters()[after[20_004].meter] == 50
    assert before[2].meter not in switch.meters(), "the meter of the removed flow"
    counts = ("flows_added", "flows_modified", "flows_removed", "meters_modified", "meters_removed")
    assert [change[count] for count in counts] == [2, 3, 2, 1, 1]


def test_unlisted_switch_has_no_flow_rules(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
    empty = DesiredNetwork(configuration_version=2, switches=())
    controller.put(empty)
    assert switch.flows() == []
    assert len(switch.meters()) == 1, "only the meter for ARP"


def test_refused_rule_is_reported_and_rolled_back(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
    flows, meters = switch.flows(), switch.meters()
    switch.limit_flows(10)
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


def test_disconnected_switch_returns_503_and_is_restored_on_reconnection(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
    before = switch.flows()
    switch.disconnect()
    wait_until(lambda: not controller.settled(), "the controller notices the disconnection")
    status, answer = controller.ask("PUT", "/v1/network", to_json(network(version=2)))
    assert (status, answer["switch"]) == (503, "core")
    assert switch.flows() == before, "rules stay while the switch is disconnected"
    switch.reconnect()
    controller.wait_until_settled()
    assert switch.flows() == before


def test_rules_are_installed_again_on_a_restarted_switch(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
    before = switch.flows()
    switch.restart()
    wait_until(lambda: switch.flows() == before, "the rules are installed again")


def test_restarted_controller_changes_no_rules(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
    before, meters = switch.flows(), switch.meters()
    controller.kill()
    assert switch.flows() == before
    controller.start()
    controller.wait_until_settled()
    assert (switch.flows(), switch.meters()) == (before, meters)
    assert controller.put(network(*THREE_FLOWS.switches[0].flows, version=2))["flows_unchanged"] > 6


def test_unknown_switch_is_rejected_with_its_name(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    status, answer = controller.ask("PUT", "/v1/network", to_json(network(switch="attic")))
    assert status == 400
    assert "unknown switch 'attic'; the controller manages core" in answer["error"]
    assert switch.flows() == []


def test_statistics_contain_subscriber_and_flow(
    controller: ControllerProcess, switch: SuiteSwitch
) -> None:
    controller.put(THREE_FLOWS)
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

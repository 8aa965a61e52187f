"""Test the network plans of scenarios and of topology parameters; no network is built."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mininet.topo import Topo

from firedex.scenario import read_scenario
from firedex.wire import Link, Scenario, Switch, from_plain
from firedex_emulation.errors import UnsupportedTopology
from firedex_emulation.topologies import big_switch, building, campus
from firedex_emulation.topologies.big_switch import BigSwitch
from firedex_emulation.topologies.building import Building
from firedex_emulation.topologies.campus import Campus
from firedex_emulation.topologies.network_plan import TOPOLOGIES, NetworkPlan, PlannedLink
from firedex_emulation.topologies.registry import plan_network
from firedex_emulation.topologies.scenario_layout import (
    propagation_from_publishers,
    propagation_to_subscribers,
    switches_on_loops,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
CRITICAL = read_scenario("builtin:critical-event")
BUILDING = read_scenario(str(EXAMPLES / "building.yaml"))
CAMPUS = read_scenario(str(EXAMPLES / "campus.yaml"))


def with_changed_switch(scenario: Scenario, name: str, **changes: Any) -> Scenario:
    switches = tuple(
        replace(switch, **changes) if switch.id == name else switch
        for switch in scenario.network.switches
    )
    return replace(scenario, network=replace(scenario.network, switches=switches))


def with_links(scenario: Scenario, *links: Link) -> Scenario:
    return replace(scenario, network=replace(scenario.network, links=links))


def trunk_of(plan: NetworkPlan, switch: str) -> PlannedLink:
    return next(link for link in plan.links if link.hosts_of == switch)


def link_between(plan: NetworkPlan, one: str, other: str) -> PlannedLink:
    names = {switch.switch: switch.name for switch in plan.switches}
    return next(link for link in plan.links if {link.one, link.other} == {names[one], names[other]})


# -- scenarios -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "topology"),
    [(CRITICAL, "big-switch"), (BUILDING, "building"), (CAMPUS, "campus")],
)
def test_most_specific_topology_is_chosen(scenario: Scenario, topology: str) -> None:
    assert plan_network(scenario).topology == topology
    assert plan_network(scenario, topology) == plan_network(scenario)


def test_hosts_have_different_addresses() -> None:
    plan = plan_network(CAMPUS)
    addresses = {host.scenario_id: host.address for host in plan.hosts}
    assert addresses["edge"] == "10.0.0.10"
    assert addresses["library"] == "10.0.1.1"
    assert addresses["drones"] == "10.0.1.2"
    assert addresses["command"] == "10.0.16.1"
    assert len(set(addresses.values())) == len(plan.hosts)


def test_publishers_are_attached_to_their_switch_and_the_edge_host_to_that_of_the_broker() -> None:
    plan = plan_network(CAMPUS)
    names = {switch.switch: switch.name for switch in plan.switches}
    ends = {link.one: link.other for link in plan.links}
    assert ends["edge"] == names["core1"]
    assert ends["pub0"] == names["sensor-lan"]
    assert ends["pub1"] == names["core2"]
    assert link_between(plan, "sensor-lan", "core1").bandwidth_bits_per_second == 100e6


def test_subscribers_share_the_trunk_of_their_switch() -> None:
    plan = plan_network(BUILDING)
    trunk = trunk_of(plan, "floor1")
    assert trunk.bandwidth_bits_per_second == 2e6
    behind = [link.one for link in plan.links if link.other == trunk.other and link != trunk]
    assert [host.scenario_id for host in plan.hosts if host.name in behind] == [
        "engine1",
        "engine2",
    ]


def test_managed_switch_has_a_host_port_and_a_unique_datapath_id() -> None:
    for scenario in (CRITICAL, BUILDING, CAMPUS):
        plan = plan_network(scenario)
        for switch in plan.switches:
            assert len(switch.datapath_id) == 16
            if switch.managed:
                assert switch.switch is not None
                assert trunk_of(plan, switch.switch).one == switch.name
        assert len({switch.datapath_id for switch in plan.switches}) == len(plan.switches)


def test_propagation_of_a_switch_is_the_delay_of_its_outgoing_links() -> None:
    plan = plan_network(with_changed_switch(BUILDING, "floor1", propagation_seconds=0.003))
    riser = link_between(plan, "backbone", "floor1")
    assert (riser.delay_seconds, riser.delay_back_seconds) == (0.001, 0.003)
    other = link_between(plan, "backbone", "floor2")
    assert (other.delay_seconds, other.delay_back_seconds) == (0.001, 0.0)
    trunk = trunk_of(plan, "floor1")
    assert (trunk.delay_seconds, trunk.delay_back_seconds) == (0.003, 0.003)


def test_link_has_its_bandwidth_or_that_of_the_sending_switch() -> None:
    stated = link_between(plan_network(BUILDING), "backbone", "floor1")
    assert stated.bandwidth_bits_per_second == 10e6
    assert stated.bandwidth_back_bits_per_second == 10e6
    unstated = link_between(plan_network(CAMPUS), "core1", "hall1")
    assert unstated.bandwidth_bits_per_second == 10e6
    assert unstated.bandwidth_back_bits_per_second == 2e6


def test_link_written_in_both_directions_is_one_link() -> None:
    links = (*BUILDING.network.links, from_plain(Link, {"from": "floor1", "to": "backbone"}))
    plan = plan_network(with_links(BUILDING, *links))
    assert plan.topology == "building"
    assert len(plan.links) == len(plan_network(BUILDING).links)


def test_unused_switches_are_omitted() -> None:
    spare = Switch(id="spare", managed=False, bandwidth_bits_per_second=1e6)
    switches = (*CRITICAL.network.switches, spare)
    scenario = replace(CRITICAL, network=replace(CRITICAL.network, switches=switches))
    assert plan_network(scenario) == plan_network(CRITICAL)


@pytest.mark.parametrize(
    ("scenario", "topology", "reason"),
    [
        (BUILDING, "big-switch", "exactly one managed switch; 'building' has 3"),
        (CRITICAL, "building", "(a backbone and floors); 'critical-event' has 1"),
        (CAMPUS, "building", "must be an end of every link"),
        (CRITICAL, "campus", "'critical-event' has no links between switches"),
        (CRITICAL, "star", "choose one of big-switch, building, campus"),
        (
            with_changed_switch(CAMPUS, "hall1", managed=False),
            "campus",
            "unmanaged switch 'hall1' is on a loop",
        ),
        (
            with_changed_switch(CRITICAL, "core", error_rate=0.01),
            "big-switch",
            "'core' has an error rate; emulation does not support that",
        ),
        (
            replace(CRITICAL, publishers=()),
            "big-switch",
            "at least one publisher and one subscriber",
        ),
        (
            replace(CRITICAL, subscribers=()),
            "big-switch",
            "at least one publisher and one subscriber",
        ),
    ],
)
def test_unsupported_scenario_is_rejected_with_the_reason(
    scenario: Scenario, topology: str, reason: str
) -> None:
    with pytest.raises(UnsupportedTopology) as raised:
        plan_network(scenario, topology)
    assert reason in str(raised.value)


def test_error_names_a_subscriber_on_another_switch() -> None:
    first, *others = CRITICAL.subscribers
    scenario = replace(CRITICAL, subscribers=(replace(first, switch="lan"), *others))
    with pytest.raises(UnsupportedTopology, match="'engine1' is not attached"):
        plan_network(scenario, "big-switch")


def test_reasons_of_all_topologies_are_given_if_none_fits() -> None:
    with pytest.raises(UnsupportedTopology) as raised:
        plan_network(with_changed_switch(CRITICAL, "core", error_rate=0.01))
    assert all(f"{name}: " in str(raised.value) for name in TOPOLOGIES)


def test_switches_on_loops_and_between_loops_are_found() -> None:
    triangle = [("a", "b"), ("b", "c"), ("c", "a")]
    assert switches_on_loops([*triangle, ("c", "d"), ("d", "e")]) == {"a", "b", "c"}
    assert switches_on_loops([("a", "b"), ("b", "c")]) == set()


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [big_switch, building, campus])
def test_module_has_topos_and_a_drawing(module: Any) -> None:
    (topo_class,) = module.topos.values()
    assert issubclass(topo_class, Topo)
    assert "──" in module.__doc__
    assert list(module.topos) == [module.NAME]


def test_parameters_set_the_numbers_of_nodes() -> None:
    assert len(BigSwitch(subscribers=7, publishers=2).hosts()) == 1 + 2 + 7
    building = Building(floors=5, subscribers_per_floor=3)
    assert len(building.hosts()) == 1 + 1 + 5 * 3
    assert len(building.switches()) == 2 * 6
    campus = Campus(halls=4, subscribers_per_hall=1)
    between_switches = [link for link in campus.plan.links if link.hosts_of is None]
    assert len([link for link in between_switches if link.bandwidth_bits_per_second]) == 1 + 2 * 4
    assert len({switch.datapath_id for switch in campus.plan.switches}) == 2 * 6


@pytest.mark.parametrize(
    ("make", "parameters", "reason"),
    [
        (BigSwitch, {"subscribers": 0}, "subscribers is 0; it must be an integer from 1 to 500"),
        (BigSwitch, {"subscribers": 2.5}, "subscribers is 2.5"),
        (
            BigSwitch,
            {"trunk_bits_per_second": 0},
            "trunk_bits_per_second is 0; it must be a number from 10000",
        ),
        (BigSwitch, {"delay_seconds": -1}, "delay_seconds is -1; it must be a number from 0 to 2"),
        (BigSwitch, {"delay_seconds": float("nan")}, "delay_seconds is nan"),
        (Building, {"floors": 0}, "floors is 0; it must be an integer from 1 to 40"),
        (
            Building,
            {"riser_delay_seconds": 3},
            "riser_delay_seconds is 3; it must be a number from 0 to 2",
        ),
        (Building, {"floors": 40, "subscribers_per_floor": 13}, "from 0 to 12"),
        (Campus, {"halls": 41}, "halls is 41; it must be an integer from 1 to 40"),
        (Campus, {"link_bits_per_second": "fast"}, "link_bits_per_second is 'fast'"),
    ],
)
def test_invalid_parameters_are_rejected_by_name(
    make: Any, parameters: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedTopology) as raised:
        make(**parameters)
    assert reason in str(raised.value)


# -- propagation -----------------------------------------------------------------------------------


def test_propagation_in_a_building_is_that_of_its_backbone() -> None:
    down = propagation_to_subscribers(BUILDING)
    assert set(down) == {"command", "engine1", "engine2", "ladder1", "ladder2"}
    assert list(down.values()) == pytest.approx([0.001] * 5)
    assert propagation_from_publishers(BUILDING) == {"sensors": 0.0}

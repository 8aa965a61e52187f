"""From scenarios and parameters to plans of networks; nothing is built."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mininet.topo import Topo

from firedex.scenario_file import read_scenario
from firedex.wire import Link, Scenario, Switch
from firedex_emulation import big_switch, building, campus
from firedex_emulation.big_switch import BigSwitch
from firedex_emulation.building import Building
from firedex_emulation.campus import Campus
from firedex_emulation.emulated_network import plan_network
from firedex_emulation.errors import TopologyRefused
from firedex_emulation.network_plan import TOPOLOGIES, NetworkPlan, PlannedLink
from firedex_emulation.scenario_layout import switches_on_loops

EXAMPLES = Path(__file__).parents[2] / "examples"
CRITICAL = read_scenario("builtin:critical-event")
BUILDING = read_scenario(str(EXAMPLES / "building.yaml"))
CAMPUS = read_scenario(str(EXAMPLES / "campus.yaml"))


def changed_switch(scenario: Scenario, name: str, **changes: Any) -> Scenario:
    switches = tuple(
        replace(switch, **changes) if switch.id == name else switch
        for switch in scenario.network.switches
    )
    return replace(scenario, network=replace(scenario.network, switches=switches))


def with_links(scenario: Scenario, *links: Link) -> Scenario:
    return replace(scenario, network=replace(scenario.network, links=links))


def trunk_of(plan: NetworkPlan, switch: str) -> PlannedLink:
    return next(link for link in plan.links if link.hosts_of == switch)


def between(plan: NetworkPlan, one: str, other: str) -> PlannedLink:
    names = {switch.switch: switch.name for switch in plan.switches}
    return next(link for link in plan.links if {link.one, link.other} == {names[one], names[other]})


# -- scenarios -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "topology"),
    [(CRITICAL, "big-switch"), (BUILDING, "building"), (CAMPUS, "campus")],
)
def test_the_most_particular_topology_is_taken(scenario: Scenario, topology: str) -> None:
    assert plan_network(scenario).topology == topology
    assert plan_network(scenario, topology) == plan_network(scenario)


def test_everybody_has_an_address_of_their_own() -> None:
    plan = plan_network(CAMPUS)
    addresses = {host.party: host.address for host in plan.hosts}
    assert addresses["edge"] == "10.0.0.10"
    assert addresses["library"] == "10.0.1.1"
    assert addresses["drones"] == "10.0.1.2"
    assert addresses["command"] == "10.0.16.1"
    assert len(set(addresses.values())) == len(plan.hosts)


def test_publishers_are_at_their_switch_and_the_edge_at_the_broker_s() -> None:
    plan = plan_network(CAMPUS)
    names = {switch.switch: switch.name for switch in plan.switches}
    ends = {link.one: link.other for link in plan.links}
    assert ends["edge"] == names["core1"]
    assert ends["pub0"] == names["sensor-lan"]
    assert ends["pub1"] == names["core2"]
    assert between(plan, "sensor-lan", "core1").bandwidth_bits_per_second == 100e6


def test_subscribers_share_the_trunk_of_their_switch() -> None:
    plan = plan_network(BUILDING)
    trunk = trunk_of(plan, "floor1")
    assert trunk.bandwidth_bits_per_second == 2e6
    behind = [link.one for link in plan.links if link.other == trunk.other and link != trunk]
    assert [host.party for host in plan.hosts if host.name in behind] == ["engine1", "engine2"]


def test_every_managed_switch_has_a_port_for_hosts_and_its_own_datapath() -> None:
    for scenario in (CRITICAL, BUILDING, CAMPUS):
        plan = plan_network(scenario)
        for switch in plan.switches:
            assert len(switch.datapath_id) == 16
            if switch.managed:
                assert switch.switch is not None
                assert trunk_of(plan, switch.switch).one == switch.name
        assert len({switch.datapath_id for switch in plan.switches}) == len(plan.switches)


def test_a_switch_s_propagation_is_the_delay_of_the_links_out_of_it() -> None:
    plan = plan_network(changed_switch(BUILDING, "floor1", propagation_seconds=0.003))
    riser = between(plan, "backbone", "floor1")
    assert (riser.delay_seconds, riser.delay_back_seconds) == (0.001, 0.003)
    other = between(plan, "backbone", "floor2")
    assert (other.delay_seconds, other.delay_back_seconds) == (0.001, 0.0)
    trunk = trunk_of(plan, "floor1")
    assert (trunk.delay_seconds, trunk.delay_back_seconds) == (0.003, 0.003)


def test_a_link_has_its_bandwidth_or_that_of_the_sending_switch() -> None:
    stated = between(plan_network(BUILDING), "backbone", "floor1")
    assert stated.bandwidth_bits_per_second == 10e6
    assert stated.bandwidth_back_bits_per_second == 10e6
    unstated = between(plan_network(CAMPUS), "core1", "hall1")
    assert unstated.bandwidth_bits_per_second == 10e6
    assert unstated.bandwidth_back_bits_per_second == 2e6


def test_a_link_that_is_written_both_ways_is_one_link() -> None:
    links = (*BUILDING.network.links, Link(**{"from": "floor1", "to": "backbone"}))
    plan = plan_network(with_links(BUILDING, *links))
    assert plan.topology == "building"
    assert len(plan.links) == len(plan_network(BUILDING).links)


def test_switches_that_nobody_uses_are_left_out() -> None:
    spare = Switch(id="spare", managed=False, bandwidth_bits_per_second=1e6)
    switches = (*CRITICAL.network.switches, spare)
    more = replace(CRITICAL, network=replace(CRITICAL.network, switches=switches))
    assert plan_network(more) == plan_network(CRITICAL)


@pytest.mark.parametrize(
    ("scenario", "topology", "reason"),
    [
        (BUILDING, "big-switch", "one managed switch is needed for the trunk; 'building' has 3"),
        (CRITICAL, "building", "at least two managed switches; 'critical-event' has 1"),
        (CAMPUS, "building", "has to be an end of every link"),
        (CRITICAL, "campus", "'critical-event' has no links between switches"),
        (CRITICAL, "star", "unknown; there are big-switch, building, campus"),
        (
            changed_switch(CAMPUS, "hall1", managed=False),
            "campus",
            "'hall1' is on a loop and not managed",
        ),
        (
            changed_switch(CRITICAL, "core", error_rate=0.01),
            "big-switch",
            "'core' has an error rate; packet errors are not emulated",
        ),
        (replace(CRITICAL, publishers=()), "big-switch", "publishers and subscribers are needed"),
        (replace(CRITICAL, subscribers=()), "big-switch", "publishers and subscribers are needed"),
    ],
)
def test_what_a_topology_cannot_carry_is_refused_with_the_reason(
    scenario: Scenario, topology: str, reason: str
) -> None:
    with pytest.raises(TopologyRefused) as refused:
        plan_network(scenario, topology)
    assert reason in str(refused.value)


def test_subscribers_elsewhere_are_named() -> None:
    first, *others = CRITICAL.subscribers
    scenario = replace(CRITICAL, subscribers=(replace(first, switch="lan"), *others))
    with pytest.raises(TopologyRefused, match="'core'; 'engine1' is not"):
        plan_network(scenario, "big-switch")


def test_when_no_topology_fits_each_says_why() -> None:
    with pytest.raises(TopologyRefused) as refused:
        plan_network(changed_switch(CRITICAL, "core", error_rate=0.01))
    assert all(f"{name}: " in str(refused.value) for name in TOPOLOGIES)


def test_loops_are_found() -> None:
    triangle = [("a", "b"), ("b", "c"), ("c", "a")]
    assert switches_on_loops([*triangle, ("c", "d"), ("d", "e")]) == {"a", "b", "c"}
    assert switches_on_loops([("a", "b"), ("b", "c")]) == set()


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [big_switch, building, campus])
def test_each_file_ends_as_mininet_expects(module: Any) -> None:
    (made,) = module.topos.values()
    assert issubclass(made, Topo)
    assert "──" in module.__doc__
    assert list(module.topos) == [module.NAME]


def test_parameters_say_how_much_is_built() -> None:
    assert len(BigSwitch(subscribers=7, publishers=2).hosts()) == 1 + 2 + 7
    tall = Building(floors=5, subscribers_per_floor=3)
    assert len(tall.hosts()) == 1 + 1 + 5 * 3
    assert len(tall.switches()) == 2 * 6
    wide = Campus(halls=4, subscribers_per_hall=1)
    between_switches = [link for link in wide.plan.links if link.hosts_of is None]
    assert len([link for link in between_switches if link.bandwidth_bits_per_second]) == 1 + 2 * 4
    assert len({switch.datapath_id for switch in wide.plan.switches}) == 2 * 6


@pytest.mark.parametrize(
    ("make", "parameters", "reason"),
    [
        (BigSwitch, {"subscribers": 0}, "subscribers is 0; give 1 to 500"),
        (BigSwitch, {"subscribers": 2.5}, "subscribers is 2.5"),
        (BigSwitch, {"trunk_bits_per_second": 0}, "trunk_bits_per_second is 0; give 10000 to"),
        (BigSwitch, {"delay_seconds": -1}, "delay_seconds is -1; give 0 to 2"),
        (BigSwitch, {"delay_seconds": float("nan")}, "delay_seconds is nan"),
        (Building, {"floors": 0}, "floors is 0; give 1 to 40"),
        (Building, {"riser_delay_seconds": 3}, "riser_delay_seconds is 3; give 0 to 2"),
        (Building, {"floors": 40, "subscribers_per_floor": 13}, "give 0 to 12"),
        (Campus, {"halls": 41}, "halls is 41; give 1 to 40"),
        (Campus, {"link_bits_per_second": "fast"}, "link_bits_per_second is 'fast'"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_by_name(
    make: Any, parameters: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TopologyRefused) as refused:
        make(**parameters)
    assert reason in str(refused.value)

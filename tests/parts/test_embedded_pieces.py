"""What an embedded run is put together from, without its processes."""

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

import pytest
from test_embedded_run import usable

from firedex.scenario_file import read_scenario
from firedex.wire import Configuration, Flow, FlowEndpoints, Link
from firedex.wire.timeline import LinkChange, PartKill
from firedex_clients.client_plan import Translation, plan_of
from firedex_emulation.embedded.flow_classes import LOWEST_CLASS, FlowClasses
from firedex_emulation.embedded.link_paths import port_settings, ports_to
from firedex_emulation.embedded.link_program import LinkOrders
from firedex_emulation.embedded.loopback_stage import LoopbackStage, check_embedded
from firedex_emulation.embedded.run_addresses import RunAddresses
from firedex_emulation.errors import TopologyRefused
from firedex_emulation.timeline_actions import carried_out
from firedex_emulation.ways import as_run

EXAMPLES = Path(__file__).parents[2] / "examples"
CRITICAL = read_scenario("builtin:critical-event")
CONFIGURATION = Configuration(
    version=3,
    broker="edge",
    created_at=datetime.now(UTC),
    reason="test",
    flows=(
        Flow(
            subscriber="engine1",
            flow=0,
            priority=2,
            drop_rate=0.0,
            filters=("alarm",),
            endpoints=FlowEndpoints(
                transport="udp",
                subscriber_address=IPv4Address("127.2.0.1"),
                subscriber_ports=(20_000, 20_001),
                gateway_address=IPv4Address("127.0.0.1"),
                gateway_port=1884,
            ),
        ),
    ),
)


def test_a_flow_has_its_class_by_either_port_and_strangers_the_lowest() -> None:
    classes = FlowClasses()
    assert not classes.knows("udp", "127.2.0.1", 20_000)
    classes.follow(CONFIGURATION)
    assert classes.class_of("udp", "127.2.0.1", 20_000) == 2
    assert classes.class_of("udp", "127.2.0.1", 20_001) == 2
    assert classes.class_of("tcp", "127.2.0.1", 20_000) == LOWEST_CLASS
    assert classes.class_of("udp", "127.2.0.1", 20_002) == LOWEST_CLASS


def test_connections_leave_from_and_go_to_where_addresses_are_translated() -> None:
    plan = plan_of(CONFIGURATION, "engine1", ["alarm"])
    assert Translation().applied_to(plan) == plan
    moved = Translation(source_address="127.1.0.1", gateway=("127.1.0.254", 99)).applied_to(plan)
    settings = moved.flows[0].settings
    assert (settings.bind_address, settings.bind_ports) == ("127.1.0.1", (20_000, 20_001))
    assert (settings.host, settings.port, settings.transport) == ("127.1.0.254", 99, "udp")
    assert moved.flows[0].filters == ("alarm",)


def test_packets_cross_every_switch_between_broker_and_subscriber() -> None:
    scenario = read_scenario(str(EXAMPLES / "building.yaml"))
    links = {(link.from_, link.to): link for link in scenario.network.links}
    of_switch = {each.id: each for each in scenario.network.switches}
    settings = port_settings(scenario)
    subscriber = next(
        each for each in scenario.subscribers if len(ports_to(scenario.network, each)) > 1
    )
    way = ports_to(scenario.network, subscriber)
    assert way[-1] == (subscriber.switch, None)
    for (switch, towards), (onward, _) in pairwise(way):
        assert towards == onward
        link: Link = links[switch, onward]
        expected = link.bandwidth_bits_per_second or of_switch[switch].bandwidth_bits_per_second
        assert settings[switch, towards].bits_per_second == expected
    last = settings[way[-1]]
    assert last.bits_per_second == of_switch[subscriber.switch].bandwidth_bits_per_second


def test_a_userspace_link_has_no_burst_and_guarantees_nothing() -> None:
    switch = as_run(CRITICAL, "firedex", plain_links=True).network.switches[1]
    assert (switch.burst_bytes, switch.guaranteed_bits_per_second) == (0.0, 0.0)
    assert switch.buffer is not None
    assert as_run(CRITICAL, "firedex").network.switches[1].burst_bytes > 0


def test_orders_survive_the_command_line() -> None:
    orders = LinkOrders(
        scenario="scenario.json",
        service="http://127.1.0.253:1",
        listen=("127.1.0.254", 2),
        gateway=("127.1.0.253", 3),
        places={"engine1": ("127.1.0.1", "127.2.0.1")},
    )
    assert LinkOrders.from_argument(orders.to_argument()) == orders


@pytest.mark.skipif(not usable(), reason="loopback addresses such as 127.1.0.1 are not usable")
def test_runs_side_by_side_have_addresses_of_their_own() -> None:
    one = RunAddresses(["engine1", "engine2"])
    other = RunAddresses(["engine1"])
    try:
        assert one.known["engine2"] != one.known["engine1"]
        assert one.source["engine1"] != other.source["engine1"]
        assert one.link != other.link
    finally:
        one.close()
        other.close()


def test_what_loopback_cannot_do_is_named_as_left_out() -> None:
    stage = LoopbackStage(CRITICAL, bounded=True)
    cut = LinkChange(at_seconds=1.0, from_="a", to="b", up=False)
    assert "left out: a–b down" in (carried_out(cut, stage).trouble or "")
    kill = PartKill(at_seconds=1.0, part="controller")
    assert "there is no controller" in (carried_out(kill, stage).trouble or "")
    assert [note.partition(":")[0] for note in stage.notes()[1:]] == ["left out", "left out"]


def test_what_cannot_run_is_refused() -> None:
    one, network = CRITICAL.subscribers[0], CRITICAL.network
    crowd = tuple(replace(one, id=f"engine{number}") for number in range(251))
    with pytest.raises(TopologyRefused, match="250 at most"):
        check_embedded(replace(CRITICAL, subscribers=crowd))
    lossy = tuple(replace(switch, error_rate=0.1) for switch in network.switches)
    with pytest.raises(TopologyRefused, match="packet errors are not emulated"):
        check_embedded(replace(CRITICAL, network=replace(network, switches=lossy)))

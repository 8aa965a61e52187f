"""Test the components of an embedded run without starting its processes."""

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

import pytest

from firedex.scenario import read_scenario
from firedex.wire import Configuration, Flow, FlowEndpoints, Link
from firedex.wire.scenario import LinkChange, PartKill
from firedex_clients.plan import AddressTranslation, client_plan
from firedex_emulation.embedded.link_program import LinkSettings
from firedex_emulation.embedded.loopback_testbed import (
    LoopbackTestbed,
    RunAddresses,
    check_embedded,
)
from firedex_emulation.embedded.priority_link import port_settings, ports_on_path
from firedex_emulation.embedded.userspace_link import LOWEST_CLASS, FlowClasses
from firedex_emulation.errors import UnsupportedTopology
from firedex_emulation.testbed.modes import scenario_for_mode
from firedex_emulation.testbed.timeline import perform_event
from tests.emulation.test_command import loopback_range_is_usable

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


def test_flow_has_its_class_on_both_ports_and_unknown_flows_the_lowest() -> None:
    classes = FlowClasses()
    assert not classes.contains("udp", "127.2.0.1", 20_000)
    classes.update(CONFIGURATION)
    assert classes.class_of("udp", "127.2.0.1", 20_000) == 2
    assert classes.class_of("udp", "127.2.0.1", 20_001) == 2
    assert classes.class_of("tcp", "127.2.0.1", 20_000) == LOWEST_CLASS
    assert classes.class_of("udp", "127.2.0.1", 20_002) == LOWEST_CLASS


def test_connections_use_translated_addresses() -> None:
    plan = client_plan(CONFIGURATION, "engine1", ["alarm"])
    assert AddressTranslation().apply(plan) == plan
    translated = AddressTranslation(source_address="127.1.0.1", gateway=("127.1.0.254", 99)).apply(
        plan
    )
    settings = translated.flows[0].settings
    assert (settings.bind_address, settings.bind_ports) == ("127.1.0.1", (20_000, 20_001))
    assert (settings.host, settings.port, settings.transport) == ("127.1.0.254", 99, "udp")
    assert translated.flows[0].filters == ("alarm",)


def test_packets_pass_every_switch_between_broker_and_subscriber() -> None:
    scenario = read_scenario(str(EXAMPLES / "building.yaml"))
    links = {(link.from_, link.to): link for link in scenario.network.links}
    switches = {each.id: each for each in scenario.network.switches}
    settings = port_settings(scenario)
    subscriber = next(
        each for each in scenario.subscribers if len(ports_on_path(scenario.network, each)) > 1
    )
    path = ports_on_path(scenario.network, subscriber)
    assert path[-1] == (subscriber.switch, None)
    for (switch, towards), (onward, _) in pairwise(path):
        assert towards == onward
        link: Link = links[switch, onward]
        expected = link.bandwidth_bits_per_second or switches[switch].bandwidth_bits_per_second
        assert settings[switch, towards].bits_per_second == expected
    last = settings[path[-1]]
    assert last.bits_per_second == switches[subscriber.switch].bandwidth_bits_per_second


def test_userspace_link_has_no_burst_and_no_guaranteed_rate() -> None:
    switch = scenario_for_mode(CRITICAL, "firedex", plain_links=True).network.switches[1]
    assert (switch.burst_bytes, switch.guaranteed_bits_per_second) == (0.0, 0.0)
    assert switch.buffer is not None
    assert scenario_for_mode(CRITICAL, "firedex").network.switches[1].burst_bytes > 0


def test_link_settings_round_trip_through_an_argument() -> None:
    settings = LinkSettings(
        scenario="scenario.json",
        service="http://127.1.0.253:1",
        listen=("127.1.0.254", 2),
        gateway=("127.1.0.253", 3),
        subscriber_addresses={"engine1": ("127.1.0.1", "127.2.0.1")},
    )
    assert LinkSettings.from_argument(settings.to_argument()) == settings


@pytest.mark.skipif(
    not loopback_range_is_usable(), reason="loopback addresses such as 127.1.0.1 are not usable"
)
def test_concurrent_runs_have_different_addresses() -> None:
    one = RunAddresses(["engine1", "engine2"])
    other = RunAddresses(["engine1"])
    try:
        assert one.visible_addresses["engine2"] != one.visible_addresses["engine1"]
        assert one.source_addresses["engine1"] != other.source_addresses["engine1"]
        assert one.link != other.link
    finally:
        one.close()
        other.close()


def test_unsupported_timeline_events_are_skipped_with_a_note() -> None:
    testbed = LoopbackTestbed(CRITICAL, bounded=True)
    link_failure = LinkChange(at_seconds=1.0, from_="a", to="b", up=False)
    assert "timeline event skipped: link a–b down" in (
        perform_event(link_failure, testbed).error_message or ""
    )
    kill = PartKill(at_seconds=1.0, part="controller")
    assert "kill of controller" in (perform_event(kill, testbed).error_message or "")
    assert [note.partition(":")[0] for note in testbed.notes()[1:]] == [
        "timeline event skipped"
    ] * 2


def test_unsupported_scenario_is_rejected() -> None:
    one, network = CRITICAL.subscribers[0], CRITICAL.network
    many_subscribers = tuple(replace(one, id=f"engine{number}") for number in range(251))
    with pytest.raises(UnsupportedTopology, match="the maximum is 250"):
        check_embedded(replace(CRITICAL, subscribers=many_subscribers))
    switches_with_errors = tuple(replace(switch, error_rate=0.1) for switch in network.switches)
    with pytest.raises(UnsupportedTopology, match="has an error rate"):
        check_embedded(replace(CRITICAL, network=replace(network, switches=switches_with_errors)))

"""Packets through fake switches, and what happens to a network of them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firedex_controller.fake_switch import FakeNetwork, RawChannel, RawController, UnknownPart
from firedex_controller.fake_switch.frames import changed_frame, fields_of
from firedex_controller.fake_switch.openflow_wire import DATAPATH
from firedex_controller.framework import ofproto, parser

FLOOD = ofproto.OFPP_FLOOD
FRAME = (  # 10.0.0.1 → 10.0.0.2, UDP 1 → 2
    bytes.fromhex("0000000000020000000000010800")
    + bytes.fromhex("4500002e00000000401166bd0a0000010a00000200010002001a0000")
    + b"x" * 18
)
BROADCAST = b"\xff" * 6 + FRAME[6:]


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def controller() -> Iterator[RawController]:
    with RawController() as listening:
        yield listening


@pytest.fixture
def network(controller: RawController) -> Iterator[FakeNetwork]:
    """Two switches, ports 1 linked, a host at port 3 of each."""
    with FakeNetwork(controller=controller.address) as made:
        for number, name in enumerate(("left", "right"), start=1):
            made.add_switch(name, datapath_id=number, ports=3)
            mac, ip = f"00:00:00:00:00:0{number}", f"10.0.0.{number}"
            made.add_host(f"h{number}", mac=mac, ip=ip, switch=name, port=3)
        made.add_link(("left", 1), ("right", "right-eth1"))
        yield made


@pytest.fixture
def channels(controller: RawController, network: FakeNetwork) -> dict[str, RawChannel]:
    names = {switch.datapath_id: name for name, switch in network.switches.items()}
    accepted = [controller.accept(), controller.accept()]
    return {names[channel.features.datapath_id]: channel for channel in accepted}


def rule(
    *ports: int,
    match: dict[str, Any] | None = None,
    dscp: int | None = None,
    queue: int | None = None,
    meter: int | None = None,
    goto: int | None = None,
    **facts: Any,
) -> Any:
    actions = [] if dscp is None else [parser.OFPActionSetField(ip_dscp=dscp)]
    actions += [] if queue is None else [parser.OFPActionSetQueue(queue)]
    actions += [parser.OFPActionOutput(port, ofproto.OFPCML_NO_BUFFER) for port in ports]
    instructions = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)]
    if meter is not None:
        instructions.append(parser.OFPInstructionMeter(meter))
    if goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(goto))
    found = parser.OFPMatch(**(match or {}))
    return parser.OFPFlowMod(DATAPATH, match=found, instructions=instructions, **facts)


def tell(channel: RawChannel, *messages: Any) -> None:
    channel.send_all(messages)
    assert channel.barrier() == []


def drop_meter(meter_id: int) -> Any:
    bands = [parser.OFPMeterBandDrop(10, 10)]
    return parser.OFPMeterMod(DATAPATH, ofproto.OFPMC_ADD, ofproto.OFPMF_PKTPS, meter_id, bands)


def test_traces_through_tables(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    udp = {"eth_type": 0x0800, "ip_proto": 17}
    tell(
        channels["left"],
        drop_meter(4),
        rule(priority=5, match={**udp, "udp_dst": 5000}, dscp=46, queue=1, meter=4, goto=1),
        rule(priority=1, goto=1),
        rule(1, table_id=1, priority=2, match={"eth_type": 0x0800, "ip_dscp": 46}),
        rule(FLOOD, table_id=1, priority=1),
        rule(ofproto.OFPP_CONTROLLER, priority=9, match={"eth_type": 0x0806}),
    )
    left = network.switches["left"]
    important = left.trace(3, ipv4_dst="10.0.0.2", udp_dst=5000)
    assert (important.dscp, important.queue, important.meters) == (46, 1, (4,))
    assert important.output_ports == (1,)
    assert [found.table for found in important.flows] == [0, 1]
    assert not important.packet_in
    other = left.trace("left-eth3", ipv4_dst="10.0.0.2", udp_dst=5001)
    assert (other.dscp, other.queue, other.output_ports) == (0, None, (1, 2))
    asked = left.trace(3, eth_type=0x0806, arp_tpa="10.0.0.2")
    assert asked.packet_in
    assert asked.output_ports == ()
    assert left.packets_of(important.flows[0]) == 0


def test_carries_frames_over_links_to_hosts(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    tell(channels["left"], rule(1, match={"eth_type": 0x0800}, dscp=46))
    tell(channels["right"], rule(3))
    journey = network.send("h1", FRAME)
    assert journey.hosts == ["h2"]
    assert journey.passed == [("left", 3), ("right", 1)]
    (arrived,) = network.hosts["h2"].frames
    assert fields_of(arrived)["ip_dscp"] == 46
    assert changed_frame(arrived, {"ip_dscp": 0}) == FRAME
    (flow,) = network.switches["left"].flows()
    assert network.switches["left"].packets_of(flow) == 1
    stats = channels["right"].entries(parser.OFPPortStatsRequest(DATAPATH, 0, ofproto.OFPP_ANY))
    assert [(s.port_no, s.rx_packets, s.tx_packets) for s in stats] == [
        (1, 1, 0),
        (2, 0, 0),
        (3, 0, 1),
    ]


def test_counts_packets_of_meters(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    tell(channels["left"], drop_meter(1), rule(1, meter=1), rule(1, meter=1, priority=1))
    network.send("h1", FRAME)
    (stats,) = channels["left"].entries(parser.OFPMeterStatsRequest(DATAPATH))
    assert (stats.flow_count, stats.packet_in_count, stats.byte_in_count) == (2, 1, len(FRAME))


def test_a_miss_is_told_as_one(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    tell(channels["left"], rule(ofproto.OFPP_CONTROLLER, priority=0, cookie=7))
    assert network.send("h1", FRAME).packet_ins == 1
    told = channels["left"].receive()
    assert (told.reason, told.cookie, told.data) == (ofproto.OFPR_NO_MATCH, 7, FRAME)
    assert told.match["in_port"] == 3


def test_packet_outs_go_over_links(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    tell(channels["right"], rule(ofproto.OFPP_CONTROLLER))
    actions = [parser.OFPActionOutput(port) for port in (1, 3)]
    sent = parser.OFPPacketOut(
        DATAPATH, ofproto.OFP_NO_BUFFER, ofproto.OFPP_CONTROLLER, actions, FRAME
    )
    channels["left"].send(sent)
    told = channels["right"].receive()
    assert (told.data, told.match["in_port"]) == (FRAME, 1)
    assert network.hosts["h1"].frames == [FRAME]


def test_nothing_matches_nothing_moves(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    assert set(channels) == {"left", "right"}
    assert network.send("h1", FRAME).hosts == []


def test_a_loop_is_noticed(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    for channel in channels.values():
        tell(channel, rule(FLOOD))
    assert not network.send("h1", BROADCAST).storm
    network.add_link(("left", 2), ("right", 2))
    assert network.send("h1", BROADCAST).storm
    assert network.storms == 1


def test_normal_forwarding_learns(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    for channel in channels.values():
        tell(channel, rule(ofproto.OFPP_NORMAL))
    back = FRAME[6:12] + FRAME[:6] + FRAME[12:]
    network.send("h1", FRAME)
    assert network.send("h2", back).hosts == ["h1"]
    assert network.switches["left"].trace(3, eth_dst="00:00:00:00:00:02").output_ports == (1,)


def test_a_cut_link_is_down_at_both_ends(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    for channel in channels.values():
        tell(channel, rule(FLOOD))
    link = network.links[0]
    network.cut(link)
    for channel in channels.values():
        told = channel.receive()
        assert told.msg_type == ofproto.OFPT_PORT_STATUS
        assert (told.desc.port_no, told.desc.state) == (1, ofproto.OFPPS_LINK_DOWN)
    assert network.send("h1", FRAME).hosts == []
    network.restore(link)
    assert channels["left"].receive().desc.state == ofproto.OFPPS_LIVE
    assert network.send("h1", FRAME).hosts == ["h2"]
    network.cut(link, silently=True)
    assert channels["left"].barrier() == []
    assert network.send("h1", FRAME).hosts == []


def test_a_host_moves(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    tell(channels["left"], rule(FLOOD))
    with pytest.raises(UnknownPart):
        network.move("h2", switch="left", port=3)
    network.move("h2", switch="left", port=2)
    assert network.send("h1", FRAME).hosts == ["h2"]


def test_comes_back_with_its_state_or_without(
    controller: RawController, network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    left = network.switches["left"]
    tell(channels["left"], rule(1), drop_meter(1))
    left.disconnect()
    with pytest.raises(ConnectionError):
        channels["left"].receive()
    wait_until(lambda: not left.connected.is_set())
    assert left.trace(3, udp_dst=1).output_ports == (1,)
    left.reconnect()
    again = controller.accept()
    assert again.features.datapath_id == 1
    assert len(again.entries(parser.OFPFlowStatsRequest(DATAPATH))) == 1
    left.restart()
    fresh = controller.accept()
    assert fresh.entries(parser.OFPFlowStatsRequest(DATAPATH)) == []
    assert not left.meters()


def test_connects_again_when_the_controller_goes(
    controller: RawController, channels: dict[str, RawChannel]
) -> None:
    channels["left"].close()
    assert controller.accept().features.datapath_id == 1


def test_an_open_bundle_goes_with_its_channel(
    controller: RawController, channels: dict[str, RawChannel]
) -> None:
    def control(kind: int) -> Any:
        return parser.ONFBundleCtrlMsg(DATAPATH, 7, kind, 0, [])

    channels["left"].request(control(ofproto.ONF_BCT_OPEN_REQUEST))
    channels["left"].close()
    answer = controller.accept().request(control(ofproto.ONF_BCT_COMMIT_REQUEST))[0]
    assert answer.exp_type == ofproto.ONFERR_ET_BAD_ID

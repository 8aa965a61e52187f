"""Packets in a network of fake switches."""

from collections.abc import Iterator
from typing import Any

import pytest

from firedex_controller.framework import ofproto, parser
from tests.support.fake_switch import FakeNetwork, RawChannel, RawController, UnknownPart
from tests.support.fake_switch.openflow_wire import DATAPATH
from tests.support.fake_switch.pipeline import change_frame, frame_fields
from tests.support.waiting import wait_until

FLOOD = ofproto.OFPP_FLOOD
FRAME = (  # 10.0.0.1 → 10.0.0.2, UDP 1 → 2
    bytes.fromhex("0000000000020000000000010800")
    + bytes.fromhex("4500002e00000000401166bd0a0000010a00000200010002001a0000")
    + b"x" * 18
)
BROADCAST = b"\xff" * 6 + FRAME[6:]


@pytest.fixture
def controller() -> Iterator[RawController]:
    with RawController() as listening:
        yield listening


@pytest.fixture
def network(controller: RawController) -> Iterator[FakeNetwork]:
    """Two switches with a link between their ports 1 and a host at port 3 of each."""
    with FakeNetwork(controller=controller.address) as fake_network:
        for number, name in enumerate(("left", "right"), start=1):
            fake_network.add_switch(name, datapath_id=number, ports=3)
            mac, ip = f"00:00:00:00:00:0{number}", f"10.0.0.{number}"
            fake_network.add_host(f"h{number}", mac=mac, ip=ip, switch=name, port=3)
        fake_network.add_link(("left", 1), ("right", "right-eth1"))
        yield fake_network


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
    **fields: Any,
) -> Any:
    actions = [] if dscp is None else [parser.OFPActionSetField(ip_dscp=dscp)]
    actions += [] if queue is None else [parser.OFPActionSetQueue(queue)]
    actions += [parser.OFPActionOutput(port, ofproto.OFPCML_NO_BUFFER) for port in ports]
    instructions = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)]
    if meter is not None:
        instructions.append(parser.OFPInstructionMeter(meter))
    if goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(goto))
    openflow_match = parser.OFPMatch(**(match or {}))
    return parser.OFPFlowMod(DATAPATH, match=openflow_match, instructions=instructions, **fields)


def send_and_confirm(channel: RawChannel, *messages: Any) -> None:
    channel.send_all(messages)
    assert channel.barrier() == []


def drop_meter(meter_id: int) -> Any:
    bands = [parser.OFPMeterBandDrop(10, 10)]
    return parser.OFPMeterMod(DATAPATH, ofproto.OFPMC_ADD, ofproto.OFPMF_PKTPS, meter_id, bands)


def test_trace_follows_the_tables(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    udp = {"eth_type": 0x0800, "ip_proto": 17}
    send_and_confirm(
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
    assert [openflow_match.table for openflow_match in important.flows] == [0, 1]
    assert not important.packet_in
    other = left.trace("left-eth3", ipv4_dst="10.0.0.2", udp_dst=5001)
    assert (other.dscp, other.queue, other.output_ports) == (0, None, (1, 2))
    arp_trace = left.trace(3, eth_type=0x0806, arp_tpa="10.0.0.2")
    assert arp_trace.packet_in
    assert arp_trace.output_ports == ()
    assert left.packets_of(important.flows[0]) == 0


def test_frames_cross_links_to_hosts(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    send_and_confirm(channels["left"], rule(1, match={"eth_type": 0x0800}, dscp=46))
    send_and_confirm(channels["right"], rule(3))
    journey = network.send("h1", FRAME)
    assert journey.hosts == ["h2"]
    assert journey.passed == [("left", 3), ("right", 1)]
    (arrived,) = network.hosts["h2"].frames
    assert frame_fields(arrived)["ip_dscp"] == 46
    assert change_frame(arrived, {"ip_dscp": 0}) == FRAME
    (flow,) = network.switches["left"].flows()
    assert network.switches["left"].packets_of(flow) == 1
    stats = channels["right"].entries(parser.OFPPortStatsRequest(DATAPATH, 0, ofproto.OFPP_ANY))
    assert [(s.port_no, s.rx_packets, s.tx_packets) for s in stats] == [
        (1, 1, 0),
        (2, 0, 0),
        (3, 0, 1),
    ]


def test_meters_count_packets(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    send_and_confirm(
        channels["left"], drop_meter(1), rule(1, meter=1), rule(1, meter=1, priority=1)
    )
    network.send("h1", FRAME)
    (stats,) = channels["left"].entries(parser.OFPMeterStatsRequest(DATAPATH))
    assert (stats.flow_count, stats.packet_in_count, stats.byte_in_count) == (2, 1, len(FRAME))


def test_table_miss_sends_a_packet_in(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    send_and_confirm(channels["left"], rule(ofproto.OFPP_CONTROLLER, priority=0, cookie=7))
    assert network.send("h1", FRAME).packet_ins == 1
    message = channels["left"].receive()
    assert (message.reason, message.cookie, message.data) == (ofproto.OFPR_NO_MATCH, 7, FRAME)
    assert message.match["in_port"] == 3


def test_packet_outs_cross_links(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    send_and_confirm(channels["right"], rule(ofproto.OFPP_CONTROLLER))
    actions = [parser.OFPActionOutput(port) for port in (1, 3)]
    sent = parser.OFPPacketOut(
        DATAPATH, ofproto.OFP_NO_BUFFER, ofproto.OFPP_CONTROLLER, actions, FRAME
    )
    channels["left"].send(sent)
    message = channels["right"].receive()
    assert (message.data, message.match["in_port"]) == (FRAME, 1)
    assert network.hosts["h1"].frames == [FRAME]


def test_packet_without_match_is_dropped(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    assert set(channels) == {"left", "right"}
    assert network.send("h1", FRAME).hosts == []


def test_loop_is_detected(network: FakeNetwork, channels: dict[str, RawChannel]) -> None:
    for channel in channels.values():
        send_and_confirm(channel, rule(FLOOD))
    assert not network.send("h1", BROADCAST).storm
    network.add_link(("left", 2), ("right", 2))
    assert network.send("h1", BROADCAST).storm
    assert network.storms == 1


def test_normal_forwarding_learns_addresses(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    for channel in channels.values():
        send_and_confirm(channel, rule(ofproto.OFPP_NORMAL))
    back = FRAME[6:12] + FRAME[:6] + FRAME[12:]
    network.send("h1", FRAME)
    assert network.send("h2", back).hosts == ["h1"]
    assert network.switches["left"].trace(3, eth_dst="00:00:00:00:00:02").output_ports == (1,)


def test_cut_link_is_down_at_both_ends(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    for channel in channels.values():
        send_and_confirm(channel, rule(FLOOD))
    link = network.links[0]
    network.cut(link)
    for channel in channels.values():
        message = channel.receive()
        assert message.msg_type == ofproto.OFPT_PORT_STATUS
        assert (message.desc.port_no, message.desc.state) == (1, ofproto.OFPPS_LINK_DOWN)
    assert network.send("h1", FRAME).hosts == []
    network.restore(link)
    assert channels["left"].receive().desc.state == ofproto.OFPPS_LIVE
    assert network.send("h1", FRAME).hosts == ["h2"]
    network.cut(link, silently=True)
    assert channels["left"].barrier() == []
    assert network.send("h1", FRAME).hosts == []


def test_moved_host_receives_frames_at_its_new_port(
    network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    send_and_confirm(channels["left"], rule(FLOOD))
    with pytest.raises(UnknownPart):
        network.move("h2", switch="left", port=3)
    network.move("h2", switch="left", port=2)
    assert network.send("h1", FRAME).hosts == ["h2"]


def test_reconnected_switch_keeps_its_state_and_restarted_one_loses_it(
    controller: RawController, network: FakeNetwork, channels: dict[str, RawChannel]
) -> None:
    left = network.switches["left"]
    send_and_confirm(channels["left"], rule(1), drop_meter(1))
    left.disconnect()
    with pytest.raises(ConnectionError):
        channels["left"].receive()
    wait_until(lambda: not left.connected.is_set(), "the switch is disconnected")
    assert left.trace(3, udp_dst=1).output_ports == (1,)
    left.reconnect()
    new_channel = controller.accept()
    assert new_channel.features.datapath_id == 1
    assert len(new_channel.entries(parser.OFPFlowStatsRequest(DATAPATH))) == 1
    left.restart()
    fresh = controller.accept()
    assert fresh.entries(parser.OFPFlowStatsRequest(DATAPATH)) == []
    assert not left.meters()


def test_switch_reconnects_to_a_new_controller(
    controller: RawController, channels: dict[str, RawChannel]
) -> None:
    channels["left"].close()
    assert controller.accept().features.datapath_id == 1


def test_open_bundle_is_discarded_with_its_channel(
    controller: RawController, channels: dict[str, RawChannel]
) -> None:
    def control(kind: int) -> Any:
        return parser.ONFBundleCtrlMsg(DATAPATH, 7, kind, 0, [])

    channels["left"].request(control(ofproto.ONF_BCT_OPEN_REQUEST))
    channels["left"].close()
    answer = controller.accept().request(control(ofproto.ONF_BCT_COMMIT_REQUEST))[0]
    assert answer.exp_type == ofproto.ONFERR_ET_BAD_ID

"""OpenFlow messages to the fake switch over its socket, and its replies.

``test_fake_switch_like_ovs`` compares the fake switch with Open vSwitch.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from firedex_controller.framework import ofproto, parser
from tests.support.fake_switch import FakeNetwork, FakeSwitch, RawChannel, RawController
from tests.support.fake_switch.openflow_wire import DATAPATH

pytestmark = pytest.mark.slow

IP = {"eth_type": 0x0800}
BUNDLE_FLAGS = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED


@pytest.fixture
def controller() -> Iterator[RawController]:
    with RawController() as raw_controller:
        yield raw_controller


@pytest.fixture
def switch(controller: RawController) -> Iterator[FakeSwitch]:
    with FakeNetwork(controller=controller.address) as network:
        yield network.add_switch("core", datapath_id=0xABC, ports=["trunk", "left", "right"])


@pytest.fixture
def channel(controller: RawController, switch: FakeSwitch) -> RawChannel:
    assert switch.name == "core"
    return controller.accept()


def flow(command: int = ofproto.OFPFC_ADD, *, meter: int | None = None, **fields: Any) -> Any:
    actions = [parser.OFPActionOutput(2)]
    instructions = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)]
    if meter is not None:
        instructions.insert(0, parser.OFPInstructionMeter(meter))
    fields["match"] = parser.OFPMatch(**fields.get("match", {}))
    any_output = {"out_port": ofproto.OFPP_ANY, "out_group": ofproto.OFPG_ANY}
    return parser.OFPFlowMod(
        DATAPATH, command=command, instructions=instructions, **{**any_output, **fields}
    )


def meter(meter_id: int, command: int = ofproto.OFPMC_ADD, *, rate: int = 100) -> Any:
    flags = ofproto.OFPMF_PKTPS | ofproto.OFPMF_BURST
    bands = [parser.OFPMeterBandDrop(rate, 10)]
    return parser.OFPMeterMod(DATAPATH, command, flags, meter_id, bands)


def bundle_messages(*messages: Any) -> list[Any]:
    def control(kind: int) -> Any:
        return parser.ONFBundleCtrlMsg(DATAPATH, 7, kind, BUNDLE_FLAGS, [])

    added = [parser.ONFBundleAddMsg(DATAPATH, 7, BUNDLE_FLAGS, message, []) for message in messages]
    return [control(ofproto.ONF_BCT_OPEN_REQUEST), *added, control(ofproto.ONF_BCT_COMMIT_REQUEST)]


def errors(replies: list[Any]) -> list[tuple[int, int]]:
    return [
        (m.type, m.exp_type if m.type == ofproto.OFPET_EXPERIMENTER else m.code)
        for m in replies
        if m.msg_type == ofproto.OFPT_ERROR
    ]


def priorities(switch: FakeSwitch) -> set[int]:
    return {matching_priorities.priority for matching_priorities in switch.flows()}


def test_features_reply_describes_the_switch(channel: RawChannel) -> None:
    assert channel.features.datapath_id == 0xABC
    ports = channel.entries(parser.OFPPortDescStatsRequest(DATAPATH))
    assert [(port.port_no, port.name) for port in ports] == [
        (1, b"trunk"),
        (2, b"left"),
        (3, b"right"),
    ]
    assert len({port.hw_addr for port in ports}) == 3
    description = channel.request(parser.OFPDescStatsRequest(DATAPATH))[0].body
    assert b"fake" in description.hw_desc


def test_echo_role_and_configuration_requests_are_answered(channel: RawChannel) -> None:
    assert channel.request(parser.OFPEchoRequest(DATAPATH, data=b"there?"))[0].data == b"there?"
    role = channel.request(parser.OFPRoleRequest(DATAPATH, ofproto.OFPCR_ROLE_MASTER, 5))[0]
    assert (role.role, role.generation_id) == (ofproto.OFPCR_ROLE_MASTER, 5)
    channel.send(parser.OFPSetConfig(DATAPATH, 0, 0xFFFF))
    assert channel.request(parser.OFPGetConfigRequest(DATAPATH))[0].miss_send_len == 0xFFFF


def test_add_replaces_and_modify_keeps_other_fields(
    channel: RawChannel, switch: FakeSwitch
) -> None:
    channel.send_all([flow(cookie=1, match=IP), flow(cookie=2, match=IP)])
    assert channel.barrier() == []
    assert [matching_priorities.cookie for matching_priorities in switch.flows()] == [2]
    channel.send(flow(ofproto.OFPFC_MODIFY, cookie=9, match={}))
    channel.barrier()
    assert [matching_priorities.cookie for matching_priorities in switch.flows()] == [2]


def test_delete_by_cookie_removes_matching_flows(channel: RawChannel, switch: FakeSwitch) -> None:
    channel.send_all([flow(priority=n, cookie=n % 2, table_id=n) for n in range(6)])
    everywhere = ofproto.OFPTT_ALL
    channel.send(flow(ofproto.OFPFC_DELETE, cookie=1, cookie_mask=2**64 - 1, table_id=everywhere))
    channel.barrier()
    assert priorities(switch) == {0, 2, 4}


def test_delete_without_output_port_any_deletes_nothing(
    channel: RawChannel, switch: FakeSwitch
) -> None:
    channel.send_all([flow(), parser.OFPFlowMod(DATAPATH, command=ofproto.OFPFC_DELETE)])
    channel.barrier()
    assert len(switch.flows()) == 1


def test_deleting_a_meter_deletes_its_flows(channel: RawChannel, switch: FakeSwitch) -> None:
    channel.send_all([meter(1), meter(2), flow(meter=1, priority=1), flow(meter=2, priority=2)])
    channel.send(meter(1, ofproto.OFPMC_DELETE))
    assert channel.barrier() == []
    assert priorities(switch) == {2}
    assert {matching_priorities.id for matching_priorities in switch.meters()} == {2}


def test_invalid_meters_are_refused(channel: RawChannel, switch: FakeSwitch) -> None:
    switch.limit(max_meters=2)
    failed = ofproto.OFPET_METER_MOD_FAILED
    for message, code in (
        (meter(1), None),
        (meter(1), ofproto.OFPMMFC_METER_EXISTS),
        (meter(8, ofproto.OFPMC_MODIFY), ofproto.OFPMMFC_UNKNOWN_METER),
        (flow(meter=8), ofproto.OFPMMFC_INVALID_METER),
        (meter(2), None),
        (meter(3), ofproto.OFPMMFC_OUT_OF_METERS),
        (meter(1, ofproto.OFPMC_MODIFY, rate=7), None),
    ):
        channel.send(message)
        assert errors(channel.barrier()) == ([] if code is None else [(failed, code)])
    assert {
        (matching_priorities.id, matching_priorities.bands[0].rate)
        for matching_priorities in switch.meters()
    } == {(1, 7), (2, 100)}
    features = channel.entries(parser.OFPMeterFeaturesStatsRequest(DATAPATH))
    assert features[0].max_meter == 2


def test_full_table_refuses_new_entries_but_overwrites(
    channel: RawChannel, switch: FakeSwitch
) -> None:
    switch.limit(max_flows=2)
    channel.send_all([flow(priority=n) for n in (1, 2, 3)] + [flow(priority=2, cookie=5)])
    full = (ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_TABLE_FULL)
    assert errors(channel.barrier()) == [full]
    assert {
        (matching_priorities.priority, matching_priorities.cookie)
        for matching_priorities in switch.flows()
    } == {(1, 0), (2, 5)}


def test_bundle_is_applied_at_commit(channel: RawChannel, switch: FakeSwitch) -> None:
    *before, commit = bundle_messages(flow(priority=1), flow(priority=2))
    channel.send_all(before)
    channel.barrier()
    assert not switch.flows()
    answer = channel.request(commit)[0]
    assert answer.type == ofproto.ONF_BCT_COMMIT_REPLY
    assert priorities(switch) == {1, 2}


def test_failed_bundle_changes_nothing_and_reports_the_message(
    channel: RawChannel, switch: FakeSwitch
) -> None:
    channel.send(flow(priority=9))
    transactions = channel.send_all(
        bundle_messages(flow(priority=1), flow(meter=5), flow(priority=3))
    )
    replies = [m for m in channel.barrier() if m.msg_type == ofproto.OFPT_ERROR]
    assert errors(replies) == [
        (ofproto.OFPET_METER_MOD_FAILED, ofproto.OFPMMFC_INVALID_METER),
        (ofproto.OFPET_EXPERIMENTER, ofproto.ONFERR_ET_FAILED),
    ]
    assert [message.xid for message in replies] == [transactions[2], transactions[4]]
    assert priorities(switch) == {9}
    assert [m.kind for m in switch.received() if m.refused] == ["bundle commit"]


def test_invalid_message_is_refused_before_the_commit(
    channel: RawChannel, switch: FakeSwitch
) -> None:
    channel.send_all(bundle_messages(flow(priority=1), flow(match={"ip_proto": 17}), meter(1)))
    assert errors(channel.barrier()) == [
        (ofproto.OFPET_BAD_MATCH, ofproto.OFPBMC_BAD_PREREQ),
        (ofproto.OFPET_EXPERIMENTER, ofproto.ONFERR_ET_MSG_UNSUP),
    ]
    assert priorities(switch) == {1}


def test_bundles_can_be_disabled(channel: RawChannel, switch: FakeSwitch) -> None:
    switch.limit(bundles=False)
    channel.send_all(bundle_messages(flow()))
    unknown = (ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_EXPERIMENTER)
    assert errors(channel.barrier()) == [unknown] * 3
    assert not switch.flows()


def test_flow_statistics_can_be_filtered_by_table_and_cookie(channel: RawChannel) -> None:
    channel.send_all([flow(priority=n, table_id=n % 2, cookie=n, match=IP) for n in range(1, 9)])
    channel.barrier()

    def matching_priorities(**fields: Any) -> list[int]:
        entries = channel.entries(parser.OFPFlowStatsRequest(DATAPATH, **fields))
        return sorted(entry.priority for entry in entries)

    assert matching_priorities() == list(range(1, 9))
    assert matching_priorities(table_id=1) == [1, 3, 5, 7]
    assert matching_priorities(cookie=4, cookie_mask=2**64 - 1) == [4]
    assert matching_priorities(out_port=3) == []


def test_bundle_and_multipart_replies_hold_ten_thousand_flows(
    channel: RawChannel, switch: FakeSwitch
) -> None:
    changes = [flow(match={**IP, "ipv4_dst": f"10.0.{n // 250}.{n % 250}"}) for n in range(10_000)]
    messages = bundle_messages(*changes)
    channel.send_all(messages)
    assert errors(channel.barrier()) == []
    assert len(switch.flows()) == 10_000
    parts = channel.request(parser.OFPFlowStatsRequest(DATAPATH))
    assert len(parts) > 1
    assert sum(len(part.body) for part in parts) == 10_000


def test_many_errors_can_wait_to_be_read(channel: RawChannel) -> None:
    channel.send_all([flow(match={"ip_proto": 17}) for _ in range(20_000)])
    assert len(errors(channel.barrier())) == 20_000


def test_received_messages_are_recorded_in_order(channel: RawChannel, switch: FakeSwitch) -> None:
    switch.clear_received()
    channel.send_all([meter(1), meter(2), flow(meter=1), flow(meter=2, priority=1)])
    channel.barrier()
    channel.send_all([flow(ofproto.OFPFC_DELETE_STRICT, priority=1)])
    channel.send_all([meter(2, ofproto.OFPMC_DELETE)])
    channel.barrier()
    assert switch.order() == [
        "meter add",
        "flow add",
        "barrier",
        "flow delete strict",
        "meter delete",
        "barrier",
    ]

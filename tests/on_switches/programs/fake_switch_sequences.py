"""Hypothesis strategies for sequences of messages with few ids, so that messages interact."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st

from firedex_controller.framework import ofproto
from tests.on_switches.programs import fake_switch_cases as cases

MessageFactory = Callable[[], Any]  # a message can be sent once, so each switch needs a new one

IP = {"eth_type": 0x0800}
MATCHES: list[dict[str, Any]] = [
    {},
    {"in_port": 1},
    {"eth_type": 0x0806},
    IP,
    {**IP, "ip_proto": 17},
    {**IP, "ip_proto": 6},
    {**IP, "ipv4_dst": "10.0.0.2"},
    {**IP, "ipv4_dst": ("10.0.0.0", "255.255.255.0")},
    {**IP, "ip_proto": 17, "ipv4_dst": "10.0.0.2", "udp_dst": 2},
    {**IP, "ip_proto": 17, "tcp_dst": 2},  # refused
]
METERS = st.integers(1, 3)
COMMANDS = [
    *[ofproto.OFPFC_ADD] * 4,
    ofproto.OFPFC_MODIFY,
    ofproto.OFPFC_MODIFY_STRICT,
    ofproto.OFPFC_DELETE,
    ofproto.OFPFC_DELETE_STRICT,
]


@st.composite
def flow_changes(draw: st.DrawFn) -> MessageFactory:
    command = draw(st.sampled_from(COMMANDS))
    port = draw(st.integers(1, 3))
    dscp = draw(st.sampled_from([None, None, 10, 46]))
    fields: dict[str, Any] = {
        "match": draw(st.sampled_from(MATCHES)),
        "priority": draw(st.integers(1, 3)),
        "table_id": draw(st.sampled_from([0, 0, 0, 1, 2])),
        "cookie": draw(st.integers(0, 3)),
        "flags": draw(st.sampled_from([0, 0, ofproto.OFPFF_RESET_COUNTS])),
        "meter": draw(st.none() | METERS),
        "goto": draw(st.sampled_from([None, None, 1, 2])),
    }
    if command != ofproto.OFPFC_ADD:
        fields["cookie_mask"] = draw(st.sampled_from([0, 0, 1, 2**64 - 1]))
    if command in (ofproto.OFPFC_DELETE, ofproto.OFPFC_DELETE_STRICT):
        fields["table_id"] = draw(st.sampled_from([0, 1, ofproto.OFPTT_ALL]))
        fields["out_port"] = draw(st.sampled_from([ofproto.OFPP_ANY, ofproto.OFPP_ANY, 1, 2]))
        fields["goto"] = None

    def make_message() -> Any:
        marks = [] if dscp is None else cases.set_fields(ip_dscp=dscp)
        return cases.flow(command, actions=marks + cases.out(port), **fields)

    return make_message


@st.composite
def meter_changes(draw: st.DrawFn) -> MessageFactory:
    meter_id = draw(METERS)
    if draw(st.integers(0, 3)) == 0:
        every = draw(st.integers(0, 4)) == 0
        return partial(cases.delete_meter, ofproto.OFPM_ALL if every else meter_id)
    command = draw(st.sampled_from([ofproto.OFPMC_ADD, ofproto.OFPMC_ADD, ofproto.OFPMC_MODIFY]))
    return partial(cases.meter, meter_id, command, rate=draw(st.integers(0, 3)))


@st.composite
def bundle_messages(draw: st.DrawFn) -> MessageFactory:
    fields = {"bundle": draw(st.integers(1, 2)), "flags": draw(st.sampled_from([3, 3, 3, 3, 1]))}
    control = draw(
        st.sampled_from(
            [
                cases.open_bundle,
                cases.open_bundle,
                cases.close_bundle,
                cases.commit_bundle,
                cases.commit_bundle,
            ]
            + [cases.discard_bundle]
            + [None] * 6
        )
    )
    if control is not None:
        return partial(control, **fields)
    inner = draw(flow_changes() | meter_changes())
    return lambda: cases.add(inner(), **fields)


SEQUENCES = st.lists(
    flow_changes()
    | flow_changes()
    | meter_changes()
    | bundle_messages()
    | st.just(cases.packet_out),
    min_size=1,
    max_size=25,
)

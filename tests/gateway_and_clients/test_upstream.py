"""What a client sends passes as it is, but nobody subscribes above the QoS that was planned."""

import pytest
from loopback_parts import coins

from firedex.gateway import broker_packets as broker
from firedex.gateway.errors import MalformedPacket
from firedex.gateway.flow_table import ManagedFlow
from firedex.gateway.mqtt_packets import PacketKind, encoded_length, packet
from firedex.gateway.upstream import LONGEST_SUBSCRIBE_BYTES, Upstream, with_qos_at_most

PING = packet(PacketKind.PINGREQ, 0, b"")
EVENT = packet(PacketKind.PUBLISH, 0, b"\0\1t" + bytes([0x82]) * 300)


def subscribe(*options: int, level: int = 4) -> bytes:
    properties = b"\x02\x0b\x07" if level == 5 else b""
    filters = b"".join(b"\0\3a/#" + bytes([each]) for each in options)
    return packet(PacketKind.SUBSCRIBE, 2, b"\0\1" + properties + filters)


@pytest.mark.parametrize("level", [4, 5])
def test_only_the_quality_is_lowered(level: int) -> None:
    asked = subscribe(0b10_1101, 0b00_0010, 0b01_0000, level=level)
    assert with_qos_at_most(0, asked, level=level) == subscribe(
        0b10_1100, 0b00_0000, 0b01_0000, level=level
    )
    assert with_qos_at_most(1, asked, level=level) == subscribe(
        0b10_1101, 0b00_0001, 0b01_0000, level=level
    )
    assert with_qos_at_most(2, asked, level=level) == asked


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("flow", [None, ManagedFlow("crew", 0, 0.5), ManagedFlow("crew", 0, 0, 1)])
def test_however_it_is_cut_all_else_passes(flow: ManagedFlow | None, pieces: int) -> None:
    cap = 2 if flow is None else flow.qos
    stream = [PING, subscribe(2, 1), EVENT, EVENT, subscribe(1), PING, subscribe(0), EVENT]
    data = b"".join(stream)
    cuts = sorted(coins(pieces).choices(range(len(data)), k=pieces))
    up = Upstream(lambda: flow, level=4)
    found = b"".join(
        up.passed(data[begin:end])
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
    )
    kinds = [with_qos_at_most(cap, each, level=4) if each[0] == 0x82 else each for each in stream]
    assert found == b"".join(kinds)


def test_a_large_event_is_not_held() -> None:
    up = Upstream(lambda: ManagedFlow("crew", 0, 0.5), level=4)
    begun = bytes([PacketKind.PUBLISH << 4]) + encoded_length(200_000_000) + b"\0\1t"
    assert up.passed(begun) == begun
    assert up.passed(EVENT) == EVENT


def test_what_is_planned_now_counts() -> None:
    flow = ManagedFlow("crew", 0, 0.5)
    up = Upstream(lambda: flow, level=4)
    assert up.passed(subscribe(1)) == subscribe(0)
    flow.qos = 1
    assert up.passed(subscribe(1)) == subscribe(1)


@pytest.mark.parametrize(
    "nonsense",
    [
        packet(PacketKind.SUBSCRIBE, 2, b"\0\1\xff\xffa"),
        packet(PacketKind.SUBSCRIBE, 2, b"\0\1\0"),
        bytes([0x82]) + encoded_length(LONGEST_SUBSCRIBE_BYTES),
        bytes([0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1]),
    ],
)
def test_nonsense_is_told_from_mqtt(nonsense: bytes) -> None:
    with pytest.raises(MalformedPacket):
        Upstream(lambda: ManagedFlow("crew", 0, 0.5), level=4).passed(nonsense)


def test_the_gateways_own_subscriptions_are_read() -> None:
    asked = broker.subscribe(7, b"smoke/#", 2, level=5)
    assert with_qos_at_most(1, asked, level=5) == broker.subscribe(7, b"smoke/#", 1, level=5)

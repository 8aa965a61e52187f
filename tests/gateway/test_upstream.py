"""Packets from a client to the broker: the QoS of subscriptions is limited to the planned one."""

import pytest

from firedex.gateway.flow_table import ManagedFlow
from firedex.gateway.upstream import MAX_SUBSCRIBE_BYTES, Upstream, limit_qos
from firedex.transport.mqtt.encoding import (
    MalformedPacket,
    PacketType,
    encode_packet,
    encode_variable_integer,
)
from firedex.transport.mqtt.packets import encode_subscribe
from tests.support.loopback_parts import seeded_random

PING = encode_packet(PacketType.PINGREQ, 0, b"")
EVENT = encode_packet(PacketType.PUBLISH, 0, b"\0\1t" + bytes([0x82]) * 300)


def encode_subscribe_packet(*options: int, level: int = 4) -> bytes:
    properties = b"\x02\x0b\x07" if level == 5 else b""
    filters = b"".join(b"\0\3a/#" + bytes([each]) for each in options)
    return encode_packet(PacketType.SUBSCRIBE, 2, b"\0\1" + properties + filters)


@pytest.mark.parametrize("level", [4, 5])
def test_limit_qos_changes_only_the_qos_bits(level: int) -> None:
    requested = encode_subscribe_packet(0b10_1101, 0b00_0010, 0b01_0000, level=level)
    assert limit_qos(0, requested, level=level) == encode_subscribe_packet(
        0b10_1100, 0b00_0000, 0b01_0000, level=level
    )
    assert limit_qos(1, requested, level=level) == encode_subscribe_packet(
        0b10_1101, 0b00_0001, 0b01_0000, level=level
    )
    assert limit_qos(2, requested, level=level) == requested


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("flow", [None, ManagedFlow("crew", 0, 0.5), ManagedFlow("crew", 0, 0, 1)])
def test_other_packets_pass_unchanged_in_chunks_of_any_size(
    flow: ManagedFlow | None, pieces: int
) -> None:
    max_qos = 2 if flow is None else flow.qos
    stream = [
        PING,
        encode_subscribe_packet(2, 1),
        EVENT,
        EVENT,
        encode_subscribe_packet(1),
        PING,
        encode_subscribe_packet(0),
        EVENT,
    ]
    data = b"".join(stream)
    cuts = sorted(seeded_random(pieces).choices(range(len(data)), k=pieces))
    up = Upstream(lambda: flow, level=4)
    output = b"".join(
        up.receive(data[begin:end])
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
    )
    expected = [limit_qos(max_qos, each, level=4) if each[0] == 0x82 else each for each in stream]
    assert output == b"".join(expected)


def test_part_of_a_large_event_passes_at_once() -> None:
    up = Upstream(lambda: ManagedFlow("crew", 0, 0.5), level=4)
    start_of_event = (
        bytes([PacketType.PUBLISH << 4]) + encode_variable_integer(200_000_000) + b"\0\1t"
    )
    assert up.receive(start_of_event) == start_of_event
    assert up.receive(EVENT) == EVENT


def test_new_qos_of_a_flow_applies_to_open_connections() -> None:
    flow = ManagedFlow("crew", 0, 0.5)
    up = Upstream(lambda: flow, level=4)
    assert up.receive(encode_subscribe_packet(1)) == encode_subscribe_packet(0)
    flow.qos = 1
    assert up.receive(encode_subscribe_packet(1)) == encode_subscribe_packet(1)


@pytest.mark.parametrize(
    "packet",
    [
        encode_packet(PacketType.SUBSCRIBE, 2, b"\0\1\xff\xffa"),
        encode_packet(PacketType.SUBSCRIBE, 2, b"\0\1\0"),
        bytes([0x82]) + encode_variable_integer(MAX_SUBSCRIBE_BYTES),
        bytes([0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1]),
    ],
)
def test_malformed_packet_is_rejected(packet: bytes) -> None:
    with pytest.raises(MalformedPacket):
        Upstream(lambda: ManagedFlow("crew", 0, 0.5), level=4).receive(packet)


def test_limit_qos_accepts_packets_of_encode_subscribe() -> None:
    requested = encode_subscribe(7, b"smoke/#", 2, level=5)
    assert limit_qos(1, requested, level=5) == encode_subscribe(7, b"smoke/#", 1, level=5)

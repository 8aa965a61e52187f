"""Cutting an MQTT stream into packets: whole, in order, wherever the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.gateway.mqtt_packets import MalformedPacket, PacketCutter, may_be_dropped

PUBLISH = 3


def encoded_length(length: int) -> bytes:
    """MQTT 5 §1.5.5, written down independently of the product."""
    out = bytearray()
    while True:
        length, digit = divmod(length, 128)
        out.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(out)


def packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + encoded_length(len(body)) + body


packets = st.builds(
    packet,
    st.integers(1, 15),
    st.integers(0, 15),
    st.one_of(
        st.binary(max_size=300), st.integers(126, 20_000).map(lambda n: bytes(range(256)) * n)
    ).map(lambda body: body[:20_000]),
)


@given(whole=st.lists(packets, max_size=8), data=st.data())
def test_packets_come_out_whole_and_in_order(whole: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(whole)
    borders = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *borders], [*borders, len(stream)], strict=True)]
    cutter = PacketCutter()
    assert [found for piece in pieces for found in cutter.cut(piece)] == whole


@given(st.lists(packets, max_size=3).map(lambda found: [body[:600] for body in found]))
def test_byte_by_byte_is_as_good_as_at_once(found: list[bytes]) -> None:
    # Cut-off packets too: what is complete must not depend on how the bytes came.
    stream = b"".join(found)
    at_once, slowly = PacketCutter(), PacketCutter()
    try:
        expected = list(at_once.cut(stream))
    except MalformedPacket:
        return
    assert [p for n in range(len(stream)) for p in slowly.cut(stream[n : n + 1])] == expected


def test_an_incomplete_packet_waits() -> None:
    cutter = PacketCutter()
    whole = packet(PUBLISH, 0, b"x" * 200)
    assert list(cutter.cut(whole[:1])) == []
    assert list(cutter.cut(whole[1:-1])) == []
    assert list(cutter.cut(whole[-1:])) == [whole]


@pytest.mark.parametrize("length", [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_every_size_of_length(length: int) -> None:
    whole = packet(PUBLISH, 0, bytes(length))
    assert [len(found) for found in PacketCutter().cut(whole)] == [len(whole)]


def test_a_length_of_more_than_four_bytes_is_refused() -> None:
    with pytest.raises(MalformedPacket, match="four bytes"):
        list(PacketCutter().cut(b"\x30\xff\xff\xff\xff\x01"))


def test_packets_before_the_malformed_one_still_come_out() -> None:
    good = packet(PUBLISH, 0, b"good")
    cutting = PacketCutter().cut(good + b"\x30\xff\xff\xff\xff\x01")
    assert next(cutting) == good
    with pytest.raises(MalformedPacket):
        next(cutting)


@given(st.integers(0, 15), st.integers(0, 15), st.binary(max_size=40))
def test_only_unacknowledged_and_unretained_events_may_be_dropped(
    kind: int, flags: int, body: bytes
) -> None:
    quality, retained = flags >> 1 & 3, flags & 1
    expected = kind == PUBLISH and quality == 0 and retained == 0
    assert may_be_dropped(packet(kind, flags, body)) is expected

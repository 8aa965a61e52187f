"""Splitting an MQTT byte stream into packets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.transport.mqtt.encoding import MalformedPacket, PacketSplitter

PUBLISH = 3


def encode_variable_integer(length: int) -> bytes:
    """Return a variable byte integer (MQTT 5 §1.5.5); independent of the tested code."""
    out = bytearray()
    while True:
        length, digit = divmod(length, 128)
        out.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(out)


def encode_packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + encode_variable_integer(len(body)) + body


packets = st.builds(
    encode_packet,
    st.integers(1, 15),
    st.integers(0, 15),
    st.one_of(
        st.binary(max_size=300), st.integers(126, 20_000).map(lambda n: bytes(range(256)) * n)
    ).map(lambda body: body[:20_000]),
)


@given(expected=st.lists(packets, max_size=8), data=st.data())
def test_splitter_returns_complete_packets_in_order(
    expected: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(expected)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    splitter = PacketSplitter()
    assert [packet for piece in pieces for packet in splitter.feed(piece)] == expected


@given(st.lists(packets, max_size=3).map(lambda each: [packet[:600] for packet in each]))
def test_result_does_not_depend_on_chunk_size(truncated_packets: list[bytes]) -> None:
    stream = b"".join(truncated_packets)
    at_once, byte_by_byte = PacketSplitter(), PacketSplitter()
    try:
        expected = list(at_once.feed(stream))
    except MalformedPacket:
        return
    assert [p for n in range(len(stream)) for p in byte_by_byte.feed(stream[n : n + 1])] == expected


def test_incomplete_packet_is_buffered() -> None:
    splitter = PacketSplitter()
    expected = encode_packet(PUBLISH, 0, b"x" * 200)
    assert list(splitter.feed(expected[:1])) == []
    assert list(splitter.feed(expected[1:-1])) == []
    assert list(splitter.feed(expected[-1:])) == [expected]


@pytest.mark.parametrize("length", [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_length_fields_of_all_sizes_are_read(length: int) -> None:
    expected = encode_packet(PUBLISH, 0, bytes(length))
    assert [len(packet) for packet in PacketSplitter().feed(expected)] == [len(expected)]


def test_length_of_more_than_four_bytes_is_malformed() -> None:
    with pytest.raises(MalformedPacket, match="four bytes"):
        list(PacketSplitter().feed(b"\x30\xff\xff\xff\xff\x01"))


def test_packets_before_a_malformed_one_are_returned() -> None:
    valid = encode_packet(PUBLISH, 0, b"good")
    split_packets = PacketSplitter().feed(valid + b"\x30\xff\xff\xff\xff\x01")
    assert next(split_packets) == valid
    with pytest.raises(MalformedPacket):
        next(split_packets)

"""Packets of sessions and subscriptions, as a relay reads them."""

import pytest

from firedex.transport.mqtt.encoding import MalformedPacket
from firedex.transport.mqtt.session_packets import (
    NEVER_EXPIRES,
    SessionAnswer,
    SessionRequest,
    read_acknowledged_codes,
    read_disconnect_expiry,
    read_session_answer,
    read_session_request,
    read_subscribe,
    read_unsubscribe,
)
from tests.support import session_packets as packets


@pytest.mark.parametrize(
    ("level", "clean", "expiry", "expected"),
    [
        (3, False, None, NEVER_EXPIRES),
        (4, True, None, 0),
        (4, False, None, NEVER_EXPIRES),
        (5, True, 60, 60),
        (5, False, None, 0),
    ],
)
def test_connect(level: int, clean: bool, expiry: int | None, expected: int) -> None:
    packet = packets.connect("crew", level=level, clean=clean, expiry=expiry)
    assert read_session_request(packet) == SessionRequest(
        level=level, client_id="crew", clean_start=clean, expiry_seconds=expected
    )


def test_connect_of_a_mosquitto_bridge() -> None:
    packet = packets.connect("bridge", level=4).replace(b"MQTT\x04", b"MQTT\x84")
    assert read_session_request(packet).level == 4


def test_connack() -> None:
    answer = read_session_answer(packets.connack(present=True, expiry=9, assigned="a"), level=5)
    assert answer == SessionAnswer(code=0, session_present=True, client_id="a", expiry_seconds=9)
    refused = read_session_answer(packets.connack(level=4, code=5), level=4)
    assert refused == SessionAnswer(code=5, session_present=False)


@pytest.mark.parametrize("level", [4, 5])
def test_subscriptions(level: int) -> None:
    filters = (("smoke/#", 1), ("é", 2))
    assert read_subscribe(packets.subscribe(7, filters, level=level), level=level) == (7, filters)
    names = ("smoke/#", "é")
    packet = packets.unsubscribe(8, names, level=level)
    assert read_unsubscribe(packet, level=level) == (8, names)
    packet = packets.suback(7, [1, 0x80], level=level)
    assert read_acknowledged_codes(packet, level=level) == (7, b"\x01\x80")


def test_disconnect() -> None:
    assert read_disconnect_expiry(packets.disconnect(expiry=5), level=5) == 5
    assert read_disconnect_expiry(packets.disconnect(), level=5) is None
    assert read_disconnect_expiry(packets.disconnect(level=4), level=4) is None


def test_truncated_packet_is_malformed() -> None:
    whole = packets.subscribe(7, [("smoke", 1)], level=4)
    for cut in range(5, len(whole)):
        with pytest.raises(MalformedPacket):
            read_subscribe(whole[:cut], level=4)
    for cut in range(2, len(packets.connect("crew"))):
        with pytest.raises(MalformedPacket):
            read_session_request(packets.connect("crew")[:cut])
    with pytest.raises(MalformedPacket, match="UTF-8"):
        read_subscribe(whole.replace(b"smoke", b"smo\xffe"), level=4)

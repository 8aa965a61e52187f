"""Sizes on the wire, compared with manual calculation."""

import pytest

from firedex.wire import Scenario, from_plain
from firedex.wire.packet_sizes import (
    MAX_UDP_PAYLOAD_BYTES,
    MTU_BYTES,
    mqtt_publish_bytes,
    mqtt_sn_publish_bytes,
    wire_bytes,
)
from firedex_models.site import event_wire_bytes
from tests.support.small_site import site, topic

ETHERNET, IP, UDP, TCP = 14, 20, 8, 32


def udp_bytes(payload: int, *, stamped: bool = False, name: str = "a", qos: int = 0) -> int:
    return wire_bytes(payload_bytes=payload, transport="udp", topic=name, qos=qos, stamped=stamped)


def tcp_bytes(payload: int, *, stamped: bool = False, name: str = "a", qos: int = 0) -> int:
    return wire_bytes(payload_bytes=payload, transport="tcp", topic=name, qos=qos, stamped=stamped)


def test_event_of_the_paper_has_100_bytes_over_udp() -> None:
    assert udp_bytes(51) == ETHERNET + IP + UDP + 7 + 51 == 100


@pytest.mark.parametrize(
    ("payload", "message"), [(0, 7), (1, 8), (248, 255), (249, 258), (250, 259), (1463, 1472)]
)
def test_mqtt_sn_header_is_longer_from_256_bytes(payload: int, message: int) -> None:
    assert mqtt_sn_publish_bytes(payload) == message


def test_topic_name_and_qos_do_not_change_size_over_udp() -> None:
    assert udp_bytes(51, name="a/very/long/name", qos=2) == udp_bytes(51)


def test_event_stamp_has_24_bytes_over_udp() -> None:
    assert udp_bytes(51, stamped=True) == 124
    assert udp_bytes(224, stamped=True) == 42 + 255
    assert (
        udp_bytes(225, stamped=True) == 42 + 258
    )  # the stamp makes the message need the longer header


def test_largest_udp_payload_fills_the_mtu() -> None:
    assert MAX_UDP_PAYLOAD_BYTES == 1463
    assert udp_bytes(MAX_UDP_PAYLOAD_BYTES) == ETHERNET + MTU_BYTES
    assert udp_bytes(MAX_UDP_PAYLOAD_BYTES + 1) > ETHERNET + MTU_BYTES


def test_small_event_over_tcp_has_the_size_of_its_headers_and_payload() -> None:
    # fixed header 1 + remaining length 1 + name 2 + 12 + property length 1 + payload 51
    assert mqtt_publish_bytes(51, "smoke/floor1", 0) == 68
    assert tcp_bytes(51, name="smoke/floor1") == 68 + ETHERNET + IP + TCP == 134


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_event_has_a_packet_id(qos: int) -> None:
    assert tcp_bytes(51, name="smoke/floor1", qos=qos) == 136


def test_event_stamp_has_38_bytes_over_tcp() -> None:
    # identifier 1, key 2 + 3, value 2 + 30: the length of the properties still fits one byte
    assert tcp_bytes(51, name="smoke/floor1", stamped=True) == 134 + 38


def test_topic_name_is_counted_in_utf8_bytes() -> None:
    assert tcp_bytes(51, name="é") == tcp_bytes(51, name="ab")


@pytest.mark.parametrize(
    ("remaining", "length_bytes"),
    [(127, 1), (128, 2), (16_383, 2), (16_384, 3), (2_097_151, 3), (2_097_152, 4)],
)
def test_remaining_length_field_grows_with_the_length(remaining: int, length_bytes: int) -> None:
    overhead = 2 + 1 + 1  # name length, name "a", property length
    assert mqtt_publish_bytes(remaining - overhead, "a", 0) == 1 + length_bytes + remaining


@pytest.mark.parametrize(("properties", "length_bytes"), [(0, 1), (127, 1), (128, 2), (16_384, 3)])
def test_property_length_field_grows_with_the_length(properties: int, length_bytes: int) -> None:
    remaining = 2 + 1 + length_bytes + properties
    remaining_bytes = 1 if remaining < 128 else 2 if remaining < 16_384 else 3
    assert mqtt_publish_bytes(0, "a", 0, properties) == 1 + remaining_bytes + remaining


@pytest.mark.parametrize(
    ("payload", "message", "segments"),
    [(1441, 1448, 1), (1442, 1449, 2), (2889, 2896, 2), (2890, 2897, 3), (20_000, 20_008, 14)],
)
def test_each_tcp_segment_has_its_own_headers(payload: int, message: int, segments: int) -> None:
    assert tcp_bytes(payload) == message + segments * (ETHERNET + IP + TCP)


@pytest.mark.parametrize(
    ("scenario_setting", "topic_setting", "stamped"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_stamp_setting_of_topic_overrides_scenario(
    scenario_setting: bool, topic_setting: bool | None, stamped: bool
) -> None:
    document = site(stamped_events=scenario_setting)
    document["topics"][0] = topic("smoke/1", 51, stamped=topic_setting)
    scenario = from_plain(Scenario, document)
    assert event_wire_bytes(scenario, scenario.topics[0], "udp", 0) == (124 if stamped else 100)

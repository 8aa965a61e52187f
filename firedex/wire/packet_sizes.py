"""The size of an event on the wire, including all headers and the event stamp.

One event is one packet over UDP (MQTT-SN). Over TCP (MQTT 5) an event larger than a segment takes
several, each with its own headers. Frames are counted as the kernel's shaper counts them: without
preamble, padding and frame check sequence.
"""

from math import ceil

from firedex.wire.workload import Transport

__all__ = [
    "ETHERNET_HEADER_BYTES",
    "IP_HEADER_BYTES",
    "MAX_SEGMENT_BYTES",
    "MAX_UDP_PAYLOAD_BYTES",
    "MTU_BYTES",
    "STAMP_BYTES",
    "TCP_HEADER_BYTES",
    "UDP_HEADER_BYTES",
    "mqtt_publish_bytes",
    "mqtt_sn_publish_bytes",
    "packets_per_event",
    "wire_bytes",
]

MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14
IP_HEADER_BYTES = 20
UDP_HEADER_BYTES = 8
TCP_HEADER_BYTES = 20 + 12
"""With the timestamps option, which Linux sends by default."""

MAX_SEGMENT_BYTES = MTU_BYTES - IP_HEADER_BYTES - TCP_HEADER_BYTES

STAMP_BYTES: dict[Transport, int] = {"udp": 24, "tcp": 38}
"""The event stamp: stream id (8 bytes), sequence number (6), time (8).

Over MQTT-SN it precedes the payload, after a 2-byte marker. Over MQTT 5 it is a user property:
identifier (1), key ``fdx`` with its length (2 + 3), value in base64 with its length (2 + 30).
"""

MQTT_SN_SHORT_HEADER_BYTES = 7
"""Length (1), type (1), flags (1), topic id (2), message id (2)."""
MQTT_SN_LONG_HEADER_BYTES = 9
"""The same with a length of 3 bytes, for messages of 256 bytes and more."""


def mqtt_sn_publish_bytes(payload_bytes: int) -> int:
    """Return the size of an MQTT-SN 1.2 PUBLISH message."""
    short = payload_bytes + MQTT_SN_SHORT_HEADER_BYTES
    return short if short < 256 else payload_bytes + MQTT_SN_LONG_HEADER_BYTES


def mqtt_publish_bytes(payload_bytes: int, topic: str, qos: int, property_bytes: int = 0) -> int:
    """Return the size of an MQTT 5 PUBLISH packet, all headers included."""
    variable_header = 2 + len(topic.encode()) + (2 if qos else 0)
    properties = _variable_length_bytes(property_bytes) + property_bytes
    remaining = variable_header + properties + payload_bytes
    return 1 + _variable_length_bytes(remaining) + remaining


def _variable_length_bytes(number: int) -> int:
    """Return the size of ``number`` as an MQTT variable byte integer."""
    return 1 if number < 128 else 2 if number < 16_384 else 3 if number < 2_097_152 else 4


MAX_UDP_PAYLOAD_BYTES = MTU_BYTES - IP_HEADER_BYTES - UDP_HEADER_BYTES - MQTT_SN_LONG_HEADER_BYTES


def packets_per_event(
    *, payload_bytes: int, transport: Transport, topic: str, qos: int = 0, stamped: bool = False
) -> int:
    """Return the number of packets of one event: one datagram, or one or more TCP segments."""
    if transport == "udp":
        return 1
    stamp = STAMP_BYTES[transport] if stamped else 0
    return ceil(mqtt_publish_bytes(payload_bytes, topic, qos, stamp) / MAX_SEGMENT_BYTES)


def wire_bytes(
    *, payload_bytes: int, transport: Transport, topic: str, qos: int = 0, stamped: bool = False
) -> int:
    """Return the number of bytes on the wire of one event of ``payload_bytes``."""
    stamp = STAMP_BYTES[transport] if stamped else 0
    if transport == "udp":
        message = mqtt_sn_publish_bytes(payload_bytes + stamp)
        return ETHERNET_HEADER_BYTES + IP_HEADER_BYTES + UDP_HEADER_BYTES + message
    message = mqtt_publish_bytes(payload_bytes, topic, qos, stamp)
    segments = packets_per_event(
        payload_bytes=payload_bytes, transport=transport, topic=topic, qos=qos, stamped=stamped
    )
    return message + segments * (ETHERNET_HEADER_BYTES + IP_HEADER_BYTES + TCP_HEADER_BYTES)

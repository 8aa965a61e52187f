"""Keeping MQTT 5 topic aliases alive though the packet that defines one may be dropped. Pure.

The broker names a topic once and then sends its alias alone. If the naming packet is not delivered,
the next one that is must name the topic in its place.
"""

from dataclasses import dataclass

from firedex.gateway.errors import MalformedPacket
from firedex.gateway.mqtt_packets import body_start, encoded_length
from firedex.gateway.mqtt_properties import PropertyId, read_properties

__all__ = ["AliasedEvent", "TopicAliases"]

_QUALITY = 0b0110


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasedEvent:
    """A PUBLISH with its topic known; ``alias`` is 0 where there is none."""

    packet: bytes
    topic: bytes
    alias: int


class TopicAliases:
    """What the broker has named, and what the client has been told."""

    def __init__(self, maximum_packet_bytes: int | None = None) -> None:
        self._named: dict[int, bytes] = {}
        self._told: dict[int, bytes] = {}
        self._maximum_packet_bytes = maximum_packet_bytes

    def received(self, packet: bytes) -> AliasedEvent:
        """A PUBLISH from the broker, in the order of the stream, before anything is dropped."""
        at = body_start(packet)
        end = at + 2 + int.from_bytes(packet[at : at + 2], "big")
        topic = packet[at + 2 : end]
        properties_at = end + 2 if packet[0] & _QUALITY else end
        if properties_at >= len(packet):
            raise MalformedPacket("a PUBLISH that ends before its properties")
        alias = read_properties(packet, properties_at).numbers.get(PropertyId.TOPIC_ALIAS, 0)
        if not alias:
            return AliasedEvent(packet=packet, topic=topic, alias=0)
        if topic:
            self._named[alias] = topic
        elif alias in self._named:
            topic = self._named[alias]
        else:
            raise MalformedPacket(f"topic alias {alias}, which the broker has never named")
        return AliasedEvent(packet=packet, topic=topic, alias=alias)

    def to_send(self, event: AliasedEvent) -> bytes | None:
        """The packet as the client must see it; None if it cannot take one that large."""
        if not event.alias or self._told.get(event.alias) == event.topic:
            return event.packet
        packet = _named(event)
        if self._maximum_packet_bytes is not None and len(packet) > self._maximum_packet_bytes:
            return None
        self._told[event.alias] = event.topic
        return packet


def _named(event: AliasedEvent) -> bytes:
    packet = event.packet
    at = body_start(packet)
    length = int.from_bytes(packet[at : at + 2], "big")
    if length:
        return packet
    body = len(event.topic).to_bytes(2, "big") + event.topic + packet[at + 2 :]
    return packet[:1] + encoded_length(len(body)) + body

"""What an MQTT-SN session is made of: states, its way to the broker, passing events on."""

from enum import Enum
from typing import Protocol

from firedex.event_stamp import split_header
from firedex.gateway import broker_packets as broker
from firedex.gateway.broker_packets import BrokerEvent
from firedex.mqtt_sn import messages as m
from firedex.wire.mqtt_names import check_topic

__all__ = ["FIVE", "KEEP_ALIVE_SECONDS", "Link", "State", "is_publishable", "published"]

FIVE = 5
KEEP_ALIVE_SECONDS = 60
"""Towards the broker; the gateway keeps that up by itself."""


class State(Enum):
    """Where a client is (§6.14)."""

    WILL_TOPIC = "asked for its will's topic"
    WILL_MESSAGE = "asked for its will's message"
    CONNECTING = "waiting for the broker"
    ACTIVE = "active"
    ASLEEP = "asleep"
    GONE = "gone"


class Link(Protocol):
    """A connection to the broker."""

    def send(self, packet: bytes) -> None:
        """To the broker."""

    def close(self) -> None:
        """In good order."""

    def abort(self) -> None:
        """Without a word."""


def is_publishable(topic: bytes) -> bool:
    """Whether events can be published to a topic."""
    try:
        check_topic(topic.decode())
    except ValueError:
        return False
    return True


def published(message: m.Publish, topic: bytes, level: int) -> bytes:
    """A client's PUBLISH as the broker takes it; a stamp before the payload becomes a property."""
    payload = message.payload
    properties: tuple[tuple[bytes, bytes], ...] = ()
    if level == FIVE:
        stamp, rest = split_header(payload)
        if stamp is not None:
            key, value = stamp.to_property()
            payload, properties = rest, ((key.encode(), value.encode()),)
    event = BrokerEvent(
        topic=topic,
        payload=payload,
        qos=max(message.qos, 0),
        retain=message.retain,
        dup=message.dup and message.qos > 0,
        message_id=message.message_id,
        user_properties=properties,
    )
    return broker.publish(event, level=level)

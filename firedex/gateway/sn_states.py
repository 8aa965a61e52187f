"""What an MQTT-SN session is made of: states, its way to the broker, passing events on."""

from enum import Enum
from typing import Protocol

from firedex.event_stamp import split_header
from firedex.gateway import broker_packets as broker
from firedex.gateway.broker_packets import BrokerEvent
from firedex.mqtt_level_choice import MQTT_5
from firedex.mqtt_sn import messages as m
from firedex.wire.mqtt_names import check_topic

__all__ = ["Link", "State", "is_publishable", "published"]


class State(Enum):
    """Where a client is (§6.14)."""

    WILL_TOPIC = "asked for its will's topic"
    WILL_MESSAGE = "asked for its will's message"
    CONNECTING = "waiting for the broker"
    ACTIVE = "active"
    ASLEEP = "asleep"
    GONE = "gone"


class Link(Protocol):
    """A connection to the broker; it keeps itself alive."""

    level: int
    """Of MQTT, for all that goes over it."""
    congested: bool
    """Whether the broker takes no more for now."""

    def send(self, packet: bytes) -> None:
        """To the broker."""

    def hold_back(self, on: bool) -> None:
        """Take no more from the broker for now, or again."""

    def tick(self, now: float) -> None:
        """Time passes."""

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
    if level == MQTT_5:
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

"""The paho client that reads ahead, connected to a socket that acts as the broker."""

import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from firedex.transport.mqtt.encoding import (
    PacketType,
    encode_packet,
    encode_text,
    encode_variable_integer,
)
from firedex.transport.mqtt.packets import PublishPacket, encode_publish
from firedex.transport.mqtt.version import MQTT_3, MQTT_5
from firedex_clients.read_ahead_client import BLOCK_BYTES, ReadAheadClient
from tests.support.waiting import wait_until

CONNACK = {MQTT_5: b"\x20\x03\x00\x00\x00", MQTT_3: b"\x20\x02\x00\x00"}
PINGRESP = b"\xd0\x00"


class ReceivedEvent(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retained: bool
    properties: list[tuple[str, str]]
    subscriptions: tuple[int, ...]


class Connection:
    """A client, the broker's socket of its connection, and the events that the client received."""

    def __init__(self, level: int, *, plain: bool = True) -> None:
        self.plain: list[ReceivedEvent] = []
        self.all: list[ReceivedEvent] = []
        self.closed = False
        self.client = ReadAheadClient(
            CallbackAPIVersion.VERSION2, client_id="c", protocol=MQTTProtocolVersion(level)
        )
        self.client.level = level
        self.client.on_message = self._on_message
        self.client.on_socket_close = self._on_close
        if plain:
            self.client.on_plain_event = self._on_plain_event
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.client.connect("127.0.0.1", server.getsockname()[1])
            self.broker, _ = server.accept()
        self.broker.settimeout(60)
        self.send(CONNACK[level])
        wait_until(self._is_connected, "CONNACK")
        self.client.loop_write()
        self.broker.recv(BLOCK_BYTES)

    def _is_connected(self) -> bool:
        self.client.read(1)
        return self.client.is_connected()

    def _on_close(self, *_: Any) -> None:
        self.closed = True

    def _on_plain_event(
        self,
        topic: str,
        payload: bytes,
        retained: bool,
        properties: list[tuple[str, str]],
        subscriptions: tuple[int, ...],
    ) -> None:
        self.plain.append(ReceivedEvent(topic, payload, 0, retained, properties, subscriptions))
        self.all.append(self.plain[-1])

    def _on_message(self, _c: Any, _d: Any, message: mqtt.MQTTMessage) -> None:
        properties = getattr(message.properties, "UserProperty", [])
        subscriptions = tuple(getattr(message.properties, "SubscriptionIdentifier", ()))
        self.all.append(
            ReceivedEvent(
                message.topic,
                bytes(message.payload),
                message.qos,
                message.retain,
                properties,
                subscriptions,
            )
        )

    def send(self, data: bytes) -> None:
        self.broker.sendall(data)

    def receive(self, events: int) -> list[ReceivedEvent]:
        """Read until ``events`` events have been received, and return all of them."""

        def have_arrived() -> bool:
            while self.client.read(10):
                pass
            return len(self.all) >= events

        wait_until(have_arrived, f"{events} events")
        return self.all

    def close(self) -> None:
        self.broker.close()
        wait_until(self._is_closed, "the end of the connection")

    def _is_closed(self) -> bool:
        self.client.read(1_000)
        return self.closed


@pytest.fixture(params=[MQTT_5, MQTT_3])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    new_connection = Connection(request.param)
    yield new_connection
    new_connection.close()


def encode_event(payload: bytes, qos: int = 0, *, level: int, topic: bytes = b"t") -> bytes:
    packet = PublishPacket(topic=topic, payload=payload, qos=qos, packet_id=7 if qos else 0)
    return encode_publish(packet, level=level)


def encode_event_with_properties(
    properties: bytes, topic: bytes = b"t", payload: bytes = b"x"
) -> bytes:
    """Return a PUBLISH packet of MQTT 5 at QoS 0 with encoded properties."""
    body = encode_text(topic) + encode_variable_integer(len(properties)) + properties + payload
    return encode_packet(PacketType.PUBLISH, 0, body)


def test_packets_received_byte_by_byte_are_assembled(connection: Connection) -> None:
    stream = b"".join(encode_event(b"%d" % n, level=connection.client.level) for n in range(5))
    for at in range(len(stream)):
        connection.send(stream[at : at + 1])
        connection.client.read(10)
    assert [each.payload for each in connection.receive(5)] == [b"%d" % n for n in range(5)]


def test_packet_larger_than_a_block_is_received(connection: Connection) -> None:
    payload = bytes(5 * BLOCK_BYTES)
    connection.broker.setblocking(False)
    stream = encode_event(payload, level=connection.client.level)
    while stream:
        stream = stream[connection.broker.send(stream) :]
        connection.client.read(10)
    assert connection.receive(1)[0].payload == payload


def test_events_of_all_qos_arrive_in_order_and_paho_acknowledges(connection: Connection) -> None:
    level = connection.client.level
    stream = [encode_event(b"%d" % n, n % 2, level=level) for n in range(6)]
    connection.send(PINGRESP.join(stream))
    received = connection.receive(6)
    assert [(each.payload, each.qos) for each in received] == [(b"%d" % n, n % 2) for n in range(6)]
    assert [each.qos for each in connection.plain] == [0, 0, 0]
    assert connection.broker.recv(1)[0] >> 4 == PacketType.PUBACK


def test_read_returns_true_while_complete_packets_remain(connection: Connection) -> None:
    connection.send(
        b"".join(encode_event(b"%d" % n, level=connection.client.level) for n in range(5))
    )
    wait_until(lambda: connection.client.read(2) or connection.all != [], "the first two events")
    assert len(connection.all) == 2
    assert connection.client.read(2)
    assert not connection.client.read(2)
    assert len(connection.all) == 5
    assert not connection.client.read(2)


def test_exception_of_a_callback_does_not_lose_other_events(connection: Connection) -> None:
    on_plain_event = connection.client.on_plain_event

    def raise_once(*_: Any) -> None:
        connection.client.on_plain_event = on_plain_event
        raise RuntimeError

    connection.client.on_plain_event = raise_once
    connection.send(
        b"".join(encode_event(b"%d" % n, level=connection.client.level) for n in range(3))
    )

    def exception_is_raised() -> bool:
        try:
            connection.client.read(10)
        except RuntimeError:
            return True
        return False

    wait_until(exception_is_raised, "the exception")
    assert [each.payload for each in connection.receive(2)] == [b"1", b"2"]


USER_PROPERTY = b"\x26" + encode_text(b"fdx") + encode_text("é".encode())
SUBSCRIPTIONS = b"\x0b\x05\x0b\x81\x01"
EXPIRY_AND_CONTENT_TYPE = b"\x02\x00\x00\x00\x09\x03" + encode_text(b"text")


@pytest.mark.parametrize(
    "packet",
    [
        encode_event_with_properties(b""),
        encode_event_with_properties(b"", payload=b""),
        encode_event_with_properties(b"", topic="straße/1".encode()),
        encode_event_with_properties(USER_PROPERTY),
        encode_event_with_properties(
            USER_PROPERTY + EXPIRY_AND_CONTENT_TYPE + SUBSCRIPTIONS + USER_PROPERTY
        ),
        b"\x31" + encode_event_with_properties(USER_PROPERTY)[1:],  # retained
    ],
)
def test_events_are_parsed_in_the_same_way_as_by_paho(packet: bytes) -> None:
    connections = [Connection(MQTT_5), Connection(MQTT_5, plain=False)]
    received = []
    for each in connections:
        each.send(packet)
        received += each.receive(1)
        each.close()
    assert received[0] == received[1]
    assert [len(each.plain) for each in connections] == [1, 0]


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\xd0\xff\xff\xff\xff\x01",  # a remaining length of five bytes
        b"\x30\x7f\x00",  # not complete
    ],
)
def test_connection_is_closed_at_the_end_and_can_be_opened_again(rest: bytes) -> None:
    connection = Connection(MQTT_5)
    connection.send(encode_event(b"1", level=MQTT_5) + rest)
    connection.close()
    assert [each.payload for each in connection.all] == [b"1"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection.client.discard_buffer()
        connection.client.connect("127.0.0.1", server.getsockname()[1])
        connection.broker, _ = server.accept()
    connection.closed = False
    connection.send(CONNACK[MQTT_5] + encode_event(b"2", level=MQTT_5))
    assert connection.receive(2)[1].payload == b"2"
    connection.close()


def test_event_that_cannot_be_parsed_is_passed_to_paho() -> None:
    connection = Connection(MQTT_5)
    payloads: list[bytes] = []
    connection.client.on_message = lambda _c, _d, message: payloads.append(message.payload)
    connection.send(
        encode_event_with_properties(b"", topic=b"\xff")
        + encode_event_with_properties(b"", payload=b"next")
    )
    connection.receive(1)
    assert payloads == [b"x"]
    assert [each.payload for each in connection.plain] == [b"next"]
    connection.close()

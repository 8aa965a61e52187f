"""A flow over MQTT-SN, its loop and its gateway played by hand."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from firedex.mqtt_sn import (
    Connack,
    Disconnect,
    Message,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    TopicKind,
    decode,
)
from firedex_clients.connection_loop import ConnectionLoop
from firedex_clients.flow_connection import FlowSettings, Wanted
from firedex_clients.flow_filters import MOST_TIMES_ASKED_AGAIN
from firedex_clients.sn_flow import _HANDLERS, SnFlow


class ByHand:
    """A loop, a listener and a gateway in one."""

    def __init__(self, gateway: socket.socket, *, lasting: bool) -> None:
        self._gateway = gateway
        self.arrived_payloads: list[bytes] = []
        self.waiting: list[Callable[[], None]] = []
        settings = FlowSettings(host="127.0.0.1", port=gateway.getsockname()[1], transport="udp")
        self.flow = SnFlow(
            cast(ConnectionLoop, self), settings, self, client_id="c", lasting=lasting
        )
        self.flow.open()

    def say(self, message: Message) -> None:
        _HANDLERS[type(message)](self.flow, message)

    def heard(self) -> list[Message]:
        found: list[Message] = []
        while True:
            try:
                found.append(decode(self._gateway.recv(65_536)))
            except BlockingIOError:
                return found

    def reconnect(self) -> None:
        self.say(Disconnect())
        self.flow.open()

    def event(self, payload: bytes, *, dup: bool = False) -> None:
        kind, topic = TopicKind.SHORT, int.from_bytes(b"ab", "big")
        self.say(Publish(topic_id=topic, message_id=1, payload=payload, qos=2, kind=kind, dup=dup))

    def later(self, _seconds: float, action: Callable[[], None]) -> Any:
        self.waiting.append(action)
        return self

    def arrived(self, _flow: object, _topic: str, payload: bytes, *_: object) -> None:
        self.arrived_payloads.append(payload)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


@contextmanager
def by_hand(*, lasting: bool = True) -> Iterator[ByHand]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.setblocking(False)
        played = ByHand(gateway, lasting=lasting)
        try:
            yield played
        finally:
            played.flow._end()


@pytest.mark.parametrize("lasting", [True, False])
def test_an_event_that_a_lasting_session_repeats_comes_once(lasting: bool) -> None:
    with by_hand(lasting=lasting) as played:
        played.event(b"once")
        played.event(b"once")
        played.reconnect()
        played.event(b"once", dup=True)
        assert len(played.arrived_payloads) == (1 if lasting else 2)


def test_numbers_are_free_again_when_the_broker_says_so() -> None:
    with by_hand() as played:
        played.event(b"one")
        played.reconnect()
        played.say(Pubrel(message_id=1))
        played.event(b"two", dup=True)
        played.say(Pubrel(message_id=1))
        played.event(b"three")
        assert played.arrived_payloads == [b"one", b"two", b"three"]


def test_a_broker_that_has_forgotten_the_session_loses_nothing() -> None:
    with by_hand() as played:
        played.event(b"one")
        played.reconnect()
        played.event(b"another, by the same number")
        assert len(played.arrived_payloads) == 2


def test_who_is_granted_less_asks_again_a_few_times() -> None:
    """The gateway may not follow yet the plan that the client has."""
    with by_hand() as played:
        played.flow.want(Wanted(filter="a/#", number=1, qos=1, retained=True))
        played.say(Connack(return_code=0))
        asked = 0
        while questions := [each for each in played.heard() if isinstance(each, Subscribe)]:
            asked += len(questions)
            played.waiting.clear()
            for each in questions:
                played.say(Suback(topic_id=0, message_id=each.message_id, return_code=0, qos=0))
            for action in played.waiting:
                action()
        assert asked == 1 + MOST_TIMES_ASKED_AGAIN

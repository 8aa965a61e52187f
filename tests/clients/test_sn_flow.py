"""A flow over MQTT-SN with a fake event loop, listener and gateway."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest

from firedex.transport.mqtt_sn import (
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
from firedex_clients.flow import MAX_QOS_RETRIES, FilterRequest, FlowSettings
from firedex_clients.sn_flow import _HANDLERS, SnFlow


class FakeEnvironment:
    """The event loop, the listener and the gateway of a flow."""

    def __init__(self, gateway: socket.socket, *, persistent: bool) -> None:
        self._gateway = gateway
        self.arrived_payloads: list[bytes] = []
        self.timers: list[Callable[[], None]] = []
        settings = FlowSettings(host="127.0.0.1", port=gateway.getsockname()[1], transport="udp")
        environment = cast(Any, self)
        self.flow = SnFlow(environment, settings, environment, client_id="c", persistent=persistent)
        self.flow.open()

    def receive(self, message: Message) -> None:
        _HANDLERS[type(message)](self.flow, message)

    def sent_messages(self) -> list[Message]:
        messages: list[Message] = []
        while True:
            try:
                messages.append(decode(self._gateway.recv(65_536)))
            except BlockingIOError:
                return messages

    def reconnect(self) -> None:
        self.receive(Disconnect())
        self.flow.open()

    def receive_event(self, payload: bytes, *, dup: bool = False) -> None:
        kind, topic = TopicKind.SHORT, int.from_bytes(b"ab", "big")
        self.receive(
            Publish(topic_id=topic, message_id=1, payload=payload, qos=2, kind=kind, dup=dup)
        )

    def call_later(self, _seconds: float, action: Callable[..., None], *arguments: Any) -> Any:
        self.timers.append(partial(action, *arguments))
        return self

    def arrived(self, _flow: object, _topic: str, payload: bytes, *_: object) -> None:
        self.arrived_payloads.append(payload)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


@contextmanager
def open_flow(*, persistent: bool = True) -> Iterator[FakeEnvironment]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.setblocking(False)
        environment = FakeEnvironment(gateway, persistent=persistent)
        try:
            yield environment
        finally:
            environment.flow._end()


@pytest.mark.parametrize("persistent", [True, False])
def test_event_repeated_by_a_persistent_session_is_delivered_once(persistent: bool) -> None:
    with open_flow(persistent=persistent) as environment:
        environment.receive_event(b"once")
        environment.receive_event(b"once")
        environment.reconnect()
        environment.receive_event(b"once", dup=True)
        assert len(environment.arrived_payloads) == (1 if persistent else 2)


def test_message_id_can_be_used_again_after_pubrel() -> None:
    with open_flow() as environment:
        environment.receive_event(b"one")
        environment.reconnect()
        environment.receive(Pubrel(message_id=1))
        environment.receive_event(b"two", dup=True)
        environment.receive(Pubrel(message_id=1))
        environment.receive_event(b"three")
        assert environment.arrived_payloads == [b"one", b"two", b"three"]


def test_new_event_with_a_used_message_id_is_delivered_after_a_reconnect() -> None:
    with open_flow() as environment:
        environment.receive_event(b"one")
        environment.reconnect()
        environment.receive_event(b"another, by the same number")
        assert len(environment.arrived_payloads) == 2


def test_subscription_with_a_lower_granted_qos_is_retried() -> None:
    """The gateway may receive a plan later than the client."""
    with open_flow() as environment:
        environment.flow.subscribe(FilterRequest(filter="a/#", number=1, qos=1, retained=True))
        environment.receive(Connack(return_code=0))
        request_count = 0
        while requests := [
            each for each in environment.sent_messages() if isinstance(each, Subscribe)
        ]:
            request_count += len(requests)
            environment.timers.clear()
            for each in requests:
                environment.receive(
                    Suback(topic_id=0, message_id=each.message_id, return_code=0, qos=0)
                )
            for action in environment.timers:
                action()
        assert request_count == 1 + MAX_QOS_RETRIES

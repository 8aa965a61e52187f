"""One MQTT 5 connection over TCP, opened and closed with certainty."""

import errno
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from firedex_clients.errors import ConnectionRefused, PortInUse

__all__ = ["open_connection"]

PATIENCE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 30
NO_BIND = ("", 0)


def open_connection(
    host: str,
    port: int,
    *,
    client_id: str,
    bind: tuple[str, int] = NO_BIND,
    subscriptions: Sequence[tuple[str, int]] = (),
    on_message: Callable[[mqtt.MQTTMessage], None] | None = None,
) -> mqtt.Client:
    """Connect, subscribe, wait until both are accepted, and keep the connection going in a thread.

    ``subscriptions`` (filter and QoS) are made again whenever the connection is; each has its place
    in the list, from 1, as its subscription identifier.
    """
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)
    acceptance = _Acceptance(client, subscriptions)
    client.on_socket_open = _send_at_once
    client.on_connect = acceptance.connected
    client.on_subscribe = acceptance.subscribed
    if on_message is not None:
        client.on_message = lambda _client, _data, message: on_message(message)
    try:
        client.connect(
            host, port, keepalive=KEEP_ALIVE_SECONDS, bind_address=bind[0], bind_port=bind[1]
        )
    except OSError as error:
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
        raise kind(f"{host}:{port}: {error}") from error
    client.loop_start()
    refusal = acceptance.wait()
    if refusal:
        client.loop_stop()
        raise ConnectionRefused(f"{host}:{port}: {refusal}")
    return client


def _send_at_once(_client: Any, _data: Any, opened: Any) -> None:
    """Without this an event waits for the acknowledgement of the one before: 10 ms and more."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Acceptance:
    """Makes the subscriptions on every connect, and knows when all of it is accepted."""

    def __init__(self, client: mqtt.Client, subscriptions: Sequence[tuple[str, int]]) -> None:
        self._client, self._subscriptions = client, subscriptions
        self._done = threading.Event()
        self._refusals: list[str] = []
        self._waiting: set[int | None] = set()

    def wait(self) -> str | None:
        """Wait for the first time; return what was refused, if anything."""
        if not self._done.wait(PATIENCE_SECONDS):
            return "no answer in time"
        return self._refusals[0] if self._refusals else None

    def connected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        if reason.is_failure:
            self._refusals.append(str(reason))
        if reason.is_failure or not self._subscriptions:
            self._done.set()
            return
        self._waiting.clear()
        for number, (name, qos) in enumerate(self._subscriptions, start=1):
            properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            properties.SubscriptionIdentifier = number
            _, sent = self._client.subscribe(
                name, options=SubscribeOptions(qos=qos), properties=properties
            )
            self._waiting.add(sent)

    def subscribed(self, _client: Any, _data: Any, sent: int, reasons: Any, _more: Any) -> None:
        self._refusals.extend(str(reason) for reason in reasons if reason.is_failure)
        self._waiting.discard(sent)
        if not self._waiting:
            self._done.set()

"""One MQTT 5 connection over TCP, opened and closed with certainty."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from firedex_clients.errors import ConnectionRefused

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

    ``subscriptions`` (filter and QoS) are made again whenever the connection is.
    """
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)
    accepted = threading.Event()
    refusal: list[str] = []

    def connected(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            refusal.append(str(reason))
        elif subscriptions:
            options = [(name, SubscribeOptions(qos=qos)) for name, qos in subscriptions]
            client.subscribe(options)
            return
        accepted.set()

    def subscribed(_client: Any, _data: Any, _id: int, reasons: Any, _properties: Any) -> None:
        refusal.extend(str(reason) for reason in reasons if reason.is_failure)
        accepted.set()

    def received(_client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        if on_message is not None:
            on_message(message)

    client.on_connect = connected
    client.on_subscribe = subscribed
    client.on_message = received
    try:
        client.connect(
            host, port, keepalive=KEEP_ALIVE_SECONDS, bind_address=bind[0], bind_port=bind[1]
        )
    except OSError as error:
        raise ConnectionRefused(f"{host}:{port}: {error}") from error
    client.loop_start()
    if not accepted.wait(PATIENCE_SECONDS) or refusal:
        client.loop_stop()
        raise ConnectionRefused(f"{host}:{port}: {refusal[0] if refusal else 'no answer in time'}")
    return client

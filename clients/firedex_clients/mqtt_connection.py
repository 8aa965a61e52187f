"""A publisher's MQTT connection over TCP, opened with certainty, and again when it is lost."""

import errno
import socket
import threading
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from firedex_clients.errors import ConnectionRefused, PortInUse

__all__ = ["open_connection"]

PATIENCE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 30
LONGEST_WAIT_SECONDS = 2
NO_BIND = ("", 0)


def open_connection(
    host: str,
    port: int,
    *,
    client_id: str,
    version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
    bind: tuple[str, int] = NO_BIND,
) -> mqtt.Client:
    """Connect, wait until that is accepted, and keep the connection going in a thread."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version)
    client.reconnect_delay_set(1, LONGEST_WAIT_SECONDS)
    client.max_queued_messages_set(0)
    answered, refusals = threading.Event(), list[str]()

    def connected(_client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        if reason.is_failure:
            refusals.append(str(reason))
        answered.set()

    client.on_socket_open = _send_at_once
    client.on_connect = connected
    try:
        client.connect(
            host, port, keepalive=KEEP_ALIVE_SECONDS, bind_address=bind[0], bind_port=bind[1]
        )
    except OSError as error:
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
        raise kind(f"{host}:{port}: {error}") from error
    client.loop_start()
    if not answered.wait(PATIENCE_SECONDS):
        refusals.append("no answer in time")
    if refusals:
        client.disconnect()
        client.loop_stop()
        raise ConnectionRefused(f"{host}:{port}: {refusals[0]}")
    return client


def _send_at_once(_client: Any, _data: Any, opened: Any) -> None:
    """Without this an event waits for the acknowledgement of the one before: 10 ms and more."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

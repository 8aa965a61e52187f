"""The TCP connection of a paho client: opened from given local ports, closed by the broker."""

import asyncio
import errno
import os
import socket
import ssl
import struct
from contextlib import suppress
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from firedex.transport.mqtt_security import MqttSecurity
from firedex_clients.flow import FlowSettings
from firedex_clients.read_ahead_client import ReadAheadClient

__all__ = [
    "CONNECT_SECONDS",
    "TcpConnector",
    "apply_security",
    "duplicate_socket",
    "set_socket_options",
    "wait_for_close",
]

KEEP_ALIVE_SECONDS = 15
CONNECT_SECONDS = 3.0
CLOSE_SECONDS = 1.0
SESSION_SECONDS = 300
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TcpConnector:
    """Connects paho clients of one flow from its local ports in turn."""

    def __init__(
        self, settings: FlowSettings, *, persistent: bool, security: MqttSecurity | None = None
    ) -> None:
        self._settings, self._persistent, self._security = settings, persistent, security
        self._next_port = 0

    def connect(self, client: ReadAheadClient, version: MQTTProtocolVersion) -> None:
        """Connect from the next free local port; called in a thread, because paho blocks."""
        ports = self._settings.bind_ports or (0,)
        failure = OSError("the flow has no local ports")
        for turn in range(len(ports)):
            index = (self._next_port + turn) % len(ports)
            try:
                self._connect_from(client, version, ports[index])
            except OSError as error:
                failure = error
                if error.errno != errno.EADDRINUSE:
                    break
            else:
                self._next_port = (index + 1) % len(ports)
                return
        raise failure

    def _connect_from(
        self, client: ReadAheadClient, version: MQTTProtocolVersion, port: int
    ) -> None:
        more: dict[str, Any] = {}
        if version == MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = SESSION_SECONDS if self._persistent else 0
            more = {"clean_start": not self._persistent, "properties": properties}
        client.discard_buffer()
        apply_security(client, self._security)
        client.connect(
            self._settings.host,
            self._settings.port,
            keepalive=KEEP_ALIVE_SECONDS,
            bind_address=self._settings.bind_address,
            bind_port=port,
            **more,
        )


class _TlsSocket(ssl.SSLSocket):
    """A TLS socket that is closed if its handshake fails; paho leaves it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def apply_security(client: mqtt.Client, security: MqttSecurity | None) -> None:
    """Set the TLS context and the credentials of a client.

    The files are read again before each connection, so that a renewed certificate is used. An
    unusable file is an OSError, as other reasons not to connect.
    """
    if security is None:
        return
    try:
        context = security.context()
    except ValueError as error:
        raise OSError(str(error)) from error
    client._ssl_context = None  # paho refuses a second context
    if context is not None:
        context.sslsocket_class = _TlsSocket
        client.tls_set_context(context)
    client.username_pw_set(security.user, security.password)


def set_socket_options(_client: Any, _data: Any, opened: Any) -> None:
    """Disable Nagle's algorithm, and free the local port when a connection is lost."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def duplicate_socket(opened: socket.socket) -> socket.socket:
    """Return another socket for the same connection, also if ``opened`` is a TLS socket."""
    duplicate = socket.socket(fileno=os.dup(opened.fileno()))
    duplicate.setblocking(False)
    return duplicate


async def wait_for_close(client: ReadAheadClient, duplicate: socket.socket) -> None:
    """Send what is left and wait until the broker closes the connection; raise TimeoutError.

    ``duplicate`` is a duplicate of the client's socket. All sockets are closed in any case.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            while client.want_write() and client.loop_write() == mqtt.MQTT_ERR_SUCCESS:
                await asyncio.sleep(0.001)
            with suppress(OSError):
                while await loop.sock_recv(duplicate, 65_536):
                    pass
    finally:
        duplicate.close()
        if (remaining := client.socket()) is not None:
            remaining.close()

"""A flow over MQTT and TCP: one paho client, driven by the event loop through paho's hooks."""

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from firedex.transport.mqtt.version import LevelChoice
from firedex.transport.mqtt_security import MqttSecurity, explain_handshake
from firedex.wire.mqtt_names import has_wildcard
from firedex_clients.errors import ConnectionRefused, PortInUse
from firedex_clients.flow import (
    DRAIN_SECONDS,
    RETRY_QOS_SECONDS,
    FilterRequest,
    FlowConnection,
    FlowListener,
    FlowSettings,
    reconnect_back_off,
)
from firedex_clients.read_ahead_client import ReadAheadClient
from firedex_clients.tcp_connection import (
    CONNECT_SECONDS,
    TcpConnector,
    duplicate_socket,
    set_socket_options,
    wait_for_close,
)

__all__ = ["TcpFlow"]

log = logging.getLogger("firedex.clients")

CONNACK_SECONDS = 5.0
FIRST_CONNACK_SECONDS = 2.0
MAX_PACKETS_AT_ONCE = 200
UNSUPPORTED_VERSION = 0x84
V5 = MQTTProtocolVersion.MQTTv5
RETAINED_SEND, RETAINED_IF_NEW, RETAINED_NOT = 0, 1, 2


class TcpFlow(FlowConnection):
    """Connects from the two local ports of its flow in turn, and again when the connection is lost.

    A flow with a filter at QoS 1 or 2 is persistent: the broker keeps its session, so that events
    published during a reconnect, or after a crash, are not lost. The flow uses MQTT 5, or 3.1.1 if
    the broker does not support 5; ``levels`` is the known protocol level by host and port.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: FlowSettings,
        listener: FlowListener,
        connecting: Executor,
        *,
        client_id: str,
        persistent: bool = False,
        levels: dict[tuple[str, int], int] | None = None,
        security: MqttSecurity | None = None,
    ) -> None:
        super().__init__(settings, listener, client_id=client_id, persistent=persistent)
        self._loop, self._connecting = loop, connecting
        self._arrived = listener.arrived
        self._levels = {} if levels is None else levels
        self._choice, self._version = LevelChoice(), V5
        self._subscriptions: dict[int, Sequence[str]] = {}
        self._latest: dict[str, int] = {}
        self._uses_identifiers = False
        self._back_off = reconnect_back_off()
        self._client: ReadAheadClient | None = None
        self._socket: socket.socket | None = None
        """The open socket of ``_client``; set and cleared in the event loop only."""
        self._opening: asyncio.Task[None] | None = None
        self._connected = self._answered = self._closing = self._closed = False
        self._connector = TcpConnector(settings, persistent=persistent, security=security)
        self._connack_timer: asyncio.TimerHandle | None = None

    # -- interface ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the connection is closed for good."""
        return self._closed

    def open(self) -> None:
        """Start to connect; return at once."""
        if self._closing or self._opening is not None or self._socket is not None:
            return
        known = self._levels.get((self.settings.host, self.settings.port))
        if known is not None and not self._choice.sure:
            self._choice.learn(known)
        if self._version != self._choice.level:
            self._client, self._version = None, MQTTProtocolVersion(self._choice.level)
        self._opening = self._loop.create_task(self._open())

    def subscribe(self, request: FilterRequest) -> None:
        """Subscribe to a filter, now or when the connection is open."""
        used_identifiers = self._uses_identifiers
        self._add(request)
        self._uses_identifiers = used_identifiers or has_wildcard(request.filter)
        if self._connected:
            if self._uses_identifiers and not used_identifiers:
                others = [each for each in self.requests.values() if each is not request]
                self._send_subscribe(
                    [replace(each, retained=False) for each in others], again=False
                )
            self._send_subscribe([request], again=False)

    def unsubscribe(self, name: str) -> None:
        """Unsubscribe from a filter, now or when the connection is open."""
        if self._remove(name, connected=self._connected):
            self._latest.pop(name, None)
            if self._connected:
                self._send_unsubscribe(name)

    def close(self) -> None:
        """Disconnect for good; ``closed`` becomes true when the socket is closed."""
        if self._closing:
            return
        self._closing = True
        if self._socket is None or self._client is None:
            self._closed = self._opening is None
            return
        # paho closes its socket as soon as DISCONNECT is sent, which would leave the local port
        # in TIME_WAIT for a minute. A duplicate keeps the connection until the broker closes it.
        duplicate = duplicate_socket(self._socket)
        self._detach()
        properties = None
        if self._version == V5:
            properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 0
        elif self._persistent and self.requests:
            # A session of MQTT 3.1.1 cannot be ended; at least it should collect no more events.
            self._client.unsubscribe(list(self.requests))
        self._client.disconnect(properties=properties)
        self._loop.create_task(self._finish_closing(self._client, duplicate))

    async def _finish_closing(self, client: ReadAheadClient, duplicate: socket.socket) -> None:
        try:
            await wait_for_close(client, duplicate)
        except TimeoutError:
            log.debug("%s: the broker did not close the connection", self._client_id)
        finally:
            self._closed = True

    # -- opening -----------------------------------------------------------------------------------

    async def _open(self) -> None:
        client = self._client or self._new_client()
        try:
            await self._loop.run_in_executor(
                self._connecting, self._connector.connect, client, self._version
            )
        except OSError as error:
            self._opening = None
            self._not_opened(error)
        except RuntimeError:  # the executor has been shut down
            self._opening, self._closed = None, self._closing
        else:
            self._opening = None
            self._opened(client)

    def _new_client(self) -> ReadAheadClient:
        client = ReadAheadClient(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=self._version,
            reconnect_on_failure=False,
            clean_session=None if self._version == V5 else not self._persistent,
        )
        client.connect_timeout = CONNECT_SECONDS
        client.on_socket_open = set_socket_options
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_register_write
        client.on_socket_unregister_write = self._on_unregister_write
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.level = self._version
        client.on_plain_event = self._on_plain_event
        client.on_message = self._on_message
        return client

    def _opened(self, client: ReadAheadClient) -> None:
        self._client = client
        opened: Any = client.socket()
        if self._closing or opened is None:
            if opened is not None:
                opened.close()
            self._closed = self._closing
            self._reconnect_later()
            return
        self._socket = opened
        self._answered = False
        self._loop.add_reader(opened, self._on_readable)
        if client.want_write():
            self._loop.add_writer(opened, self._on_writable)
        unsure = not self._choice.sure and self._version == V5
        seconds = FIRST_CONNACK_SECONDS if unsure else CONNACK_SECONDS
        self._connack_timer = self._loop.call_later(seconds, self._on_connack_timeout)
        self._loop.call_later(1.0, self._keep_alive, client, opened)

    def _not_opened(self, error: OSError) -> None:
        if self._closing:
            self._closed = True
            return
        remote = self._remote
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
        if kind is PortInUse:
            remote = f"{self.settings.bind_address}:{self.settings.bind_ports} to {remote}"
        self._listener.refused(self, kind(f"{remote}: {explain_handshake(error)}"))
        self._reconnect_later()

    def _on_connack_timeout(self) -> None:
        if self._choice.sure or self._version != V5:
            self._listener.refused(
                self, ConnectionRefused(f"{self._remote}: no CONNACK was received in time")
            )
        # Else: some brokers do not answer MQTT 5 at all, and the next attempt uses 3.1.1.
        self._drop()

    # -- the socket, in the event loop -------------------------------------------------------------

    def _keep_alive(self, client: ReadAheadClient, opened: socket.socket) -> None:
        """Let paho send PINGREQ, once a second while this connection is open."""
        if self._socket is opened and not self._closing:
            client.loop_misc()
            self._loop.call_later(1.0, self._keep_alive, client, opened)

    def _on_readable(self) -> None:
        client = self._client
        if client is None or self._socket is None:
            return
        if client.read(MAX_PACKETS_AT_ONCE):
            self._loop.call_soon(self._on_readable)  # after the other connections

    def _on_writable(self) -> None:
        if self._client is not None:
            self._client.loop_write()

    def _on_register_write(self, _client: Any, _data: Any, opened: Any) -> None:
        if (
            self._socket is not None and opened is self._socket
        ):  # not while connecting, in another thread
            self._loop.add_writer(opened, self._on_writable)

    def _on_unregister_write(self, _client: Any, _data: Any, opened: Any) -> None:
        if self._socket is not None and opened is self._socket:
            self._loop.remove_writer(opened)

    def _on_socket_close(self, _client: Any, _data: Any, opened: Any) -> None:
        if opened is self._socket:
            self._lost()

    def _drop(self) -> None:
        """Close the connection soon: not now, because paho may be in the middle of a callback."""
        if self._socket is not None:
            self._loop.call_soon(self._reset, self._socket)

    def _reset(self, opened: socket.socket) -> None:
        if self._socket is opened:
            self._lost()
            opened.close()

    def _detach(self) -> None:
        """Stop using the socket."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        if self._connack_timer is not None:
            self._connack_timer.cancel()
        self._socket, self._connected = None, False
        self._subscriptions.clear()
        self._reset_filters()
        self._listener.lost(self)

    def _lost(self) -> None:
        self._detach()
        if not self._answered:
            self._choice.unanswered()
        self._reconnect_later()

    def _reconnect_later(self) -> None:
        if not self._closing:
            self._loop.call_later(self._back_off.next_seconds(), self.open)

    # -- MQTT packets ------------------------------------------------------------------------------

    def _on_connect(self, _c: Any, _d: Any, flags: Any, reason: Any, _p: Any) -> None:
        self._answered = True
        if self._connack_timer is not None:
            self._connack_timer.cancel()
        if reason.is_failure:
            if reason.value == UNSUPPORTED_VERSION:
                self._choice.refused()
            else:
                self._listener.refused(self, ConnectionRefused(f"{self._remote}: {reason}"))
            self._drop()
            return
        self._back_off.reset()
        if not self._choice.accepted():
            self._drop()
            return
        self._levels[self.settings.host, self.settings.port] = self._choice.level
        self._connected = True
        self.connects += 1
        stale = self._take_stale()
        if flags.session_present:
            for name in stale:
                self._send_unsubscribe(name)
        self._send_subscribe(list(self.requests.values()), again=flags.session_present)

    def _send_unsubscribe(self, name: str) -> None:
        if self._client is not None:
            _, sent = self._client.unsubscribe(name)
            if sent is not None:
                self._unsubscription_sent(name, sent)
            elif self._persistent:
                self._stale.add(name)

    def _send_subscribe(self, requests: list[FilterRequest], *, again: bool) -> None:
        client = self._client
        if client is None or not requests:
            return
        if self._version != V5:
            _, sent = client.subscribe([(each.filter, each.qos) for each in requests])
            self._note(sent, [each.filter for each in requests])
            return
        for each in requests:
            retained = RETAINED_NOT if not each.retained else RETAINED_SEND
            options = SubscribeOptions(
                qos=each.qos, retainHandling=RETAINED_IF_NEW if again else retained
            )
            properties = None
            if self._uses_identifiers:
                # Filters may overlap: the identifier tells for which of them an event is sent.
                # It is omitted where possible, because parsing it takes a tenth of the time.
                properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
                properties.SubscriptionIdentifier = each.number
            _, sent = client.subscribe(each.filter, options=options, properties=properties)
            self._note(sent, [each.filter])

    def _note(self, sent: int | None, names: Sequence[str]) -> None:
        if sent is not None:
            self._subscriptions[sent] = names
            self._latest.update(dict.fromkeys(names, sent))

    def _on_subscribe(self, _c: Any, _d: Any, sent: int, reasons: Any, _p: Any) -> None:
        for name, reason in zip(self._subscriptions.pop(sent, ()), reasons, strict=False):
            if reason.is_failure:
                self._listener.refused(
                    self, ConnectionRefused(f"subscription to {name!r}: {reason}")
                )
            elif name in self.requests and self._latest.get(name) == sent:
                self.granted.add(name)
                self._listener.granted(self, name)
                if self._must_retry_qos(name, reason.value):
                    self._loop.call_later(RETRY_QOS_SECONDS, self._retry_qos, name)

    def _retry_qos(self, name: str) -> None:
        if self._connected and name in self.requests:
            self._send_subscribe([replace(self.requests[name], retained=False)], again=False)

    def _on_unsubscribe(self, _c: Any, _d: Any, sent: int, _r: Any, _p: Any) -> None:
        left = self._unsubscription_acknowledged(sent)
        if left is not None:
            self._loop.call_later(DRAIN_SECONDS, self._drained, *left)

    def _on_plain_event(
        self,
        topic: str,
        payload: bytes,
        retained: bool,
        properties: list[tuple[str, str]],
        numbers: Sequence[int],
    ) -> None:
        self._arrived(self, topic, payload, 0, retained, properties, numbers)

    def _on_message(self, _c: Any, _d: Any, message: mqtt.MQTTMessage) -> None:
        properties: Any = message.properties
        self._arrived(
            self,
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            getattr(properties, "UserProperty", None),
            getattr(properties, "SubscriptionIdentifier", None),
        )

"""A flow over MQTT and TCP: one paho client, driven by the connection loop."""

import errno
import logging
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from firedex.mqtt_level_choice import LevelChoice
from firedex.wire.mqtt_names import has_wildcard
from firedex_clients.connection_loop import ConnectionLoop, Timer
from firedex_clients.errors import ConnectionRefused, PortInUse
from firedex_clients.flow_connection import (
    LEAVING_SECONDS,
    BackOff,
    FlowListener,
    FlowSettings,
    Wanted,
)
from firedex_clients.flow_filters import ASK_AGAIN_SECONDS, FlowFilters
from firedex_clients.held_farewell import HeldFarewell
from firedex_clients.read_ahead_client import ReadAheadClient

__all__ = ["TcpFlow"]

log = logging.getLogger("firedex.clients")

KEEP_ALIVE_SECONDS = 15
CONNACK_SECONDS = 5.0
FIRST_CONNACK_SECONDS = 2.0
DIAL_SECONDS = 3.0
SESSION_SECONDS = 300
PACKETS_AT_ONCE = 200
UNSUPPORTED_VERSION = 0x84
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
V5 = MQTTProtocolVersion.MQTTv5
RETAINED_SEND, RETAINED_IF_NEW, RETAINED_NOT = 0, 1, 2


class TcpFlow(FlowFilters):
    """Connects from its flow's two ports in turn, and again whenever the connection is lost.

    A flow with a filter at QoS 1 or 2 (``lasting``) keeps its session at the broker, so that
    nothing published while it reconnects is missed, not even after a crash. It speaks MQTT 5, or
    3.1.1 where the broker knows no better; ``levels`` is what is known of that, by host and port.
    """

    def __init__(
        self,
        loop: ConnectionLoop,
        settings: FlowSettings,
        listener: FlowListener,
        *,
        client_id: str,
        lasting: bool = False,
        levels: dict[tuple[str, int], int] | None = None,
    ) -> None:
        super().__init__(lasting=lasting)
        self._loop, self.settings, self._listener = loop, settings, listener
        self._client_id = client_id
        self._levels = {} if levels is None else levels
        self._choice, self._version = LevelChoice(), V5
        self._subscriptions: dict[int, Sequence[str]] = {}
        self._latest: dict[str, int] = {}
        self._numbered = False
        self._back_off = BackOff()
        self._client: ReadAheadClient | None = None
        self._socket: socket.socket | None = None
        self._up = self._answered = self._closing = self._closed = self._dialling = False
        self._next_port = 0
        self._patience: Timer | None = None
        self._events = 0

    # -- what is asked of it -----------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether all is said and the socket closed."""
        return self._closed

    def open(self) -> None:
        """Begin; never waits."""
        if self._closing or self._dialling or self._socket is not None:
            return
        self._dialling = True
        known = self._levels.get((self.settings.host, self.settings.port))
        if known is not None and not self._choice.sure:
            self._choice.learn(known)
        if self._version != self._choice.level:
            self._client, self._version = None, MQTTProtocolVersion(self._choice.level)
        try:
            self._loop.diallers.submit(self._dial)
        except RuntimeError:  # the loop has been stopped
            self._dialling = False

    def want(self, wanted: Wanted) -> None:
        """Subscribe, now or as soon as there is a connection."""
        were_numbered = self._numbered
        self._add(wanted)
        self._numbered = were_numbered or has_wildcard(wanted.filter)
        if self._up:
            if self._numbered and not were_numbered:
                others = [each for each in self.wanted.values() if each is not wanted]
                self._subscribe([replace(each, retained=False) for each in others], again=False)
            self._subscribe([wanted], again=False)
            self._after_sending()

    def unwant(self, name: str) -> None:
        """Unsubscribe."""
        if self._remove(name, up=self._up):
            self._latest.pop(name, None)
            if self._up:
                self._unsubscribe(name)
                self._after_sending()

    def close(self) -> None:
        """Say goodbye and end for good."""
        if self._closing:
            return
        self._closing = True
        if self._socket is None or self._client is None:
            self._closed = not self._dialling
            return
        HeldFarewell(self._loop, self._socket, self._end)
        self._let_go()
        properties = None
        if self._version == V5:
            properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 0
        elif self._lasting and self.wanted:
            # A session of 3.1.1 cannot be told to end; let it at least collect nothing more.
            self._client.unsubscribe(list(self.wanted))
        self._client.disconnect(properties=properties)

    def _end(self) -> None:
        self._closed = True

    # -- opening: in a helper thread ---------------------------------------------------------------

    def _dial(self) -> None:
        client = self._client
        if client is None:
            client = self._new_client()
        error: OSError | None = None
        ports = self.settings.bind_ports or (0,)
        for turn in range(len(ports)):
            port = ports[(self._next_port + turn) % len(ports)]
            try:
                self._connect(client, port)
            except OSError as found:
                error = found
                if found.errno != errno.EADDRINUSE:
                    break
            else:
                self._next_port = (self._next_port + turn + 1) % len(ports)
                self._loop.call(lambda: self._opened(client))
                return
        failure = error or OSError("no ports")
        self._loop.call(lambda: self._not_opened(failure))

    def _new_client(self) -> ReadAheadClient:
        client = ReadAheadClient(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=self._version,
            reconnect_on_failure=False,
            clean_session=None if self._version == V5 else not self._lasting,
        )
        client.connect_timeout = DIAL_SECONDS
        client.on_socket_open = _prepare
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_message = self._on_message_5 if self._version == V5 else self._on_message_3
        return client

    def _connect(self, client: ReadAheadClient, port: int) -> None:
        more: dict[str, Any] = {}
        if self._version == V5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = SESSION_SECONDS if self._lasting else 0
            more = {"clean_start": not self._lasting, "properties": properties}
        client.forget()
        client.connect(
            self.settings.host,
            self.settings.port,
            keepalive=KEEP_ALIVE_SECONDS,
            bind_address=self.settings.bind_address,
            bind_port=port,
            **more,
        )

    # -- in the loop's thread ----------------------------------------------------------------------

    def _opened(self, client: ReadAheadClient) -> None:
        self._dialling = False
        self._client = client
        found = client.socket()
        if self._closing or found is None:
            if found is not None:
                found.close()
            self._closed = self._closing
            self._try_again()
            return
        self._socket = found  # type: ignore[assignment]
        self._loop.watch(found, self._readable, self._after_sending)  # type: ignore[arg-type]
        self._answered = False
        unsure = not self._choice.sure and self._version == V5
        seconds = FIRST_CONNACK_SECONDS if unsure else CONNACK_SECONDS
        self._patience = self._loop.later(seconds, self._no_connack)
        self._loop.later(1.0, lambda: self._tick(client))
        self._after_sending()

    def _not_opened(self, error: OSError) -> None:
        self._dialling = False
        if self._closing:
            self._closed = True
            return
        where = f"{self.settings.host}:{self.settings.port}"
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
        if kind is PortInUse:
            where = f"{self.settings.bind_address}:{self.settings.bind_ports} to {where}"
        self._listener.refused(self, kind(f"{where}: {error}"))
        self._try_again()

    def _no_connack(self) -> None:
        if not self._choice.sure and self._version == V5:
            self._drop()  # some brokers say nothing at all to MQTT 5: the next try is with 3.1.1
            return
        where = f"{self.settings.host}:{self.settings.port}"
        self._listener.refused(self, ConnectionRefused(f"{where}: no answer in time"))
        self._drop()

    def _tick(self, client: ReadAheadClient) -> None:
        """Keep-alive, once a second while this connection lives."""
        if self._socket is None or client is not self._client or self._closing:
            return
        client.loop_misc()
        self._after_sending()
        if self._socket is not None:
            self._loop.later(1.0, lambda: self._tick(client))

    def _readable(self) -> None:
        client = self._client
        if client is None:
            return
        for _ in range(PACKETS_AT_ONCE):
            before = self._events
            failed = client.loop_read() != mqtt.MQTT_ERR_SUCCESS
            if failed or (self._events == before and not client.has_more):
                break
        self._after_sending()
        if client.has_more and self._socket is not None:
            self._loop.call(self._readable)  # after the others have had their turn

    def _after_sending(self) -> None:
        """Send what paho still holds, and see whether the connection is still there."""
        client = self._client
        if client is None or self._socket is None:
            return
        if client.want_write():
            client.loop_write()
        opened = self._socket
        if opened is None or client.socket() is not opened:
            self._lost()
        else:
            self._loop.want_write(opened, client.want_write())

    def _drop(self) -> None:
        """End the connection, soon: paho may be in the midst of it."""
        if self._socket is not None:
            self._loop.call(partial(self._reset, self._socket))

    def _reset(self, opened: socket.socket) -> None:
        if self._socket is opened:
            self._lost()
            opened.close()

    def _let_go(self) -> None:
        """Watch the socket no more."""
        if self._socket is not None:
            self._loop.unwatch(self._socket)
        if self._patience is not None:
            self._patience.cancel()
        self._socket, self._up = None, False
        self._subscriptions.clear()
        self._nothing_in_force()
        self._listener.lost(self)

    def _lost(self) -> None:
        self._let_go()
        if not self._answered:
            self._choice.unanswered()
        self._try_again()

    def _try_again(self) -> None:
        if not self._closing:
            self._loop.later(self._back_off.next_seconds(), self.open)

    def _on_connect(self, _c: Any, _d: Any, flags: Any, reason: Any, _p: Any) -> None:
        self._answered = True
        if self._patience is not None:
            self._patience.cancel()
        if reason.is_failure:
            where = f"{self.settings.host}:{self.settings.port}"
            if reason.value == UNSUPPORTED_VERSION:
                self._choice.refused()
            else:
                self._listener.refused(self, ConnectionRefused(f"{where}: {reason}"))
            self._drop()
            return
        self._back_off.succeeded()
        if not self._choice.accepted():
            self._drop()
            return
        self._levels[self.settings.host, self.settings.port] = self._choice.level
        self._up = True
        self.connects += 1
        stale = self._take_stale()
        if flags.session_present:
            for name in stale:
                self._unsubscribe(name)
        self._subscribe(list(self.wanted.values()), again=flags.session_present)

    def _unsubscribe(self, name: str) -> None:
        if self._client is not None:
            _, sent = self._client.unsubscribe(name)
            if sent is not None:
                self._unsubscription_sent(name, sent)
            elif self._lasting:
                self._stale.add(name)

    def _subscribe(self, wanted: list[Wanted], *, again: bool) -> None:
        client = self._client
        if client is None or not wanted:
            return
        if self._version != V5:
            _, sent = client.subscribe([(each.filter, each.qos) for each in wanted])
            self._note(sent, [each.filter for each in wanted])
            return
        for each in wanted:
            retained = RETAINED_NOT if not each.retained else RETAINED_SEND
            options = SubscribeOptions(
                qos=each.qos, retainHandling=RETAINED_IF_NEW if again else retained
            )
            properties = None
            if self._numbered:
                # Filters may overlap: let the broker say for which of them an event comes. It is
                # left out where it can be, since reading it takes a tenth of all the time.
                properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
                properties.SubscriptionIdentifier = each.number
            _, sent = client.subscribe(each.filter, options=options, properties=properties)
            self._note(sent, [each.filter])

    def _note(self, sent: int | None, names: Sequence[str]) -> None:
        if sent is not None:
            self._subscriptions[sent] = names
            self._latest.update(dict.fromkeys(names, sent))

    def _on_subscribe(self, _c: Any, _d: Any, sent: int, reasons: Any, _p: Any) -> None:
        self._events += 1
        for name, reason in zip(self._subscriptions.pop(sent, ()), reasons, strict=False):
            if reason.is_failure:
                self._listener.refused(self, ConnectionRefused(f"subscribing {name!r}: {reason}"))
            elif name in self.wanted and self._latest.get(name) == sent:
                self.granted.add(name)
                self._listener.granted(self, name)
                if self._must_ask_again(name, reason.value):
                    self._loop.later(ASK_AGAIN_SECONDS, partial(self._ask_again, name))

    def _ask_again(self, name: str) -> None:
        if self._up and name in self.wanted:
            self._subscribe([replace(self.wanted[name], retained=False)], again=False)
            self._after_sending()

    def _on_unsubscribe(self, _c: Any, _d: Any, sent: int, _r: Any, _p: Any) -> None:
        self._events += 1
        left = self._unsubscription_acknowledged(sent)
        if left is not None:
            self._loop.later(LEAVING_SECONDS, partial(self._has_left, *left))

    def _on_message_5(self, _c: Any, _d: Any, message: mqtt.MQTTMessage) -> None:
        self._events += 1
        properties: Any = message.properties
        self._listener.arrived(
            self,
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            getattr(properties, "UserProperty", []),
            getattr(properties, "SubscriptionIdentifier", None),
        )

    def _on_message_3(self, _c: Any, _d: Any, message: mqtt.MQTTMessage) -> None:
        self._events += 1
        self._listener.arrived(
            self, message.topic, message.payload, message.qos, message.retain, None, None
        )


def _prepare(_client: Any, _data: Any, opened: Any) -> None:
    """Send at once; and when a lost connection is closed, leave its port free at once."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

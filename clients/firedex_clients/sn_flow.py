"""A flow over MQTT-SN and UDP: each event is one datagram, so a lost packet is a lost event.

It has the same interface as `tcp_flow`. The event stamp precedes the payload, because MQTT-SN has
no user properties.
"""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from firedex.transport.event_stamp import STAMPED_CLIENT_PREFIX
from firedex.transport.mqtt_sn import (
    Connack,
    Connect,
    Disconnect,
    MalformedMessage,
    Message,
    PingReq,
    PingResp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Regack,
    Register,
    ReturnCode,
    Suback,
    Subscribe,
    TopicKind,
    Unsuback,
    Unsubscribe,
    decode,
    encode,
)
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

__all__ = ["SnFlow"]

log = logging.getLogger("firedex.clients")

KEEP_ALIVE_SECONDS = 6
"""An unreachable gateway is detected after this time: UDP does not report it."""
RETRY_SECONDS = 0.5
MAX_ATTEMPTS = 6
TICK_SECONDS = 0.1
CLOSE_SECONDS = 0.3
MAX_DATAGRAMS_AT_ONCE = 200
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
CONNECT_KEY = 0
"""Key of CONNECT among the pending requests; message ids start at 1."""


@dataclass(slots=True)
class _PendingRequest:
    """A message that is repeated until its response arrives."""

    datagram: bytes
    repeat_at: float
    name: str = ""
    attempts: int = 1


class SnFlow(FlowConnection):
    """A flow over UDP; each connection attempt uses the next of the local ports of the flow."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: FlowSettings,
        listener: FlowListener,
        *,
        client_id: str,
        persistent: bool = False,
    ) -> None:
        super().__init__(settings, listener, client_id=client_id, persistent=persistent)
        self._loop = loop
        self._back_off = reconnect_back_off()
        self._socket: socket.socket | None = None
        self._pending: dict[int, _PendingRequest] = {}
        self._topics: dict[int, str] = {}
        self._received: set[int] = set()
        self._received_before: set[int] = set()
        self._connected = self._closing = self._closed = False
        self._next_port = self._next_id = 0
        self._received_at = self._pinged_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # -- interface ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the connection is closed for good."""
        return self._closed

    def open(self) -> None:
        """Start to connect; return at once."""
        if self._closing or self._socket is not None:
            return
        try:
            self._socket = self._open_socket()
        except OSError as error:
            address = f"{self.settings.bind_address}:{self.settings.bind_ports}"
            kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
            self._listener.refused(self, kind(f"{address}: {error}"))
            self._reconnect_later()
            return
        self._loop.add_reader(self._socket, self._on_readable)
        self._topics.clear()
        # A persistent session repeats unreleased messages; a new one starts with new ids.
        self._received_before = (
            self._received | self._received_before if self._persistent else set()
        )
        self._received = set()
        connect = Connect(
            client_id=STAMPED_CLIENT_PREFIX + self._client_id,
            duration_seconds=KEEP_ALIVE_SECONDS,
            clean_session=not self._persistent,
        )
        self._request(CONNECT_KEY, connect)
        self._timer = self._loop.call_later(TICK_SECONDS, self._on_timer)

    def subscribe(self, request: FilterRequest) -> None:
        """Subscribe to a filter, now or when the connection is open."""
        self._add(request)
        if self._connected:
            self._send_subscribe(request)

    def unsubscribe(self, name: str) -> None:
        """Unsubscribe from a filter, now or when the connection is open."""
        if self._remove(name, connected=self._connected) and self._connected:
            self._send_unsubscribe(name)

    def _send_unsubscribe(self, name: str) -> None:
        number = self._new_id()
        self._request(number, Unsubscribe(message_id=number, topic=name), name)
        self._unsubscription_sent(name, number)

    def close(self) -> None:
        """Disconnect for good; ``closed`` becomes true when the socket is closed."""
        if self._closing:
            return
        self._closing = True
        if self._socket is None:
            self._closed = True
            return
        if self._persistent:
            # The gateway keeps the session at the broker, which must not collect more events.
            for number, name in enumerate(self.requests, start=1):
                self._send(Unsubscribe(message_id=number, topic=name))
        self._send(Disconnect())
        self._loop.call_later(CLOSE_SECONDS, self._end)

    def _end(self) -> None:
        self._detach()
        self._closed = True

    # -- the socket --------------------------------------------------------------------------------

    def _open_socket(self) -> socket.socket:
        ports = self.settings.bind_ports or (0,)
        error: OSError | None = None
        for offset in range(len(ports)):
            port = ports[(self._next_port + offset) % len(ports)]
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
                sock.bind((self.settings.bind_address, port))
                sock.connect((self.settings.host, self.settings.port))
                sock.setblocking(False)
            except OSError as bind_error:
                sock.close()
                error = bind_error
            else:
                self._next_port = (self._next_port + offset + 1) % len(ports)
                return sock
        raise error or OSError("the flow has no local ports")

    def _detach(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
        if self._timer is not None:
            self._timer.cancel()
        self._socket, self._connected = None, False
        self._pending.clear()
        self._reset_filters()
        self._listener.lost(self)

    def _lost(self, reason: str) -> None:
        if not self._connected and not self._closing:
            self._listener.refused(self, ConnectionRefused(f"{self._remote}: {reason}"))
        self._detach()
        self._reconnect_later()

    def _reconnect_later(self) -> None:
        if not self._closing:
            self._loop.call_later(self._back_off.next_seconds(), self.open)

    def _send(self, message: Message) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(encode(message))
        except OSError as error:  # for example ICMP "port unreachable"
            log.debug("%s: %s", self._client_id, error)

    def _request(self, number: int, message: Message, name: str = "") -> None:
        if name:
            # An older request for the same filter must not be repeated after this one.
            for older in [n for n, each in self._pending.items() if each.name == name]:
                del self._pending[older]
        self._pending[number] = _PendingRequest(
            encode(message), time.monotonic() + RETRY_SECONDS, name
        )
        self._send(message)

    def _new_id(self) -> int:
        self._next_id = self._next_id % 0xFFFF + 1
        return self._next_id

    def _on_timer(self) -> None:
        if self._socket is None:
            return
        now = time.monotonic()
        for each in tuple(self._pending.values()):
            if each.repeat_at > now:
                continue
            if each.attempts >= MAX_ATTEMPTS:
                self._lost("no response in time")
                return
            each.attempts += 1
            each.repeat_at = now + RETRY_SECONDS
            try:
                self._socket.send(each.datagram)
            except OSError as error:
                log.debug("%s: %s", self._client_id, error)
        if self._connected and now - self._received_at > KEEP_ALIVE_SECONDS:
            self._lost("the gateway does not respond")
            return
        # Events at QoS 0 are not acknowledged, so PINGREQ shows that the client is alive.
        if self._connected and now - self._pinged_at > KEEP_ALIVE_SECONDS / 4:
            self._pinged_at = now
            self._send(PingReq())
        self._timer = self._loop.call_later(TICK_SECONDS, self._on_timer)

    def _on_readable(self) -> None:
        for _ in range(MAX_DATAGRAMS_AT_ONCE):
            sock = self._socket
            if sock is None:
                return
            try:
                datagram = sock.recv(65_536)
            except BlockingIOError:
                return
            except OSError as error:
                log.debug("%s: %s", self._client_id, error)
                return
            self._received_at = time.monotonic()
            try:
                self._on_message(decode(datagram))
            except MalformedMessage as error:
                log.warning("%s: a datagram is not valid MQTT-SN: %s", self._client_id, error)

    # -- messages ----------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)

    def _on_register(self, message: Register) -> None:
        self._topics[message.topic_id] = message.topic
        code = ReturnCode.ACCEPTED
        self._send(
            Regack(topic_id=message.topic_id, message_id=message.message_id, return_code=code)
        )

    def _on_pubrel(self, message: Pubrel) -> None:
        self._received.discard(message.message_id)
        self._received_before.discard(message.message_id)
        self._send(Pubcomp(message_id=message.message_id))

    def _on_pingreq(self, _: PingReq) -> None:
        self._send(PingResp())

    def _on_disconnect(self, _: Disconnect) -> None:
        if self._closing:
            self._end()
        else:
            self._lost("the gateway closed the session")

    def _on_connack(self, message: Connack) -> None:
        if self._pending.pop(CONNECT_KEY, None) is None:
            return
        if message.return_code != ReturnCode.ACCEPTED:
            self._lost(f"the gateway refused the connection with code {message.return_code}")
            return
        self._back_off.reset()
        self._connected = True
        self.connects += 1
        for name in self._take_stale():
            self._send_unsubscribe(name)
        for request in self.requests.values():
            self._send_subscribe(request)

    def _send_subscribe(self, request: FilterRequest) -> None:
        number = self._new_id()
        message = Subscribe(message_id=number, topic=request.filter, qos=request.qos)
        self._request(number, message, request.filter)

    def _on_suback(self, message: Suback) -> None:
        request = self._pending.pop(message.message_id, None)
        if request is None:
            return
        if message.return_code != ReturnCode.ACCEPTED:
            reason = f"subscription to {request.name!r} refused with code {message.return_code}"
            self._listener.refused(self, ConnectionRefused(f"{self._remote}: {reason}"))
            return
        if message.topic_id:
            self._topics[message.topic_id] = request.name
        if request.name in self.requests:
            self.granted.add(request.name)
            self._listener.granted(self, request.name)
            if self._must_retry_qos(request.name, message.qos):
                self._loop.call_later(RETRY_QOS_SECONDS, self._retry_qos, request.name)

    def _retry_qos(self, name: str) -> None:
        if self._connected and name in self.requests:
            self._send_subscribe(self.requests[name])

    def _on_unsuback(self, message: Unsuback) -> None:
        self._pending.pop(message.message_id, None)
        unsubscribed = self._unsubscription_acknowledged(message.message_id)
        if unsubscribed is not None:
            self._loop.call_later(DRAIN_SECONDS, self._drained, *unsubscribed)

    def _on_publish(self, message: Publish) -> None:
        topic = self._topic(message)
        if topic is None:
            code = ReturnCode.INVALID_TOPIC_ID
            rejection = Puback(
                topic_id=message.topic_id, message_id=message.message_id, return_code=code
            )
            self._send(rejection)
            return
        known = message.message_id in self._received
        if message.message_id in self._received_before:
            # Without the DUP flag it is a new message: the broker has lost the session.
            known = known or message.dup
            self._received_before.discard(message.message_id)
        if message.qos == 1:
            self._send(
                Puback(topic_id=message.topic_id, message_id=message.message_id, return_code=0)
            )
        elif message.qos > 1:
            self._received.add(message.message_id)
            self._send(Pubrec(message_id=message.message_id))
        if message.qos <= 1 or not known:
            self._listener.arrived(
                self, topic, message.payload, max(message.qos, 0), message.retain, None, None
            )

    def _topic(self, message: Publish) -> str | None:
        if message.kind == TopicKind.SHORT:
            return message.topic_id.to_bytes(2, "big").decode("utf-8", "replace")
        return self._topics.get(message.topic_id) if message.kind == TopicKind.NORMAL else None


_HANDLERS: dict[type, Callable[..., None]] = {
    Publish: SnFlow._on_publish,
    Connack: SnFlow._on_connack,
    Suback: SnFlow._on_suback,
    Unsuback: SnFlow._on_unsuback,
    Register: SnFlow._on_register,
    Pubrel: SnFlow._on_pubrel,
    PingReq: SnFlow._on_pingreq,
    Disconnect: SnFlow._on_disconnect,
}

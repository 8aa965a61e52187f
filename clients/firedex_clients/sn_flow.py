"""A flow over MQTT-SN and UDP: one event is one datagram, so what the network drops is an event.

The same as `tcp_flow` to its subscriber. Stamps come before the payload, since MQTT-SN has no
properties.
"""

import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from firedex.event_stamp import STAMPED_CLIENT_PREFIX
from firedex.mqtt_sn import (
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

__all__ = ["SnFlow"]

log = logging.getLogger("firedex.clients")

KEEP_ALIVE_SECONDS = 6
"""A gateway that is away is noticed after about this long: UDP itself says nothing."""
RETRY_SECONDS = 0.5
MOST_TRIES = 6
TICK_SECONDS = 0.1
FAREWELL_SECONDS = 0.3
DATAGRAMS_AT_ONCE = 200
RECEIVE_BYTES = 4 * 1024 * 1024
CONNECTING = 0
"""The key under which CONNECT waits for its answer; message ids begin at 1."""


@dataclass(slots=True)
class _Asked:
    """A question that is repeated until it is answered."""

    datagram: bytes
    again_at: float
    name: str = ""
    tries: int = 1


class SnFlow(FlowFilters):
    """Connects from its flow's two ports in turn, and again whenever the gateway is lost."""

    def __init__(
        self,
        loop: ConnectionLoop,
        settings: FlowSettings,
        listener: FlowListener,
        *,
        client_id: str,
        lasting: bool = False,
    ) -> None:
        super().__init__(lasting=lasting)
        self._loop, self.settings, self._listener = loop, settings, listener
        self._client_id = client_id
        self._back_off = BackOff()
        self._socket: socket.socket | None = None
        self._asked: dict[int, _Asked] = {}
        self._topics: dict[int, str] = {}
        self._received: set[int] = set()
        self._received_before: set[int] = set()
        self._up = self._closing = self._closed = False
        self._next_port = self._next_id = 0
        self._heard_at = self._pinged_at = 0.0
        self._ticking: Timer | None = None

    # -- what is asked of it -----------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether all is said and the socket closed."""
        return self._closed

    def open(self) -> None:
        """Begin; never waits."""
        if self._closing or self._socket is not None:
            return
        try:
            self._socket = self._bound()
        except OSError as error:
            where = f"{self.settings.bind_address}:{self.settings.bind_ports}"
            kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
            self._listener.refused(self, kind(f"{where}: {error}"))
            self._try_again()
            return
        self._loop.watch(self._socket, self._readable)
        self._topics.clear()
        # A session that lasts repeats what was not released; another begins to count anew.
        self._received_before = self._received | self._received_before if self._lasting else set()
        self._received = set()
        connect = Connect(
            client_id=STAMPED_CLIENT_PREFIX + self._client_id,
            duration_seconds=KEEP_ALIVE_SECONDS,
            clean_session=not self._lasting,
        )
        self._ask(CONNECTING, connect)
        self._ticking = self._loop.later(TICK_SECONDS, self._tick)

    def want(self, wanted: Wanted) -> None:
        """Subscribe, now or as soon as there is a connection."""
        self._add(wanted)
        if self._up:
            self._subscribe(wanted)

    def unwant(self, name: str) -> None:
        """Unsubscribe."""
        if self._remove(name, up=self._up) and self._up:
            self._unsubscribe(name)

    def _unsubscribe(self, name: str) -> None:
        number = self._new_id()
        self._ask(number, Unsubscribe(message_id=number, topic=name), name)
        self._unsubscription_sent(name, number)

    def close(self) -> None:
        """Say goodbye and end for good."""
        if self._closing:
            return
        self._closing = True
        if self._socket is None:
            self._closed = True
            return
        if self._lasting:
            # The gateway keeps the session at the broker: let it collect nothing more.
            for number, name in enumerate(self.wanted, start=1):
                self._say(Unsubscribe(message_id=number, topic=name))
        self._say(Disconnect())
        self._loop.later(FAREWELL_SECONDS, self._end)

    def _end(self) -> None:
        self._let_go()
        self._closed = True

    # -- the socket --------------------------------------------------------------------------------

    def _bound(self) -> socket.socket:
        ports = self.settings.bind_ports or (0,)
        error: OSError | None = None
        for turn in range(len(ports)):
            port = ports[(self._next_port + turn) % len(ports)]
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                opened.bind((self.settings.bind_address, port))
                opened.connect((self.settings.host, self.settings.port))
                opened.setblocking(False)
            except OSError as found:
                opened.close()
                error = found
            else:
                self._next_port = (self._next_port + turn + 1) % len(ports)
                return opened
        raise error or OSError("no ports")

    def _let_go(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket)
            self._socket.close()
        if self._ticking is not None:
            self._ticking.cancel()
        self._socket, self._up = None, False
        self._asked.clear()
        self._nothing_in_force()
        self._listener.lost(self)

    def _lost(self, why: str) -> None:
        if not self._up and not self._closing:
            where = f"{self.settings.host}:{self.settings.port}"
            self._listener.refused(self, ConnectionRefused(f"{where}: {why}"))
        self._let_go()
        self._try_again()

    def _try_again(self) -> None:
        if not self._closing:
            self._loop.later(self._back_off.next_seconds(), self.open)

    def _say(self, message: Message) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(encode(message))
        except OSError as error:  # a port that nobody listens on is told of here
            log.debug("%s: %s", self._client_id, error)

    def _ask(self, number: int, message: Message, name: str = "") -> None:
        if name:
            # An older question about the same filter must not be repeated after this one.
            for older in [n for n, each in self._asked.items() if each.name == name]:
                del self._asked[older]
        self._asked[number] = _Asked(encode(message), time.monotonic() + RETRY_SECONDS, name)
        self._say(message)

    def _new_id(self) -> int:
        self._next_id = self._next_id % 0xFFFF + 1
        return self._next_id

    def _tick(self) -> None:
        if self._socket is None:
            return
        now = time.monotonic()
        for each in tuple(self._asked.values()):
            if each.again_at > now:
                continue
            if each.tries >= MOST_TRIES:
                self._lost("no answer in time")
                return
            each.tries += 1
            each.again_at = now + RETRY_SECONDS
            try:
                self._socket.send(each.datagram)
            except OSError as error:
                log.debug("%s: %s", self._client_id, error)
        if self._up and now - self._heard_at > KEEP_ALIVE_SECONDS:
            self._lost("nothing has been heard of the gateway")
            return
        # The gateway must hear of us however much it sends: what it sends at QoS 0 has no answer.
        if self._up and now - self._pinged_at > KEEP_ALIVE_SECONDS / 4:
            self._pinged_at = now
            self._say(PingReq())
        self._ticking = self._loop.later(TICK_SECONDS, self._tick)

    def _readable(self) -> None:
        for _ in range(DATAGRAMS_AT_ONCE):
            opened = self._socket
            if opened is None:
                return
            try:
                datagram = opened.recv(65_536)
            except BlockingIOError:
                return
            except OSError as error:
                log.debug("%s: %s", self._client_id, error)
                return
            self._heard_at = time.monotonic()
            try:
                self._on_message(decode(datagram))
            except MalformedMessage as error:
                log.warning("%s: not MQTT-SN: %s", self._client_id, error)

    # -- messages ----------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)

    def _on_register(self, message: Register) -> None:
        self._topics[message.topic_id] = message.topic
        code = ReturnCode.ACCEPTED
        self._say(
            Regack(topic_id=message.topic_id, message_id=message.message_id, return_code=code)
        )

    def _on_pubrel(self, message: Pubrel) -> None:
        self._received.discard(message.message_id)
        self._received_before.discard(message.message_id)
        self._say(Pubcomp(message_id=message.message_id))

    def _on_ping(self, _: PingReq) -> None:
        self._say(PingResp())

    def _on_disconnect(self, _: Disconnect) -> None:
        if self._closing:
            self._end()
        else:
            self._lost("the gateway says goodbye")

    def _on_connack(self, message: Connack) -> None:
        if self._asked.pop(CONNECTING, None) is None:
            return
        if message.return_code != ReturnCode.ACCEPTED:
            self._lost(f"the gateway refuses with code {message.return_code}")
            return
        self._back_off.succeeded()
        self._up = True
        self.connects += 1
        for name in self._take_stale():
            self._unsubscribe(name)
        for wanted in self.wanted.values():
            self._subscribe(wanted)

    def _subscribe(self, wanted: Wanted) -> None:
        number = self._new_id()
        message = Subscribe(message_id=number, topic=wanted.filter, qos=wanted.qos)
        self._ask(number, message, wanted.filter)

    def _on_suback(self, message: Suback) -> None:
        asked = self._asked.pop(message.message_id, None)
        if asked is None:
            return
        if message.return_code != ReturnCode.ACCEPTED:
            refusal = f"subscribing {asked.name!r}: code {message.return_code}"
            self._listener.refused(self, ConnectionRefused(refusal))
            return
        if message.topic_id:
            self._topics[message.topic_id] = asked.name
        if asked.name in self.wanted:
            self.granted.add(asked.name)
            self._listener.granted(self, asked.name)
            if self._must_ask_again(asked.name, message.qos):
                self._loop.later(ASK_AGAIN_SECONDS, partial(self._ask_again, asked.name))

    def _ask_again(self, name: str) -> None:
        if self._up and name in self.wanted:
            self._subscribe(self.wanted[name])

    def _on_unsuback(self, message: Unsuback) -> None:
        self._asked.pop(message.message_id, None)
        left = self._unsubscription_acknowledged(message.message_id)
        if left is not None:
            self._loop.later(LEAVING_SECONDS, partial(self._has_left, *left))

    def _on_publish(self, message: Publish) -> None:
        topic = self._topic(message)
        if topic is None:
            code = ReturnCode.INVALID_TOPIC_ID
            refusal = Puback(
                topic_id=message.topic_id, message_id=message.message_id, return_code=code
            )
            self._say(refusal)
            return
        known = message.message_id in self._received
        if message.message_id in self._received_before:
            # If it does not say that it is a repetition, the broker has lost the session.
            known = known or message.dup
            self._received_before.discard(message.message_id)
        if message.qos == 1:
            self._say(
                Puback(topic_id=message.topic_id, message_id=message.message_id, return_code=0)
            )
        elif message.qos > 1:
            self._received.add(message.message_id)
            self._say(Pubrec(message_id=message.message_id))
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
    PingReq: SnFlow._on_ping,
    Disconnect: SnFlow._on_disconnect,
}

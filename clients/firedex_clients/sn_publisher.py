"""Publishing over MQTT-SN: one socket, one request at a time, and a keep-alive thread."""

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

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
    TopicKind,
    decode,
    encode,
)
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES
from firedex_clients.errors import ConnectionRefused, EventTooLarge

__all__ = ["SnPublisher"]

KEEP_ALIVE_SECONDS = 20
RETRY_SECONDS = 1.0
MAX_ATTEMPTS = 4
SHORT_TOPIC_BYTES = 2
T = TypeVar("T")


class _SessionLost(ConnectionRefused):
    """The gateway no longer knows this client or one of its topics."""


def _check_puback(topic: str, response: Puback) -> None:
    if response.return_code != ReturnCode.ACCEPTED:
        unknown = response.return_code == ReturnCode.INVALID_TOPIC_ID
        kind = _SessionLost if unknown else ConnectionRefused
        raise kind(
            f"the gateway refused an event of topic {topic!r} with code {response.return_code}"
        )


class SnPublisher:
    """The session of a publisher with an MQTT-SN gateway; it reconnects if the session is lost."""

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self._gateway, self._client_id = (host, port), client_id
        self._topics: dict[str, int] = {}
        self._next_id = 0
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._keep_alive_thread = threading.Thread(
            target=self._keep_alive, name="firedex-sn", daemon=True
        )

    def open(self) -> None:
        """Connect to the gateway, and start the keep-alive thread."""
        host, port = self._gateway
        try:
            self._socket.connect(self._gateway)
            self._connect()
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise ConnectionRefused(f"{host}:{port}: {error}") from error
            raise
        self._keep_alive_thread.start()

    def _connect(self) -> None:
        self._topics.clear()
        connect = Connect(client_id=self._client_id, duration_seconds=KEEP_ALIVE_SECONDS)
        response = self._request(connect, Connack)
        if response.return_code != ReturnCode.ACCEPTED:
            host, port = self._gateway
            raise ConnectionRefused(
                f"{host}:{port}: connection refused with code {response.return_code}"
            )

    def close(self) -> None:
        """Send DISCONNECT and close the socket."""
        self._stop.set()
        with self._lock, suppress(ConnectionRefused):
            self._send(Disconnect())
        self._keep_alive_thread.join(RETRY_SECONDS * MAX_ATTEMPTS)
        self._socket.close()

    def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool) -> None:
        """Publish one event; at QoS 1 and 2, wait for the acknowledgement.

        If the gateway no longer knows this client or the topic (for example after a restart),
        connect and publish again.
        """
        if len(payload) > MAX_UDP_PAYLOAD_BYTES:
            raise EventTooLarge(
                f"the event has {len(payload)} bytes with its stamp, but a datagram can contain "
                f"only {MAX_UDP_PAYLOAD_BYTES}"
            )
        with self._lock:
            try:
                self._publish(topic, payload, qos, retain)
            except _SessionLost:
                self._connect()
                self._publish(topic, payload, qos, retain)

    def _publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        kind, number = self._topic(topic)
        message_id = self._new_id() if qos else 0
        event = Publish(
            topic_id=number, payload=payload, kind=kind, message_id=message_id, qos=qos,
            retain=retain,
        )  # fmt: skip
        if qos == 0:
            self._send(event)
        elif qos == 1:
            _check_puback(topic, self._request(event, Puback, message_id))
        else:
            response = self._request(event, (Pubrec, Puback), message_id)
            if isinstance(response, Puback):  # PUBACK at QoS 2 is always a rejection
                _check_puback(topic, response)
                return
            self._request(Pubrel(message_id=message_id), Pubcomp, message_id)

    def _send(self, message: Message) -> None:
        try:
            self._socket.send(encode(message))
        except ConnectionRefusedError:
            pass  # an earlier datagram was not delivered (ICMP "port unreachable")
        except OSError as error:
            host, port = self._gateway
            raise ConnectionRefused(f"{host}:{port}: {error}") from error

    def _topic(self, topic: str) -> tuple[TopicKind, int]:
        short = topic.encode()
        if len(short) == SHORT_TOPIC_BYTES:
            return TopicKind.SHORT, int.from_bytes(short, "big")
        if topic not in self._topics:
            message_id = self._new_id()
            register = Register(topic_id=0, message_id=message_id, topic=topic)
            response = self._request(register, Regack, message_id)
            if response.return_code != ReturnCode.ACCEPTED:
                raise ConnectionRefused(
                    f"the gateway refused topic {topic!r} with code {response.return_code}"
                )
            self._topics[topic] = response.topic_id
        return TopicKind.NORMAL, self._topics[topic]

    def _new_id(self) -> int:
        self._next_id = self._next_id % 0xFFFF + 1
        return self._next_id

    def _request(
        self,
        request: Message,
        response: type[T] | tuple[type[T], ...],
        message_id: int | None = None,
    ) -> T:
        """Repeat a request until its response arrives; other messages are ignored."""
        host, port = self._gateway
        with self._lock:
            for attempt in range(MAX_ATTEMPTS):
                if attempt and isinstance(request, Publish):
                    request = replace(request, dup=True)
                self._send(request)
                deadline = time.monotonic() + RETRY_SECONDS
                while (remaining_seconds := deadline - time.monotonic()) > 0:
                    message = self._receive(remaining_seconds)
                    if isinstance(message, Disconnect) and not isinstance(request, Connect):
                        raise _SessionLost(f"{host}:{port}: the gateway closed the session")
                    if isinstance(message, response) and message_id in (
                        None,
                        getattr(message, "message_id", None),
                    ):
                        return message
        raise ConnectionRefused(f"{host}:{port}: no response in time")

    def _receive(self, seconds: float) -> Message | None:
        self._socket.settimeout(seconds)
        try:
            return decode(self._socket.recv(65_536))
        except (TimeoutError, ConnectionRefusedError, MalformedMessage):
            return None
        except OSError as error:
            host, port = self._gateway
            raise ConnectionRefused(f"{host}:{port}: {error}") from error

    def _keep_alive(self) -> None:
        while not self._stop.wait(KEEP_ALIVE_SECONDS / 4):
            try:
                self._request(PingReq(), PingResp)
            except ConnectionRefused:
                with suppress(ConnectionRefused):
                    self._connect()

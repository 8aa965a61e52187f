"""Publishing over MQTT-SN: one socket, one question at a time, a thread that keeps it alive."""

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

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
    TopicKind,
    decode,
    encode,
)
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES
from firedex_clients.errors import ConnectionRefused, EventTooLarge

__all__ = ["SnPublishing"]

KEEP_ALIVE_SECONDS = 20
RETRY_SECONDS = 1.0
MOST_TRIES = 4
SHORT_BYTES = 2
T = TypeVar("T")


class _Forgotten(ConnectionRefused):
    """The gateway does not know us, or a topic, any more."""


def _check(topic: str, answer: Puback) -> None:
    if answer.return_code != ReturnCode.ACCEPTED:
        unknown = answer.return_code == ReturnCode.INVALID_TOPIC_ID
        kind = _Forgotten if unknown else ConnectionRefused
        raise kind(f"{topic!r}: code {answer.return_code}")


class SnPublishing:
    """A publisher's session with an MQTT-SN gateway; begins anew when the gateway has forgotten."""

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self._where, self._client_id = (host, port), client_id
        self._topics: dict[str, int] = {}
        self._next_id = 0
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._keeper = threading.Thread(target=self._keep_alive, name="firedex-sn", daemon=True)

    def open(self) -> None:
        """Connect."""
        host, port = self._where
        try:
            self._socket.connect(self._where)
            self._connect()
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise ConnectionRefused(f"{host}:{port}: {error}") from error
            raise
        self._keeper.start()

    def _connect(self) -> None:
        self._topics.clear()
        connect = Connect(client_id=self._client_id, duration_seconds=KEEP_ALIVE_SECONDS)
        answer = self._ask(connect, Connack)
        if answer.return_code != ReturnCode.ACCEPTED:
            host, port = self._where
            raise ConnectionRefused(f"{host}:{port}: refused with code {answer.return_code}")

    def close(self) -> None:
        """Say goodbye."""
        self._stop.set()
        with self._lock, suppress(ConnectionRefused):
            self._send(Disconnect())
        self._keeper.join(RETRY_SECONDS * MOST_TRIES)
        self._socket.close()

    def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool) -> None:
        """One event; at QoS 1 and 2 it returns when the broker has it.

        Should the gateway have forgotten us or the topic (it was restarted), once more from the
        beginning.
        """
        if len(payload) > LARGEST_UDP_PAYLOAD_BYTES:
            raise EventTooLarge(
                f"{len(payload)} bytes with the stamp; one datagram takes "
                f"{LARGEST_UDP_PAYLOAD_BYTES}"
            )
        with self._lock:
            try:
                self._publish(topic, payload, qos, retain)
            except _Forgotten:
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
            _check(topic, self._ask(event, Puback, message_id))
        else:
            answer = self._ask(event, (Pubrec, Puback), message_id)
            if isinstance(answer, Puback):  # only to refuse
                _check(topic, answer)
                return
            self._ask(Pubrel(message_id=message_id), Pubcomp, message_id)

    def _send(self, message: Message) -> None:
        try:
            self._socket.send(encode(message))
        except ConnectionRefusedError:
            pass  # nobody listened to the one before: as lost as any datagram may be
        except OSError as error:
            host, port = self._where
            raise ConnectionRefused(f"{host}:{port}: {error}") from error

    def _topic(self, topic: str) -> tuple[TopicKind, int]:
        short = topic.encode()
        if len(short) == SHORT_BYTES:
            return TopicKind.SHORT, int.from_bytes(short, "big")
        if topic not in self._topics:
            message_id = self._new_id()
            register = Register(topic_id=0, message_id=message_id, topic=topic)
            answer = self._ask(register, Regack, message_id)
            if answer.return_code != ReturnCode.ACCEPTED:
                raise ConnectionRefused(f"topic {topic!r}: code {answer.return_code}")
            self._topics[topic] = answer.topic_id
        return TopicKind.NORMAL, self._topics[topic]

    def _new_id(self) -> int:
        self._next_id = self._next_id % 0xFFFF + 1
        return self._next_id

    def _ask(
        self,
        question: Message,
        answer: type[T] | tuple[type[T], ...],
        message_id: int | None = None,
    ) -> T:
        """Ask until it is answered; whatever else comes meanwhile is passed over."""
        host, port = self._where
        with self._lock:
            for turn in range(MOST_TRIES):
                if turn and isinstance(question, Publish):
                    question = replace(question, dup=True)
                self._send(question)
                until = time.monotonic() + RETRY_SECONDS
                while (left := until - time.monotonic()) > 0:
                    found = self._receive(left)
                    if isinstance(found, Disconnect) and not isinstance(question, Connect):
                        raise _Forgotten(f"{host}:{port}: the gateway has forgotten us")
                    if isinstance(found, answer) and message_id in (
                        None,
                        getattr(found, "message_id", None),
                    ):
                        return found
        raise ConnectionRefused(f"{host}:{port}: no answer in time")

    def _receive(self, seconds: float) -> Message | None:
        self._socket.settimeout(seconds)
        try:
            return decode(self._socket.recv(65_536))
        except (TimeoutError, ConnectionRefusedError, MalformedMessage):
            return None
        except OSError as error:
            host, port = self._where
            raise ConnectionRefused(f"{host}:{port}: {error}") from error

    def _keep_alive(self) -> None:
        while not self._stop.wait(KEEP_ALIVE_SECONDS / 4):
            try:
                self._ask(PingReq(), PingResp)
            except ConnectionRefused:
                with suppress(ConnectionRefused):
                    self._connect()

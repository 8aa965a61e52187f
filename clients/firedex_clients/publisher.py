"""Publisher: publishes events with a stamp of stream id, sequence number and time."""

import errno
import logging
import socket
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.client import MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from firedex.transport.event_stamp import EventStamp, new_origin
from firedex.transport.http import HttpTarget
from firedex.transport.mqtt_security import MqttSecurity, explain_handshake
from firedex.transport.service_client import ClockOffset, ServiceClient
from firedex.wire import Publication, PublisherRegistration, Topic
from firedex.wire import Publisher as PublisherValue
from firedex.wire.mqtt_names import check_topic
from firedex.wire.workload import Arrivals, Transport
from firedex_clients.errors import (
    ClientError,
    ConnectionRefused,
    NotAcknowledged,
    PortInUse,
    QueueFull,
    ServiceUnreachable,
)
from firedex_clients.event_loop import run_blocking
from firedex_clients.registration import client_errors, connection_security, service_target
from firedex_clients.sn_publisher import SnPublisher
from firedex_clients.tcp_connection import apply_security

__all__ = ["Publisher", "open_connection"]

log = logging.getLogger("firedex.clients")
TIMEOUT_SECONDS = 10.0
"""Timeout for CONNACK, and for acknowledgements when the publisher is closed."""


class Publisher:
    """The connection of a publisher to its broker; use it as a context manager.

    By default it uses MQTT 5, and the event stamp is a user property. With ``version="3.1.1"``, or
    with ``transport="udp"`` (MQTT-SN, to a gateway), the stamp precedes the payload.
    With ``service_url``, entering the context registers the declared topics and estimates the
    offset of the service's clock; stamps use the local clock in any case. ``service_ca`` is a PEM
    file with the certificates to trust for a service at https://. ``security`` sets TLS, client
    certificate and credentials of the connection; with TLS, the user name is by default ``id`` and
    the password ``token``.
    """

    def __init__(
        self,
        host: str,
        port: int = 1883,
        *,
        id: str,  # noqa: A002  # the public name
        version: str = "5",
        transport: Transport = "tcp",
        stamped: bool = True,
        service_url: str | None = None,
        switch: str | None = None,
        token: str | None = None,
        service_ca: Path | None = None,
        security: MqttSecurity | None = None,
    ) -> None:
        if version not in _VERSIONS:
            raise ClientError(
                f"unknown MQTT version {version!r}; choose one of {', '.join(_VERSIONS)}"
            )
        self._host, self._port, self._id = host, port, id
        self._version, self._transport, self._stamped = _VERSIONS[version], transport, stamped
        self._target = (
            None if service_url is None else service_target(service_url, token, service_ca)
        )
        self._security = connection_security(security, id, token)
        if self._target is not None and switch is None:
            raise ClientError(
                "a publisher that registers with the service needs the argument 'switch'"
            )
        self._switch = switch or ""
        self._declared: dict[str, tuple[Topic, Publication]] = {}
        self._streams: dict[str, tuple[bytes, int]] = {}
        self._pending: deque[MQTTMessageInfo] = deque()
        self._unsent: MQTTMessageInfo | None = None
        """The last event at QoS 0, if it may not have been written to the socket yet."""
        self._sn_publisher: SnPublisher | None = None
        self.clock_offset: ClockOffset | None = None
        """Offset of the service's clock from the local clock; None until it is estimated."""

    def declare(
        self,
        topic: str,
        *,
        event_bytes: int,
        rate_per_second: float,
        arrivals: Arrivals = "poisson",
    ) -> None:
        """Declare a topic with its rate and event size, so that the service can plan for it."""
        self._declared[topic] = (
            Topic(name=topic, event_bytes=event_bytes, stamped=self._stamped),
            Publication(topic=topic, rate_per_second=rate_per_second, arrivals=arrivals),
        )

    def __enter__(self) -> "Publisher":
        """Register, if a service is given, and connect to the broker."""
        if self._target is not None:
            try:
                with client_errors():
                    run_blocking(self._register(self._target))
            except ServiceUnreachable as error:
                # Events can be published without a registration; the service measures their rates.
                log.warning("%s: the publisher is not registered: %s", self._id, error)
        if self._transport == "udp":
            self._sn_publisher = SnPublisher(self._host, self._port, self._id)
            self._sn_publisher.open()
        else:
            self._client = open_connection(
                self._host,
                self._port,
                client_id=self._id,
                version=self._version,
                security=self._security,
            )
        return self

    async def _register(self, target: HttpTarget) -> None:
        async with ServiceClient(target) as service:
            self.clock_offset = await service.clock_offset()
            if self._declared:
                publisher = PublisherValue(
                    id=self._id,
                    switch=self._switch,
                    publications=tuple(each for _, each in self._declared.values()),
                    transport=self._transport,
                )
                topics = tuple(topic for topic, _ in self._declared.values())
                await service.register_publisher(
                    PublisherRegistration(publisher=publisher, topics=topics)
                )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sn_publisher is not None:
            self._sn_publisher.close()
            self._sn_publisher = None
            return
        try:
            unacknowledged = self._wait_for_pending()
        finally:
            self._client.disconnect()
            self._client.loop_stop()
        if unacknowledged and kind is None:
            raise NotAcknowledged(unacknowledged)

    def _wait_for_pending(self) -> int:
        """Wait for acknowledgements until a timeout; return the number of missing ones."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        if self._unsent is not None and self._client.is_connected():
            self._unsent.wait_for_publish(TIMEOUT_SECONDS)
        while self._pending:
            self._pending[0].wait_for_publish(max(deadline - time.monotonic(), 0.0))
            if not self._pending[0].is_published():
                return sum(not each.is_published() for each in self._pending)
            self._pending.popleft()
        return 0

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> str:
        """Publish one event; return its id (empty if it is not stamped).

        At QoS 1 and 2 the event is repeated until the broker acknowledges it, also after a
        reconnect; over MQTT-SN this call waits for the acknowledgement. Closing the publisher
        raises `NotAcknowledged` if acknowledgements are missing.
        """
        check_topic(topic)
        stamp = self._stamp(topic) if self._stamped else None
        properties = None
        if stamp is not None and self._sn_publisher is None and self._version == _VERSIONS["5"]:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = [stamp.to_property()]
        elif stamp is not None:
            payload = stamp.to_header() + payload
        if self._sn_publisher is not None:
            self._sn_publisher.publish(topic, payload, qos=qos, retain=retain)
        else:
            self._track(self._client.publish(topic, payload, qos, retain, properties), qos)
        return "" if stamp is None else stamp.event_id

    def _track(self, message_info: MQTTMessageInfo, qos: int) -> None:
        if qos == 0:
            self._unsent = (
                message_info if message_info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else None
            )
            return
        if message_info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            raise QueueFull(
                f"the queue is full: {len(self._pending)} events wait for broker "
                f"{self._host}:{self._port}"
            )
        # Without a connection, paho returns an error code, but keeps the event in its queue.
        message_info.rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        self._pending.append(message_info)
        while self._pending and self._pending[0].is_published():
            self._pending.popleft()

    def _stamp(self, topic: str) -> EventStamp:
        origin, sequence = self._streams.get(topic) or (new_origin(), 0)
        self._streams[topic] = (origin, sequence + 1)
        return EventStamp(
            origin=origin, sequence=sequence + 1, published_at_nanoseconds=time.time_ns()
        )


_VERSIONS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}


KEEP_ALIVE_SECONDS = 30
MAX_RECONNECT_SECONDS = 2
NO_BIND = ("", 0)


def open_connection(
    host: str,
    port: int,
    *,
    client_id: str,
    version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
    bind: tuple[str, int] = NO_BIND,
    security: MqttSecurity | None = None,
) -> mqtt.Client:
    """Connect, wait for CONNACK, and serve the connection in a thread."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version)
    client.reconnect_delay_set(1, MAX_RECONNECT_SECONDS)
    client.max_queued_messages_set(0)
    connack_received, errors = threading.Event(), list[str]()

    def on_connect(_client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        if reason.is_failure:
            errors.append(str(reason))
        connack_received.set()

    client.on_socket_open = _disable_nagle
    client.on_connect = on_connect
    try:
        apply_security(client, security)
        client.connect(
            host, port, keepalive=KEEP_ALIVE_SECONDS, bind_address=bind[0], bind_port=bind[1]
        )
    except OSError as error:
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConnectionRefused
        raise kind(f"{host}:{port}: {explain_handshake(error)}") from error
    client.loop_start()
    if not connack_received.wait(TIMEOUT_SECONDS):
        errors.append("no CONNACK in time")
    if errors:
        client.disconnect()
        client.loop_stop()
        raise ConnectionRefused(f"{host}:{port}: {errors[0]}")
    return client


def _disable_nagle(_client: Any, _data: Any, sock: Any) -> None:
    """Send each event at once; otherwise TCP waits 10 ms or more for an acknowledgement."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

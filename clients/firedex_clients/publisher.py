"""Publishing events that carry their id, number and time."""

import time
from collections import deque
from pathlib import Path
from types import TracebackType

from paho.mqtt.client import MQTTMessageInfo
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from firedex.event_stamp import EventStamp, new_origin
from firedex.wire import Publication, PublisherRegistration, Topic
from firedex.wire import Publisher as PublisherValue
from firedex.wire.mqtt_names import check_topic
from firedex.wire.workload import Arrivals, Transport
from firedex_clients.errors import ClientError, NotAcknowledged, ServiceAbsent, TooManyWaiting
from firedex_clients.mqtt_connection import open_connection
from firedex_clients.service_client import ClockOffset, ServiceClient
from firedex_clients.sn_publishing import SnPublishing

__all__ = ["Publisher"]

PATIENCE_SECONDS = 10.0
"""How long leaving waits for what is not yet acknowledged."""


class Publisher:
    """A publisher's connection to its broker; use it as a context manager.

    MQTT 5 by default, with stamps as a user property. With ``version="3.1.1"``, or
    ``transport="udp"`` (MQTT-SN, to a gateway), they go before the payload, where FireDeX's
    subscribers find them.
    With ``service_url``, topics that were declared are registered on entering, and the clock's
    offset is estimated; stamps stay by this machine's own clock. ``service_ca`` (PEM) says whom to
    trust if it is at https://.
    """

    def __init__(
        self,
        host: str,
        port: int = 1883,
        *,
        id: str,  # noqa: A002  # its name
        version: str = "5",
        transport: Transport = "tcp",
        stamped: bool = True,
        service_url: str | None = None,
        switch: str | None = None,
        token: str | None = None,
        service_ca: Path | None = None,
    ) -> None:
        if version not in _VERSIONS:
            raise ClientError(f"MQTT version {version!r}; there are {', '.join(_VERSIONS)}")
        self._host, self._port, self._id = host, port, id
        self._version, self._transport, self._stamped = _VERSIONS[version], transport, stamped
        self._service = (
            None if service_url is None else ServiceClient(service_url, token, ca_file=service_ca)
        )
        if self._service is not None and switch is None:
            raise ClientError("to register with the service, name the switch that this is behind")
        self._switch = switch or ""
        self._declared: dict[str, tuple[Topic, Publication]] = {}
        self._streams: dict[str, tuple[bytes, int]] = {}
        self._pending: deque[MQTTMessageInfo] = deque()
        self._unsent: MQTTMessageInfo | None = None
        """The last event at QoS 0, if it may still be on its way to the socket."""
        self._sensor: SnPublishing | None = None
        self.clock_offset: ClockOffset | None = None
        """The service's clock minus ours, once it has been asked."""

    def declare(
        self,
        topic: str,
        *,
        event_bytes: int,
        rate_per_second: float,
        arrivals: Arrivals = "poisson",
    ) -> None:
        """Say beforehand what will be published, so that it can be planned for."""
        self._declared[topic] = (
            Topic(name=topic, event_bytes=event_bytes, stamped=self._stamped),
            Publication(topic=topic, rate_per_second=rate_per_second, arrivals=arrivals),
        )

    def __enter__(self) -> "Publisher":
        if self._service is not None:
            self._register(self._service)
        if self._transport == "udp":
            self._sensor = SnPublishing(self._host, self._port, self._id)
            self._sensor.open()
        else:
            self._client = open_connection(
                self._host, self._port, client_id=self._id, version=self._version
            )
        return self

    def _register(self, service: ServiceClient) -> None:
        try:
            self.clock_offset = service.clock_offset()
        except ServiceAbsent:
            return  # events are published all the same, and their rates measured
        if self._declared:
            publisher = PublisherValue(
                id=self._id,
                switch=self._switch,
                publications=tuple(each for _, each in self._declared.values()),
                transport=self._transport,
            )
            topics = tuple(topic for topic, _ in self._declared.values())
            service.register_publisher(PublisherRegistration(publisher=publisher, topics=topics))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sensor is not None:
            self._sensor.close()
            self._sensor = None
            return
        try:
            left = self._wait_for_pending()
        finally:
            self._client.disconnect()
            self._client.loop_stop()
        if left and kind is None:
            raise NotAcknowledged(left)

    def _wait_for_pending(self) -> int:
        """Until all is acknowledged, or too long; how many are not."""
        until = time.monotonic() + PATIENCE_SECONDS
        if self._unsent is not None and self._client.is_connected():
            self._unsent.wait_for_publish(PATIENCE_SECONDS)
        while self._pending:
            self._pending[0].wait_for_publish(max(until - time.monotonic(), 0.0))
            if not self._pending[0].is_published():
                return sum(not each.is_published() for each in self._pending)
            self._pending.popleft()
        return 0

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> str:
        """Publish one event; return its id (empty if it is not stamped).

        At QoS 1 and 2 it is kept and sent again until the broker has it, across reconnects too;
        over MQTT-SN that is waited for. Leaving says if some were never acknowledged.
        """
        check_topic(topic)
        stamp = self._stamp(topic) if self._stamped else None
        properties = None
        if stamp is not None and self._sensor is None and self._version == _VERSIONS["5"]:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = [stamp.to_property()]
        elif stamp is not None:
            payload = stamp.to_header() + payload
        if self._sensor is not None:
            self._sensor.publish(topic, payload, qos=qos, retain=retain)
        else:
            self._note(self._client.publish(topic, payload, qos, retain, properties), qos)
        return "" if stamp is None else stamp.event_id

    def _note(self, sent: MQTTMessageInfo, qos: int) -> None:
        if qos == 0:
            self._unsent = sent if sent.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else None
            return
        if sent.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            raise TooManyWaiting(f"{len(self._pending)} events wait for {self._host}:{self._port}")
        # Without a connection paho says that there is none, but keeps the event all the same.
        sent.rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        self._pending.append(sent)
        while self._pending and self._pending[0].is_published():
            self._pending.popleft()

    def _stamp(self, topic: str) -> EventStamp:
        origin, sequence = self._streams.get(topic) or (new_origin(), 0)
        self._streams[topic] = (origin, sequence + 1)
        return EventStamp(
            origin=origin, sequence=sequence + 1, published_at_nanoseconds=time.time_ns()
        )


_VERSIONS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}

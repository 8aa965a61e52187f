"""Publishing events that carry their id and time."""

import time
from collections import deque
from types import TracebackType

from paho.mqtt.client import MQTTMessageInfo
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from firedex.wire.mqtt_names import check_topic
from firedex_clients.event_stamp import EventStamp, new_origin
from firedex_clients.mqtt_connection import open_connection

__all__ = ["Publisher"]

PATIENCE_SECONDS = 10.0
"""How long leaving waits for what is not yet acknowledged."""


class Publisher:
    """A publisher's connection to its broker; use it as a context manager."""

    def __init__(self, host: str, port: int = 1883, *, id: str) -> None:  # noqa: A002  # its name
        self._host, self._port, self._id = host, port, id
        self._origin = new_origin()
        self._sequence = 0
        self._pending: deque[MQTTMessageInfo] = deque()

    def __enter__(self) -> "Publisher":
        self._client = open_connection(self._host, self._port, client_id=self._id)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        for pending in self._pending:
            pending.wait_for_publish(max(until - time.monotonic(), 0.0))
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes, *, qos: int = 0) -> str:
        """Publish one event; return its id."""
        self._sequence += 1
        stamp = EventStamp(
            origin=self._origin, sequence=self._sequence, published_at_nanoseconds=time.time_ns()
        )
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = [stamp.to_property()]
        sent = self._client.publish(check_topic(topic), payload, qos=qos, properties=properties)
        self._pending.append(sent)
        while self._pending and self._pending[0].is_published():
            self._pending.popleft()
        return stamp.event_id

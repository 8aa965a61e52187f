"""Reads the retained messages that a broker has for a filter, over a session of its own.

In the main session a retained message cannot be told from a new publication with the retain flag.
Here the flag means "stored before the subscription". The end of the retained messages is known by
the answer to a last request, because a broker answers in order.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from firedex.federation.events import Publication, read_publication
from firedex.transport.broker_link import KEEP_ALIVE_SECONDS, BrokerLevel, BrokerLink
from firedex.transport.mqtt import packets as mqtt
from firedex.transport.mqtt.encoding import PacketType

if TYPE_CHECKING:
    from firedex.federation.broker_session import BrokerSettings

__all__ = ["RetainedReader"]

log = logging.getLogger("firedex.federation")
BATCH = 50
MARK = b"firedex/federation/none"


class RetainedReader:
    """Reads filters in batches; ``found`` gets each retained message."""

    def __init__(
        self,
        settings: "BrokerSettings",
        level: BrokerLevel,
        found: Callable[[Publication, bool], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._level, self._found, self._clock = settings, level, found, clock
        self._waiting: deque[tuple[str, bool]] = deque()
        self._current: list[tuple[str, bool]] = []
        self._link: BrokerLink | None = None
        self._connected = False

    def read(self, name: str, *, written_meanwhile: bool) -> None:
        """Read the retained messages of a filter."""
        self._waiting.append((name, written_meanwhile))
        if self._link is None:
            self._link = BrokerLink(self._settings.address, self, self._level, self._clock)
        elif self._connected and not self._current:
            self._begin()

    def tick(self) -> None:
        """Do what is due by time."""
        if self._link is not None:
            self._link.tick(self._clock())

    def close(self) -> None:
        """End the session."""
        if self._link is not None:
            self._link.close()
            self._link, self._connected = None, False

    def _begin(self) -> None:
        link = self._link
        if link is None or not self._waiting:
            return
        self._current = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        for number, (name, _) in enumerate(self._current, start=1):
            link.send(mqtt.encode_subscribe(number, name.encode(), 0, level=link.level))
        link.send(mqtt.encode_unsubscribe(1000, MARK, level=link.level))

    # -- called by the link --------------------------------------------------------------------

    def connect_packet(self, level: int) -> bytes:
        """Return the CONNECT packet."""
        return mqtt.encode_connect(
            f"{self._settings.client_id}-retained",
            level=level,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
        )

    def broker_connected(self) -> None:
        """Start reading."""
        self._connected = True
        self._begin()

    def packet_received(self, packet: bytes) -> None:
        """Pass retained messages on; continue after the last one of a batch."""
        link, kind = self._link, packet[0] >> 4
        if link is None:
            return
        if kind == PacketType.PUBLISH:
            publication = read_publication(packet, level=link.level)
            if publication.retain and publication.qos == 0:
                self._found(publication, self._written_meanwhile())
        elif kind == PacketType.UNSUBACK and mqtt.read_acknowledgement(packet)[0] == 1000:
            self._current = []
            self.close()  # a new session has no subscriptions left
            if self._waiting:
                self._link = BrokerLink(self._settings.address, self, self._level, self._clock)

    def _written_meanwhile(self) -> bool:
        return all(written for _, written in self._current)

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:  # noqa: ARG002
        """Give up; the main session starts a new reader when it is connected again."""
        log.info("retained messages were not read completely: %s", reason)
        self._link, self._connected = None, False

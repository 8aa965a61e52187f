"""The MQTT packets of one connection, read for the table of filters (`interest`).

The observer never raises on a packet: it ignores what it cannot read, and the broker checks the
packet. It sees only packets that belong to sessions and subscriptions, so events cost nothing.
"""

import logging
from collections.abc import Iterable

from firedex.gateway.flow_table import MAX_QOS
from firedex.gateway.interest import FILTER_BYTES, InterestTable, SessionConnection
from firedex.transport.mqtt.encoding import PacketType
from firedex.transport.mqtt.session_packets import (
    MQTT_31,
    SessionRequest,
    read_acknowledged_codes,
    read_disconnect_expiry,
    read_session_answer,
    read_session_request,
    read_subscribe,
    read_unsubscribe,
)

__all__ = ["MAX_OBSERVED_BYTES", "OBSERVED_UPSTREAM", "ConnectionObserver"]

log = logging.getLogger("firedex.gateway")

MAX_OBSERVED_BYTES = 1_048_576
"""A larger packet is passed on without being read."""
MAX_PENDING_BYTES = 1_048_576
"""Memory for requests of one client that the broker has not acknowledged yet."""
OBSERVED_UPSTREAM = frozenset(
    kind << 4 for kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.DISCONNECT)
)
"""First bytes, without flags, of the packets of a client that are observed after CONNECT."""
ERROR_CODE = 0x80
"""Reason codes from here on are errors."""


class ConnectionObserver:
    """Follows one connection between a client and the broker."""

    def __init__(self, table: InterestTable, connect: bytes) -> None:
        self._table = table
        self._request: SessionRequest | None = None
        self._connection: SessionConnection | None = None
        self._subscribing: dict[int, tuple[tuple[str, int], ...]] = {}
        self._unsubscribing: dict[int, tuple[str, ...]] = {}
        self._pending_bytes = 0
        self._lost_track = self._closed = False
        try:
            self._request = read_session_request(connect)
        except (ValueError, IndexError) as error:
            log.debug("a CONNECT packet is not readable: %s", error)

    def client_sent(self, packet: bytes) -> None:
        """Read a SUBSCRIBE, UNSUBSCRIBE or DISCONNECT of the client; others are ignored."""
        if self._request is None or self._closed:
            return
        kind, level = packet[0] >> 4, self._request.level
        try:
            if kind == PacketType.SUBSCRIBE:
                packet_id, filters = read_subscribe(packet, level=level)
                self._release(name for name, _ in self._subscribing.pop(packet_id, ()))
                if self._admit(name for name, _ in filters):
                    self._subscribing[packet_id] = filters
            elif kind == PacketType.UNSUBSCRIBE:
                packet_id, names = read_unsubscribe(packet, level=level)
                self._release(self._unsubscribing.pop(packet_id, ()))
                if self._admit(names):
                    self._unsubscribing[packet_id] = names
            elif kind == PacketType.DISCONNECT:
                self._end(read_disconnect_expiry(packet, level=level))
        except (ValueError, IndexError) as error:
            log.debug("a packet of a client is not readable: %s", error)

    def lose_track(self) -> None:
        """Record that the client sent a packet that is too large to be read."""
        self._lost_track = True
        if self._connection is not None:
            self._table.lose_track(self._connection)

    def broker_sent(self, packet: bytes) -> None:
        """Read a CONNACK, SUBACK or UNSUBACK of the broker; others are ignored."""
        if self._request is None or self._closed:
            return
        kind, level = packet[0] >> 4, self._request.level
        try:
            if kind == PacketType.SUBACK:
                self._on_suback(*read_acknowledged_codes(packet, level=level))
            elif kind == PacketType.UNSUBACK:
                self._on_unsuback(*read_acknowledged_codes(packet, level=level))
            elif kind == PacketType.CONNACK and self._connection is None:
                self._on_connack(self._request, packet)
        except (ValueError, IndexError) as error:
            log.debug("a packet of the broker is not readable: %s", error)

    def closed(self) -> None:
        """Record that the connection is closed."""
        self._end(None)

    def _admit(self, names: Iterable[str]) -> bool:
        size = sum(len(name) + FILTER_BYTES for name in names)
        if self._pending_bytes + size > MAX_PENDING_BYTES:
            self.lose_track()
            return False
        self._pending_bytes += size
        return True

    def _release(self, names: Iterable[str]) -> None:
        self._pending_bytes -= sum(len(name) + FILTER_BYTES for name in names)

    def _on_connack(self, request: SessionRequest, packet: bytes) -> None:
        answer = read_session_answer(packet, level=request.level)
        if answer.code:
            return
        session_present: bool | None = answer.session_present and not request.clean_start
        if request.level == MQTT_31 and not request.clean_start:
            session_present = None
        expiry = request.expiry_seconds if answer.expiry_seconds is None else answer.expiry_seconds
        self._connection = self._table.connect(
            answer.client_id or request.client_id or None,
            session_present=session_present,
            expiry_seconds=expiry,
        )
        if self._lost_track:
            self._table.lose_track(self._connection)

    def _on_suback(self, packet_id: int, codes: bytes) -> None:
        filters = self._subscribing.pop(packet_id, ())
        self._release(name for name, _ in filters)
        granted = [
            (name, code) for (name, _), code in zip(filters, codes, strict=False) if code <= MAX_QOS
        ]
        if granted and self._connection is not None:
            self._table.grant(self._connection, granted)

    def _on_unsuback(self, packet_id: int, codes: bytes) -> None:
        names = self._unsubscribing.pop(packet_id, ())
        self._release(names)
        if codes:
            pairs = zip(names, codes, strict=False)
            names = tuple(name for name, code in pairs if code < ERROR_CODE)
        if self._connection is not None:
            self._table.revoke(self._connection, names)

    def _end(self, expiry_seconds: int | None) -> None:
        if self._closed:
            return
        self._closed = True
        if self._connection is None:
            return
        unacknowledged = [
            (name, min(qos, MAX_QOS))
            for filters in self._subscribing.values()
            for name, qos in filters
        ]
        self._table.disconnect(
            self._connection, expiry_seconds=expiry_seconds, unacknowledged=unacknowledged
        )

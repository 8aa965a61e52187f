"""The connection of one flow, independent of its transport: settings, filters, and interface."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from firedex.transport.back_off import BackOff

__all__ = [
    "DRAIN_SECONDS",
    "RETRY_QOS_SECONDS",
    "FilterRequest",
    "FlowConnection",
    "FlowListener",
    "FlowSettings",
    "reconnect_back_off",
]

DRAIN_SECONDS = 0.5
"""How long events may still arrive after the broker has acknowledged an unsubscription."""
RETRY_QOS_SECONDS = 1.0
MAX_QOS_RETRIES = 5
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.05, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """Remote and local address of a connection; without ``bind_ports``, any local port is used."""

    host: str
    port: int
    transport: str = "tcp"
    bind_address: str = ""
    bind_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRequest:
    """A filter to subscribe on a connection.

    ``number`` identifies it on every connection. ``retained`` is false for a filter that moves
    from another connection, where the retained messages have arrived already.
    """

    filter: str
    number: int
    qos: int
    retained: bool


class FlowListener(Protocol):
    """The owner of connections, which is notified of their changes in the event loop."""

    def granted(self, connection: "FlowConnection", name: str) -> None:
        """Handle that the broker has acknowledged the subscription to a filter."""

    def lost(self, connection: "FlowConnection") -> None:
        """Handle the loss of a connection and its subscriptions; it reconnects automatically."""

    def refused(self, connection: "FlowConnection", error: Exception) -> None:
        """Handle that a connection or a subscription was refused; it is retried."""

    def arrived(
        self,
        connection: "FlowConnection",
        topic: str,
        payload: bytes | bytearray,
        qos: int,
        retained: bool,
        properties: list[tuple[str, str]] | None,
        numbers: Sequence[int] | None,
    ) -> None:
        """Handle an event; ``properties`` is None if the protocol has none."""


class FlowConnection(ABC):
    """A connection that reconnects automatically, and the filters requested on it.

    A persistent session keeps filters at the broker while the connection is down. A filter that is
    removed meanwhile, or whose unsubscription was not acknowledged, is *stale*: it must be
    unsubscribed after the reconnect, or its events would arrive forever.
    """

    def __init__(
        self, settings: FlowSettings, listener: FlowListener, *, client_id: str, persistent: bool
    ) -> None:
        self.settings = settings
        self.requests: dict[str, FilterRequest] = {}
        self.granted: set[str] = set()
        self.draining: dict[str, int] = {}
        """Unsubscribed filters whose last events may still arrive. The number distinguishes
        repeated unsubscriptions of one filter."""
        self.connects = 0
        self.revision = 0
        """Increases whenever ``requests`` or ``draining`` change."""
        self._listener, self._client_id, self._persistent = listener, client_id, persistent
        self._stale: set[str] = set()
        self._unsubscriptions: dict[int, str] = {}
        self._qos_retries: dict[str, int] = {}

    @abstractmethod
    def open(self) -> None:
        """Start to connect; return at once."""

    @abstractmethod
    def subscribe(self, request: FilterRequest) -> None:
        """Subscribe to a filter, now or when the connection is open."""

    @abstractmethod
    def unsubscribe(self, name: str) -> None:
        """Unsubscribe from a filter, now or when the connection is open."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect for good; ``closed`` becomes true when the socket is closed."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the connection is closed for good."""

    @property
    def unsubscribing(self) -> bool:
        """Whether the broker has yet to acknowledge an unsubscription."""
        return bool(self._unsubscriptions or self._stale)

    @property
    def _remote(self) -> str:
        return f"{self.settings.host}:{self.settings.port}"

    def _add(self, request: FilterRequest) -> None:
        name = request.filter
        self.requests[name] = request
        self.draining.pop(name, None)
        self._stale.discard(name)
        self._qos_retries.pop(name, None)
        for number in [n for n, each in self._unsubscriptions.items() if each == name]:
            del self._unsubscriptions[number]
        self.revision += 1

    def _remove(self, name: str, *, connected: bool) -> bool:
        """Forget a request and return whether it existed."""
        if self.requests.pop(name, None) is None:
            return False
        self.granted.discard(name)
        self.revision += 1
        if not connected and self._persistent and self.connects:
            self._stale.add(name)
        return True

    def _must_retry_qos(self, name: str, granted_qos: int) -> bool:
        """Return whether to subscribe again because a lower QoS was granted than requested.

        The gateway may receive a plan later than the client and grant less until then. A broker
        that never grants more receives a limited number of requests.
        """
        if granted_qos >= self.requests[name].qos:
            self._qos_retries.pop(name, None)
            return False
        retries = self._qos_retries[name] = self._qos_retries.get(name, 0) + 1
        return retries <= MAX_QOS_RETRIES

    def _unsubscription_sent(self, name: str, number: int) -> None:
        self.revision += 1
        self.draining[name] = self.revision
        self._unsubscriptions[number] = name

    def _unsubscription_acknowledged(self, number: int) -> tuple[str, int] | None:
        """Return the arguments with which to call ``_drained`` after ``DRAIN_SECONDS``."""
        name = self._unsubscriptions.pop(number, None)
        revision = None if name is None else self.draining.get(name)
        return None if name is None or revision is None else (name, revision)

    def _drained(self, name: str, revision: int) -> None:
        if self.draining.get(name) == revision:
            del self.draining[name]
            self.revision += 1

    def _take_stale(self) -> list[str]:
        stale, self._stale = sorted(self._stale), set()
        return stale

    def _reset_filters(self) -> None:
        """Mark all filters as not subscribed, because the connection is lost."""
        if self._persistent:
            self._stale.update(self._unsubscriptions.values())
        self._unsubscriptions.clear()
        self.granted.clear()
        self.draining.clear()


def reconnect_back_off() -> BackOff:
    """Return the back-off between attempts to connect."""
    return BackOff(FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS)

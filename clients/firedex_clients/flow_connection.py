"""What every connection of a flow does, whatever its transport."""

import random
from dataclasses import dataclass
from typing import Protocol

__all__ = ["LEAVING_SECONDS", "BackOff", "FlowConnection", "FlowListener", "FlowSettings", "Wanted"]

LEAVING_SECONDS = 0.5
"""After the broker has acknowledged an unsubscribe; what it had queued before may follow."""
FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """Where a flow's connection goes, and from where. Without ports, from any."""

    host: str
    port: int
    transport: str = "tcp"
    bind_address: str = ""
    bind_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter on a connection. ``number`` tells it from others on any connection."""

    filter: str
    number: int
    qos: int
    retained: bool
    """Whether retained messages are wanted with it: not where it only moves."""


class FlowListener(Protocol):
    """Who is told what happens to connections; called in the loop's thread."""

    def granted(self, connection: "FlowConnection", name: str) -> None:
        """A filter is in force."""

    def lost(self, connection: "FlowConnection") -> None:
        """Nothing is in force on a connection any more; it opens again by itself."""

    def refused(self, connection: "FlowConnection", error: Exception) -> None:
        """A connection, or a filter on it, is not taken; it will be tried again."""

    def arrived(
        self,
        connection: "FlowConnection",
        topic: str,
        payload: bytes | bytearray,
        qos: int,
        retained: bool,
        properties: list[tuple[str, str]] | None,
        numbers: list[int] | None,
    ) -> None:
        """An event. ``properties`` is None where the protocol has none."""


class FlowConnection(Protocol):
    """One connection: opens, and opens again, by itself; remembers what is wanted of it."""

    settings: FlowSettings
    wanted: dict[str, Wanted]
    granted: set[str]
    leaving: dict[str, int]
    """Filters that are unsubscribed, but whose last events may still be under way; each time
    with another number, so that the end of one time is not taken for that of the next."""
    connects: int
    revision: int
    """Grows whenever ``wanted`` or ``leaving`` change."""

    def open(self) -> None:
        """Begin; never waits."""

    def want(self, wanted: Wanted) -> None:
        """Subscribe, now or as soon as there is a connection."""

    def unwant(self, name: str) -> None:
        """Unsubscribe."""

    def close(self) -> None:
        """Say goodbye and end for good."""

    @property
    def unsubscribing(self) -> bool:
        """Whether the broker has yet to acknowledge that a filter is wanted no more."""

    @property
    def closed(self) -> bool:
        """Whether all is said and the socket closed."""


class BackOff:
    """How long to wait before trying again: longer each time, never in step with others."""

    def __init__(self, generator: random.Random | None = None) -> None:
        self._generator = generator or random.Random()  # noqa: S311  # jitter, not secrets
        self._failures = 0

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0

    def next_seconds(self) -> float:
        """The wait after one more failure."""
        longest = min(FIRST_WAIT_SECONDS * 2.0**self._failures, LONGEST_WAIT_SECONDS)
        self._failures = min(self._failures + 1, 30)
        return self._generator.uniform(longest / 2, longest)

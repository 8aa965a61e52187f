"""What is published at QoS −1, without a connection: over one connection of the gateway's own."""

from collections import deque
from collections.abc import Callable

from firedex.gateway import broker_packets as broker
from firedex.gateway.broker_link import KEEP_ALIVE_SECONDS
from firedex.gateway.sn_states import Link, published
from firedex.mqtt_sn import messages as m

__all__ = ["AnonymousPublishing"]

MOST_WAITING = 1000
AGAIN_SECONDS = 1.0
"""Between attempts, however many events come meanwhile."""


class AnonymousPublishing:
    """Opens a connection to the broker when there is something to publish, and again if it is lost.

    Nothing is promised at QoS −1: what comes while the broker is away or slow is lost, but for the
    last that came while the connection was being opened.
    """

    def __init__(self, make_link: Callable[["AnonymousPublishing"], Link]) -> None:
        self._make_link = make_link
        self._link: Link | None = None
        self._up = False
        self._again_at = 0.0
        self._waiting: deque[tuple[m.Publish, bytes]] = deque(maxlen=MOST_WAITING)

    def publish(self, message: m.Publish, topic: bytes, now: float) -> None:
        """Now, or as soon as the broker has answered."""
        if self._link is None and now >= self._again_at:
            self._again_at = now + AGAIN_SECONDS
            self._link = self._make_link(self)
        if self._link is None:
            return
        if not self._up:
            self._waiting.append((message, topic))
        elif not self._link.congested:
            self._link.send(published(message, topic, self._link.level))

    def tick(self, now: float) -> None:
        """Keep-alive."""
        if self._link is not None:
            self._link.tick(now)

    def close(self) -> None:
        """The gateway ends."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def hello(self, level: int) -> bytes:
        """The broker gives it a name."""
        return broker.connect(
            "", level=level, clean=True, keep_alive_seconds=KEEP_ALIVE_SECONDS, will=None
        )

    def broker_accepted(self) -> None:
        """Publish what has waited."""
        self._up = True
        while self._waiting and self._link is not None:
            self._link.send(published(*self._waiting.popleft(), self._link.level))

    def broker_said(self, packet: bytes) -> None:
        """Nothing that matters."""

    def broker_lost(self, why: str, *, refused: bool) -> None:  # noqa: ARG002
        """A later event opens another connection."""
        self._link, self._up = None, False
        self._waiting.clear()

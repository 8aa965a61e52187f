"""What a subscriber saw of its flows within a window, for the service. Counting is pure."""

import math
from datetime import UTC, datetime

from firedex.wire import Statistics, TopicCount
from firedex.wire.reports import MOST_TOPICS_IN_A_REPORT
from firedex_clients.event import UNMANAGED_FLOW, Event

__all__ = ["FlowStatistics"]

MOST_DELAYS = 10_000
"""Of one flow in one window; of more, every second, fourth … is kept."""


class _Window:
    __slots__ = (
        "_delays",
        "_keep_every",
        "_seen",
        "_sum",
        "delivered",
        "missing",
        "payload_bytes",
        "version",
    )

    def __init__(self) -> None:
        self.delivered: dict[str, int] = {}
        self.payload_bytes: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        self.version = 0
        self._delays: list[float] = []
        self._sum = 0.0
        self._seen = 0
        self._keep_every = 1

    def count(self, event: Event) -> None:
        topic = event.topic
        self.delivered[topic] = self.delivered.get(topic, 0) + 1
        self.payload_bytes[topic] = self.payload_bytes.get(topic, 0) + len(event.payload)
        self.version = event.configuration_version
        if event.event_id is not None and not event.retained:
            self.missing.setdefault(topic, 0)  # numbered: had any been lost, it would show
        if event.published_at_seconds is None or event.retained:
            return
        delay = event.received_at_seconds - event.published_at_seconds
        self._sum += delay
        self._seen += 1
        if self._seen % self._keep_every == 0:
            self._delays.append(delay)
            if len(self._delays) > MOST_DELAYS:
                self._delays = self._delays[::2]
                self._keep_every *= 2

    def delays(self) -> tuple[float | None, float | None]:
        """Mean and 95th percentile; where clocks disagree so far that they are negative, 0."""
        if not self._seen or not self._delays:
            return None, None
        ordered = sorted(self._delays)
        p95 = ordered[min(math.ceil(0.95 * len(ordered)) - 1, len(ordered) - 1)]
        return max(self._sum / self._seen, 0.0), max(p95, 0.0)


class FlowStatistics:
    """Counted and taken in the loop's thread."""

    def __init__(self, subscriber: str) -> None:
        self._subscriber = subscriber
        self._windows: dict[int, _Window] = {}
        self._since = datetime.now(UTC)

    def count(self, event: Event) -> None:
        """One delivered event."""
        window = self._windows.get(event.flow)
        if window is None:
            window = self._windows[event.flow] = _Window()
        window.count(event)

    def missing(self, flow: int, topic: str, events: int) -> None:
        """So many events of a topic have not come, by their sequence numbers."""
        window = self._windows.setdefault(flow, _Window())
        window.missing[topic] = window.missing.get(topic, 0) + events

    def take(self, clock_offset_seconds: float | None) -> tuple[Statistics, ...]:
        """What was seen since the last time; counting begins anew."""
        now = datetime.now(UTC)
        windows, self._windows = self._windows, {}
        since, self._since = self._since, now
        seconds = (now - since).total_seconds()
        if seconds <= 0:
            return ()
        return tuple(
            self._of_window(flow, window, since, seconds, clock_offset_seconds)
            for flow, window in sorted(windows.items())
            if flow != UNMANAGED_FLOW  # which the service does not know
        )

    def _of_window(
        self, flow: int, window: _Window, since: datetime, seconds: float, offset: float | None
    ) -> Statistics:
        mean, p95 = window.delays()
        return Statistics(
            reporter=self._subscriber,
            subscriber=self._subscriber,
            flow=flow,
            configuration_version=window.version,
            window_start=since,
            window_seconds=seconds,
            topics=tuple(
                TopicCount(
                    topic=topic,
                    delivered_events=window.delivered.get(topic, 0),
                    missing_events=window.missing.get(topic),
                    payload_bytes=window.payload_bytes.get(topic, 0),
                )
                for topic in sorted({*window.delivered, *window.missing})[:MOST_TOPICS_IN_A_REPORT]
            ),
            delay_mean_seconds=mean,
            delay_p95_seconds=p95,
            clock_offset_seconds=offset,
        )

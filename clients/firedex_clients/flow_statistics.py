"""Statistics of the flows of a subscriber within a window, for the service."""

import math
from datetime import UTC, datetime

from firedex.wire import Statistics, TopicCount
from firedex.wire.service_api import MAX_TOPICS_PER_REPORT
from firedex_clients.events import UNMANAGED_FLOW, Event

__all__ = ["FlowStatistics"]

MAX_DELAYS = 10_000
"""Maximum number of delays kept for one flow and window; above it, they are sampled."""


class _Window:
    __slots__ = (
        "_delay_count",
        "_delays",
        "_sample_every",
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
        self._delay_count = 0
        self._sample_every = 1

    def count(self, event: Event) -> None:
        topic = event.topic
        self.delivered[topic] = self.delivered.get(topic, 0) + 1
        self.payload_bytes[topic] = self.payload_bytes.get(topic, 0) + len(event.payload)
        self.version = event.configuration_version
        if event.event_id is not None and not event.retained:
            self.missing.setdefault(topic, 0)  # events with sequence numbers: 0 missing so far
        if event.published_at_seconds is None or event.retained:
            return
        delay = event.received_at_seconds - event.published_at_seconds
        self._sum += delay
        self._delay_count += 1
        if self._delay_count % self._sample_every == 0:
            self._delays.append(delay)
            if len(self._delays) > MAX_DELAYS:
                self._delays = self._delays[::2]
                self._sample_every *= 2

    def delays(self) -> tuple[float | None, float | None]:
        """Return mean and 95th percentile; negative delays (clock differences) become 0."""
        if not self._delay_count or not self._delays:
            return None, None
        ordered = sorted(self._delays)
        p95 = ordered[min(math.ceil(0.95 * len(ordered)) - 1, len(ordered) - 1)]
        return max(self._sum / self._delay_count, 0.0), max(p95, 0.0)


class FlowStatistics:
    """The statistics of all flows since the last report; use it in the event loop only."""

    def __init__(self, subscriber: str) -> None:
        self._subscriber = subscriber
        self._windows: dict[int, _Window] = {}
        self._since = datetime.now(UTC)

    def count(self, event: Event) -> None:
        """Count one delivered event."""
        window = self._windows.get(event.flow)
        if window is None:
            window = self._windows[event.flow] = _Window()
        window.count(event)

    def missing(self, flow: int, topic: str, events: int) -> None:
        """Count events of a topic that are missing according to their sequence numbers."""
        window = self._windows.setdefault(flow, _Window())
        window.missing[topic] = window.missing.get(topic, 0) + events

    def take(self, clock_offset_seconds: float | None) -> tuple[Statistics, ...]:
        """Return the statistics since the last call, and start the next window."""
        now = datetime.now(UTC)
        windows, self._windows = self._windows, {}
        since, self._since = self._since, now
        seconds = (now - since).total_seconds()
        if seconds <= 0:
            return ()
        return tuple(
            self._window_statistics(flow, window, since, seconds, clock_offset_seconds)
            for flow, window in sorted(windows.items())
            if flow != UNMANAGED_FLOW  # the service does not know this flow
        )

    def _window_statistics(
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
                for topic in sorted({*window.delivered, *window.missing})[:MAX_TOPICS_PER_REPORT]
            ),
            delay_mean_seconds=mean,
            delay_p95_seconds=p95,
            clock_offset_seconds=offset,
        )

"""What running parts tell the service: statistics of a flow, and that they are alive."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from firedex.wire.mqtt_names import TopicName
from firedex.wire.values import (
    Count,
    Finite,
    Identifier,
    Moment,
    NonNegative,
    Positive,
    value,
)

__all__ = ["MOST_TOPICS_IN_A_REPORT", "Heartbeat", "Statistics", "TopicCount", "numbered_events"]

MOST_TOPICS_IN_A_REPORT = 10_000
"""Of one flow within one window."""


@value
class TopicCount:
    """Events of one topic within a window: offered (before any drop), delivered, missing.

    ``missing_events``: None if the publisher does not number them, so that nobody can know.
    """

    topic: TopicName
    offered_events: Count | None = None
    delivered_events: Count | None = None
    missing_events: Count | None = None
    payload_bytes: Count = 0


def numbered_events(topics: Iterable[TopicCount]) -> tuple[int, int]:
    """Delivered and missing, of the topics whose events are numbered."""
    known = [(count.delivered_events or 0, count.missing_events) for count in topics]
    counted = [(came, gone) for came, gone in known if gone is not None]
    return sum(came for came, _ in counted), sum(gone for _, gone in counted)


@value
class Statistics:
    """What one party saw of one flow within a window; delays are of delivered events only."""

    reporter: Identifier
    subscriber: Identifier
    flow: Count
    configuration_version: Count
    window_start: Moment
    window_seconds: Positive
    topics: Annotated[tuple[TopicCount, ...], Field(max_length=MOST_TOPICS_IN_A_REPORT)] = ()
    delay_mean_seconds: NonNegative | None = None
    delay_p95_seconds: NonNegative | None = None
    clock_offset_seconds: Finite | None = None


@value
class Heartbeat:
    """A part is alive, since when, and which configuration it follows.

    ``every_seconds``: how often it says so; silent for several times as long, it is not well.
    """

    part: Identifier
    kind: Literal["broker", "gateway", "controller", "service", "client", "switch"]
    site: Identifier = "site"
    started_at: Moment
    sent_at: Moment
    configuration_version: Count = 0
    every_seconds: Positive | None = None

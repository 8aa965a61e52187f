"""Requests and responses of the configuration service, and reports of running processes."""

from collections.abc import Iterable
from datetime import datetime
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import Field

from firedex.wire.flows import Flow
from firedex.wire.incident import Incident
from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.network import Network
from firedex.wire.planning import PlanReport
from firedex.wire.results import Prediction
from firedex.wire.security import MAX_SECURITY_EVENTS, SecurityEvent
from firedex.wire.values import (
    Amount,
    Count,
    Finite,
    Flag,
    Identifier,
    NonNegative,
    Positive,
    PositiveCount,
    Priority,
    Probability,
    Timestamp,
    value,
)
from firedex.wire.workload import (
    PublisherRegistration,
    SizeDistribution,
    SubscriberRegistration,
    Subscription,
)

__all__ = [
    "MAX_TOPICS_PER_REPORT",
    "AcceptedChange",
    "AuditEntry",
    "ConfigurationDifference",
    "ConfigurationRecord",
    "Deviation",
    "ErrorResponse",
    "FlowChange",
    "Health",
    "Heartbeat",
    "HeartbeatRecord",
    "MeasuredRate",
    "NetworkView",
    "PushFailure",
    "ReceivedReports",
    "ServiceStatus",
    "ServiceTime",
    "Statistics",
    "SubscriberLocation",
    "SubscriptionChange",
    "SubscriptionSet",
    "TopicCount",
    "TopicState",
    "WhatIfRequest",
    "WhatIfResult",
    "count_numbered_events",
]


MAX_TOPICS_PER_REPORT = 10_000
"""Maximum number of topics in the statistics of one flow and one window."""


@value
class TopicCount:
    """The events of one topic in a window: offered (before any drop), delivered and missing.

    ``missing_events`` is null if the publisher does not number its events.
    """

    topic: TopicName
    offered_events: Count | None = None
    delivered_events: Count | None = None
    missing_events: Count | None = None
    payload_bytes: Count = 0


def count_numbered_events(topics: Iterable[TopicCount]) -> tuple[int, int]:
    """Return the delivered and the missing events of the topics whose events are numbered."""
    known = [(count.delivered_events or 0, count.missing_events) for count in topics]
    counted = [(came, gone) for came, gone in known if gone is not None]
    return sum(came for came, _ in counted), sum(gone for _, gone in counted)


@value
class Statistics:
    """The events of one flow in a window, as one reporter saw them.

    Delays are those of delivered events only.
    """

    reporter: Identifier
    subscriber: Identifier
    flow: Count
    configuration_version: Count
    window_start: Timestamp
    window_seconds: Positive
    topics: Annotated[tuple[TopicCount, ...], Field(max_length=MAX_TOPICS_PER_REPORT)] = ()
    delay_mean_seconds: NonNegative | None = None
    delay_p95_seconds: NonNegative | None = None
    clock_offset_seconds: Finite | None = None


@value
class Heartbeat:
    """The report of a process that it is running, and the configuration that it uses.

    ``every_seconds``: interval between heartbeats. A process that has sent none for several
    intervals is reported as stale. ``security_events``: those of the last minute; the service shows
    them as alerts, except those of clients.
    """

    part: Identifier
    kind: Literal["broker", "gateway", "controller", "service", "client", "switch"]
    site: Identifier = "site"
    started_at: Timestamp
    sent_at: Timestamp
    configuration_version: Count = 0
    every_seconds: Positive | None = None
    security_events: Annotated[
        tuple[SecurityEvent, ...], Field(max_length=MAX_SECURITY_EVENTS)
    ] = ()


Role = Literal["command", "operator", "gateway", "subscriber", "publisher"]
ConfigurationState = Literal["planned", "active", "replaced", "failed"]


@value
class ErrorProblem:
    """One problem of a request: its path and a message."""

    path: str
    message: str


@value
class ErrorResponse:
    """The reason why a request failed."""

    error: str
    problems: tuple[ErrorProblem, ...] = ()


@value
class AcceptedChange:
    """A change that was stored. It is active with the first configuration that includes it."""

    change: PositiveCount


@value
class ServiceTime:
    """The time on the service's clock, in seconds since the epoch."""

    now_seconds: Amount


@value
class Health:
    """The health of the service, and the reasons if it is not ready.

    ``open``: the service accepts requests without a token.
    """

    status: Literal["ok", "not-ready"]
    reasons: tuple[str, ...] = ()
    open: Flag = False


@value
class MeasuredRate:
    """The rate and event size of a topic, measured by the gateway before any drop.

    ``confidence`` is 1 − (half-width of the rate's 95 % confidence interval ÷ rate), at least 0.
    """

    rate_per_second: Amount
    event_bytes: Amount
    confidence: Probability
    measured_at: datetime


@value
class TopicState:
    """A topic with its declared, measured and planned rates."""

    name: TopicName
    event_bytes: Count
    size_distribution: SizeDistribution
    declared_by: Identifier | None
    declared_rate_per_second: Amount
    measured: MeasuredRate | None = None
    planned_rate_per_second: Amount


@value
class SubscriptionSet:
    """Subscriptions to add; a subscription with the same filter is replaced."""

    subscriptions: Annotated[tuple[Subscription, ...], Field(max_length=10_000)]


@value
class PushFailure:
    """The error of the last push to the controller, and the time until the next attempt."""

    error: str
    since: datetime
    attempts: PositiveCount
    next_attempt_seconds: Amount


@value
class ServiceStatus:
    """The status of the service."""

    name: str
    publishers: Count
    subscribers: Count
    subscriptions: Count
    last_change: Count
    active_version: Count
    active_change: Count
    pending_changes: Count
    pending_since: datetime | None = None
    active_since: datetime | None = None
    achieved_utility_rate: Probability | None = None
    deadlines_missed: Count = 0
    trouble: PushFailure | None = None
    incident: Incident | None = None
    event_streams: Count = 0


@value
class ConfigurationRecord:
    """An entry in the list of configurations: reason, times, durations and state."""

    version: PositiveCount
    state: ConfigurationState
    reason: str
    through_change: Count
    created_at: datetime
    planned_seconds: Amount | None = None
    pushed_seconds: Amount | None = None
    activated_at: datetime | None = None
    error: str | None = None


@value
class FlowChange:
    """A flow that differs between two configurations; null where it does not exist."""

    subscriber: Identifier
    flow: Count
    before: Flow | None = None
    after: Flow | None = None


@value
class SubscriptionChange:
    """A subscription whose class differs, or whose drop rate differs by at least 0.001."""

    subscriber: Identifier
    filter: FilterName
    priority_before: Priority | None = None
    priority_after: Priority | None = None
    drop_rate_before: Probability | None = None
    drop_rate_after: Probability | None = None


@value
class ConfigurationDifference:
    """The differences between two configurations."""

    from_version: Count
    to_version: Count
    flows: tuple[FlowChange, ...]
    subscriptions: tuple[SubscriptionChange, ...]


@value
class WhatIfRequest:
    """A hypothetical change; all parts of it are applied together."""

    subscribers: Annotated[tuple[SubscriberRegistration, ...], Field(max_length=10_000)] = ()
    publishers: Annotated[tuple[PublisherRegistration, ...], Field(max_length=10_000)] = ()
    without_subscribers: tuple[Identifier, ...] = ()
    without_publishers: tuple[Identifier, ...] = ()
    phase: Identifier | None = None
    network: Network | None = None


@value
class WhatIfResult:
    """The plan, the prediction and the differences that a hypothetical change would cause.

    ``present``: the prediction without the change, planned at the same time with the same measured
    rates; null if that cannot be planned. ``difference`` compares with that plan, so that it shows
    effects of the change only. ``present_is_active``: that plan is the active configuration;
    otherwise rates have changed since it was planned, or changes are pending.
    """

    flows: tuple[Flow, ...]
    prediction: Prediction
    report: PlanReport
    difference: ConfigurationDifference
    present: Prediction | None = None
    present_is_active: Flag = False


@value
class Deviation:
    """The delays and the success rate of a flow: measured by the client, and predicted."""

    subscriber: Identifier
    flow: Count
    configuration_version: Count
    reported_at: datetime
    delay_mean_seconds: Amount | None = None
    predicted_delay_mean_seconds: Amount | None = None
    delay_p95_seconds: Amount | None = None
    predicted_delay_p95_seconds: Amount | None = None
    success_rate: Amount | None = None
    predicted_success_rate: Probability | None = None
    comparable: Flag = False


@value
class AuditEntry:
    """One entry of the audit log: actor, action, subject and time of a change."""

    change: PositiveCount
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Any = None


@value
class SubscriberLocation:
    """The switch that a subscriber is attached to; ``seen``: observed by the controller."""

    subscriber: Identifier
    address: IPv4Address
    switch: Identifier
    seen: Flag


@value
class NetworkView:
    """The network that plans are based on, and the locations of subscribers in it."""

    network: Network
    given: Flag
    places: tuple[SubscriberLocation, ...] = ()


@value
class ReceivedReports:
    """The number of reports that were stored."""

    received: Count


@value
class HeartbeatRecord:
    """The last heartbeat of a process, and its age in seconds."""

    heartbeat: Heartbeat
    seconds_ago: Amount

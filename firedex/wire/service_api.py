"""What the service answers, beside configurations: changes, topics, status, differences."""

from datetime import datetime
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import Field

from firedex.wire.flows import Flow
from firedex.wire.incident import Incident
from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.network import Network
from firedex.wire.plan_report import PlanReport
from firedex.wire.prediction import Prediction
from firedex.wire.registrations import PublisherRegistration, SubscriberRegistration
from firedex.wire.reports import Heartbeat
from firedex.wire.values import (
    Amount,
    Count,
    Flag,
    Identifier,
    PositiveCount,
    Priority,
    Probability,
    value,
)
from firedex.wire.workload import SizeDistribution, Subscription

__all__ = [
    "Accepted",
    "AuditEntry",
    "ConfigurationDifference",
    "ConfigurationRecord",
    "Deviation",
    "ErrorAnswer",
    "FlowChange",
    "Health",
    "KeptHeartbeat",
    "MeasuredRate",
    "NetworkView",
    "Now",
    "PushTrouble",
    "Received",
    "ServiceStatus",
    "SubscriberPlace",
    "SubscriptionMove",
    "SubscriptionSet",
    "TopicState",
    "WhatIf",
    "WhatIfAnswer",
]

Role = Literal["command", "operator", "subscriber", "publisher"]
ConfigurationState = Literal["planned", "in-force", "replaced", "failed"]


@value
class ErrorProblem:
    """One thing that is wrong, and where."""

    path: str
    message: str


@value
class ErrorAnswer:
    """Why a request was not granted."""

    error: str
    problems: tuple[ErrorProblem, ...] = ()


@value
class Accepted:
    """A change that is kept; it is in force with the first configuration that includes it."""

    change: PositiveCount


@value
class Now:
    """The service's clock, as seconds since the epoch."""

    now_seconds: Amount


@value
class Health:
    """Whether the service is well, and if not, why; ``open``: it asks for no tokens."""

    status: Literal["ok", "not-ready"]
    reasons: tuple[str, ...] = ()
    open: Flag = False


@value
class MeasuredRate:
    """A topic's rate and size as the gateway counts them before any drop.

    ``confidence`` is 1 − half of the rate's 95 % confidence interval ÷ the rate, at least 0.
    """

    rate_per_second: Amount
    event_bytes: Amount
    confidence: Probability
    measured_at: datetime


@value
class TopicState:
    """A topic: what is declared of it, what is measured, and what plans count with."""

    name: TopicName
    event_bytes: Count
    size_distribution: SizeDistribution
    declared_by: Identifier | None
    declared_rate_per_second: Amount
    measured: MeasuredRate | None = None
    planned_rate_per_second: Amount


@value
class SubscriptionSet:
    """Some of a subscriber's subscriptions, to be added or to replace those of the same filter."""

    subscriptions: Annotated[tuple[Subscription, ...], Field(max_length=10_000)]


@value
class PushTrouble:
    """Why the last plan is not in force, and when it is tried again."""

    error: str
    since: datetime
    attempts: PositiveCount
    next_attempt_seconds: Amount


@value
class ServiceStatus:
    """The service at a glance."""

    name: str
    publishers: Count
    subscribers: Count
    subscriptions: Count
    last_change: Count
    in_force_version: Count
    in_force_change: Count
    pending_changes: Count
    pending_since: datetime | None = None
    in_force_since: datetime | None = None
    achieved_utility_rate: Probability | None = None
    deadlines_missed: Count = 0
    trouble: PushTrouble | None = None
    incident: Incident | None = None
    event_streams: Count = 0


@value
class ConfigurationRecord:
    """A configuration in the list of all: why, when, how long it took, what became of it."""

    version: PositiveCount
    state: ConfigurationState
    reason: str
    through_change: Count
    created_at: datetime
    planned_seconds: Amount | None = None
    pushed_seconds: Amount | None = None
    in_force_at: datetime | None = None
    error: str | None = None


@value
class FlowChange:
    """A flow that is not the same in two configurations; None where it does not exist."""

    subscriber: Identifier
    flow: Count
    before: Flow | None = None
    after: Flow | None = None


@value
class SubscriptionMove:
    """A subscription whose class differs, or whose drop rate by a tenth of a per cent or more."""

    subscriber: Identifier
    filter: FilterName
    priority_before: Priority | None = None
    priority_after: Priority | None = None
    drop_rate_before: Probability | None = None
    drop_rate_after: Probability | None = None


@value
class ConfigurationDifference:
    """What changed from one configuration to another."""

    from_version: Count
    to_version: Count
    flows: tuple[FlowChange, ...]
    subscriptions: tuple[SubscriptionMove, ...]


@value
class WhatIf:
    """A hypothetical change, all of it at once."""

    subscribers: Annotated[tuple[SubscriberRegistration, ...], Field(max_length=10_000)] = ()
    publishers: Annotated[tuple[PublisherRegistration, ...], Field(max_length=10_000)] = ()
    without_subscribers: tuple[Identifier, ...] = ()
    without_publishers: tuple[Identifier, ...] = ()
    phase: Identifier | None = None
    network: Network | None = None


@value
class WhatIfAnswer:
    """What would be planned, what it would be predicted to bring, and what would change.

    ``present``: what is predicted if nothing changes, planned at the same moment with the same
    measured rates (none if that cannot be planned). ``difference`` is against that plan: what rates
    have moved by themselves is no effect of the change. ``present_is_in_force``: that plan is the
    one in force; otherwise rates have moved since it was made, or changes are still to be planned.
    """

    flows: tuple[Flow, ...]
    prediction: Prediction
    report: PlanReport
    difference: ConfigurationDifference
    present: Prediction | None = None
    present_is_in_force: Flag = False


@value
class Deviation:
    """What a client measured on a flow beside what was predicted for it."""

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
    """Who changed what, and when."""

    change: PositiveCount
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Any = None


@value
class SubscriberPlace:
    """The switch that a subscriber is behind; ``seen``: the controller says so."""

    subscriber: Identifier
    address: IPv4Address
    switch: Identifier
    seen: Flag


@value
class NetworkView:
    """The network that plans count with, and where subscribers are in it."""

    network: Network
    given: Flag
    places: tuple[SubscriberPlace, ...] = ()


@value
class Received:
    """How many reports were taken."""

    received: Count


@value
class KeptHeartbeat:
    """A part's last heartbeat, and how long ago it came."""

    heartbeat: Heartbeat
    seconds_ago: Amount

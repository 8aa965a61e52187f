"""What people look at: the site now, each subscription, each switch, and how it has been."""

from datetime import datetime
from typing import Literal

from firedex.wire.desired_network import DesiredSwitch
from firedex.wire.incident import Incident
from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.observed_network import SwitchStatistics, SwitchStatus
from firedex.wire.service_api import PushTrouble, Role
from firedex.wire.utility import Utility
from firedex.wire.values import Amount, Count, Flag, Identifier, Priority, Probability, value
from firedex.wire.workload import QualityOfService

__all__ = [
    "Alert",
    "ClassHistory",
    "ClassNow",
    "ClassShare",
    "DeadlinesNow",
    "LateSubscription",
    "LinkNow",
    "Overview",
    "PartHealth",
    "Severity",
    "SilentSubscription",
    "SubscriptionView",
    "SwitchView",
    "UtilityNow",
    "Visitor",
]

Severity = Literal["urgent", "warning", "note"]
PartKind = Literal["broker", "gateway", "controller", "service", "client", "switch"]
PartState = Literal["well", "stale", "trouble", "unknown"]


@value
class Visitor:
    """Who a token stands for. ``party``: the one subscriber or publisher of such a token."""

    name: str
    role: Role
    party: Identifier | None = None


@value
class Alert:
    """Something that somebody should know, in words.

    ``since`` belongs at the end of the words; whoever shows them knows the reader's time zone.
    """

    severity: Severity
    text: str
    since: datetime | None = None


@value
class UtilityNow:
    """Shares of all utility that could be had; ``timely``: all of a subscription's if its deadline
    is met (by its 95th percentile, where it is measured), none of it otherwise.

    Measured shares are of the ``measured_subscriptions`` that clients reported on lately.
    """

    predicted: Probability
    predicted_timely: Probability
    measured: Probability | None = None
    measured_timely: Probability | None = None
    measured_subscriptions: Count = 0
    subscriptions: Count = 0


@value
class DeadlinesNow:
    """Subscriptions that have a deadline; of the measured ones it is known if they meet it."""

    subscriptions: Count = 0
    measured_subscriptions: Count = 0


@value
class SilentSubscription:
    """Nothing comes of it, though it should; or (``topics``) of these that it matches."""

    subscriber: Identifier
    filter: FilterName
    topics: tuple[TopicName, ...] = ()


@value
class ClassNow:
    """A priority class: what clients measured lately beside what is predicted."""

    priority: Priority
    subscriptions: Count
    offered_events_per_second: Amount
    predicted_delay_mean_seconds: Amount | None
    predicted_delay_p95_seconds: Amount | None
    predicted_success_rate: Probability
    delay_mean_seconds: Amount | None = None
    delay_p95_seconds: Amount | None = None
    success_rate: Probability | None = None


@value
class LateSubscription:
    """A subscription that misses its deadline: as measured, or (``predicted``) as far as can be
    told only by prediction.
    """

    subscriber: Identifier
    filter: FilterName
    priority: Priority
    deadline_seconds: Amount
    predicted_delay_seconds: Amount | None
    delay_p95_seconds: Amount | None = None
    late_by_seconds: Amount | None = None
    predicted: Flag = False
    reason: str | None = None
    reason_since: datetime | None = None


@value
class ClassShare:
    """What one class takes of a link: planned, and counted by the switch if it is known."""

    priority: Priority
    planned_bits_per_second: Amount
    bits_per_second: Amount | None = None


@value
class LinkNow:
    """An outbound port of a switch: to another switch, or (``towards`` none) to its hosts."""

    switch: Identifier
    towards: Identifier | None = None
    bandwidth_bits_per_second: Amount
    full_bandwidth_bits_per_second: Amount
    """As the site was built."""
    reduced_since: datetime | None = None
    classes: tuple[ClassShare, ...] = ()

    @property
    def planned_load(self) -> float:
        """Offered bits over bandwidth."""
        planned = sum(share.planned_bits_per_second for share in self.classes)
        return planned / self.bandwidth_bits_per_second

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.switch} to {self.towards}" if self.towards else self.switch


@value
class PartHealth:
    """A running part, and when it was heard last."""

    part: str
    kind: PartKind
    state: PartState
    seconds_ago: Amount | None = None
    configuration_version: Count | None = None
    detail: str | None = None


@value
class Overview:
    """The site at this moment, for two seconds of somebody's time."""

    name: str
    now_seconds: Amount
    measured_within_seconds: Amount
    """What was reported longer ago, or of another version, is not what is measured now."""
    version: Count
    in_force_since: datetime | None = None
    pending_changes: Count = 0
    incident: Incident | None = None
    trouble: PushTrouble | None = None
    utility: UtilityNow | None = None
    classes: tuple[ClassNow, ...] = ()
    late: tuple[LateSubscription, ...] = ()
    late_in_all: Count = 0
    deadlines: DeadlinesNow | None = None
    predicted_late: Count = 0
    silent: tuple[SilentSubscription, ...] = ()
    links: tuple[LinkNow, ...] = ()
    parts: tuple[PartHealth, ...] = ()
    alerts: tuple[Alert, ...] = ()


@value
class SubscriptionView:
    """A subscription as registered, where it is carried, and what is predicted for it.

    ``flow`` and what follows is none until a configuration with it is in force.
    """

    subscriber: Identifier
    role: Identifier
    switch: Identifier
    filter: FilterName
    utility: Utility
    qos: QualityOfService
    deadline_seconds: Amount | None
    deadline_percentile: Probability = 0.95
    flow: Count | None = None
    priority: Priority | None = None
    drop_rate: Probability | None = None
    predicted_delay_mean_seconds: Amount | None = None
    predicted_delay_p95_seconds: Amount | None = None
    predicted_success_rate: Probability | None = None
    deadline_met: Flag | None = None


@value
class SwitchView:
    """A switch: what is desired of it, what the controller says of it, and its counters."""

    switch: Identifier
    desired: DesiredSwitch | None = None
    status: SwitchStatus | None = None
    statistics: SwitchStatistics | None = None


@value
class ClassHistory:
    """What clients measured of one class within some seconds.

    ``missing_events`` and ``success_rate`` are of numbered events alone; None where publishers do
    not number theirs.
    """

    at: datetime
    seconds: Amount
    priority: Priority
    configuration_version: Count
    delivered_events: Count
    missing_events: Count | None = None
    success_rate: Probability | None = None
    delay_mean_seconds: Amount | None = None
    delay_p95_seconds: Amount | None = None

"""Values that the dashboard shows: status of the site, subscriptions, switches and history."""

from datetime import datetime
from typing import Literal

from firedex.wire.controller_api import DesiredSwitch, SwitchStatistics, SwitchStatus
from firedex.wire.incident import Incident
from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.service_api import PushFailure, Role
from firedex.wire.values import Amount, Count, Flag, Identifier, Priority, Probability, value
from firedex.wire.workload import QualityOfService, Utility

__all__ = [
    "Alert",
    "ClassHistory",
    "ClassShare",
    "ClassStatus",
    "DeadlineStatus",
    "LateSubscription",
    "LinkStatus",
    "Overview",
    "PartHealth",
    "Severity",
    "SilentSubscription",
    "SubscriptionView",
    "SwitchView",
    "TokenIdentity",
    "UtilityStatus",
]

Severity = Literal["urgent", "warning", "note"]
PartKind = Literal["broker", "gateway", "controller", "service", "client", "switch"]
PartState = Literal["healthy", "stale", "trouble", "unknown"]


@value
class TokenIdentity:
    """The identity of a token. ``client``: the subscriber or publisher that the token is for."""

    name: str
    role: Role
    client: Identifier | None = None


@value
class Alert:
    """A message that requires attention.

    ``since`` is shown after the text, in the reader's time zone.
    """

    severity: Severity
    text: str
    since: datetime | None = None


@value
class UtilityStatus:
    """The achieved utility as a fraction of the maximum utility.

    ``timely``: a subscription counts fully if its deadline is met (measured: at the 95th
    percentile), and not at all otherwise. Measured fractions cover the ``measured_subscriptions``
    for which clients sent recent reports.
    """

    predicted: Probability
    predicted_timely: Probability
    measured: Probability | None = None
    measured_timely: Probability | None = None
    measured_subscriptions: Count = 0
    subscriptions: Count = 0


@value
class DeadlineStatus:
    """The number of subscriptions with a deadline, and how many of them are measured."""

    subscriptions: Count = 0
    measured_subscriptions: Count = 0


@value
class SilentSubscription:
    """A subscription that receives no events although events are expected.

    ``topics``: the topics without events, if only some of the matching topics are affected.
    """

    subscriber: Identifier
    filter: FilterName
    topics: tuple[TopicName, ...] = ()


@value
class ClassStatus:
    """A priority class: recent measurements of clients, and the prediction."""

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
    """A subscription that misses its deadline.

    ``predicted``: by prediction only, because there is no measurement.
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
    """The rate of one class on a link: planned, and counted by the switch if available."""

    priority: Priority
    planned_bits_per_second: Amount
    bits_per_second: Amount | None = None


@value
class LinkStatus:
    """An outbound port of a switch: to another switch, or to its hosts (``towards`` is null)."""

    switch: Identifier
    towards: Identifier | None = None
    bandwidth_bits_per_second: Amount
    full_bandwidth_bits_per_second: Amount
    """The bandwidth without any reduction."""
    reduced_since: datetime | None = None
    classes: tuple[ClassShare, ...] = ()

    @property
    def planned_load(self) -> float:
        """Planned bits per second divided by the bandwidth."""
        planned = sum(share.planned_bits_per_second for share in self.classes)
        return planned / self.bandwidth_bits_per_second

    @property
    def name(self) -> str:
        """The name of the port as shown to users."""
        return f"{self.switch} to {self.towards}" if self.towards else self.switch


@value
class PartHealth:
    """The health of a process, and the age of its last heartbeat."""

    part: str
    kind: PartKind
    state: PartState
    seconds_ago: Amount | None = None
    configuration_version: Count | None = None
    detail: str | None = None


@value
class Overview:
    """The current status of the site."""

    name: str
    now_seconds: Amount
    measured_within_seconds: Amount
    """Older reports, and reports for another version, are ignored."""
    version: Count
    active_since: datetime | None = None
    pending_changes: Count = 0
    incident: Incident | None = None
    trouble: PushFailure | None = None
    utility: UtilityStatus | None = None
    classes: tuple[ClassStatus, ...] = ()
    late: tuple[LateSubscription, ...] = ()
    late_in_all: Count = 0
    deadlines: DeadlineStatus | None = None
    predicted_late: Count = 0
    silent: tuple[SilentSubscription, ...] = ()
    links: tuple[LinkStatus, ...] = ()
    parts: tuple[PartHealth, ...] = ()
    alerts: tuple[Alert, ...] = ()


@value
class SubscriptionView:
    """A subscription as registered, its flow, and its prediction.

    ``flow`` and the fields after it are null until an active configuration contains the
    subscription.
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
    """A switch: its desired state, its status and its counters."""

    switch: Identifier
    desired: DesiredSwitch | None = None
    status: SwitchStatus | None = None
    statistics: SwitchStatistics | None = None


@value
class ClassHistory:
    """The measurements of one class by clients in a period of ``seconds``.

    ``missing_events`` and ``success_rate`` cover numbered events only; null if publishers do not
    number their events.
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

"""Results of the queueing model and of the simulation, per subscription, class and queue.

A delay is ``None`` if it does not exist; ``reason`` then explains why. In simulation results, each
estimate comes with the half-width of its 95 % confidence interval.
"""

from typing import Literal

from firedex.wire.mqtt_names import FilterName
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

__all__ = [
    "ClassPrediction",
    "Method",
    "ModelName",
    "NotificationCounts",
    "Prediction",
    "QueueKind",
    "QueuePrediction",
    "SimulatedClass",
    "SimulatedQueue",
    "SimulatedSubscription",
    "SimulatedSwitch",
    "SimulationReport",
    "SubscriptionPrediction",
    "SwitchPrediction",
]

ModelName = Literal["fan-out", "independent"]
QueueKind = Literal["switch-uplink", "broker-in", "broker-out", "switch-in", "switch-out"]
Method = Literal["queueing", "fluid", "unstable", "nothing-delivered", "nothing-offered"]


@value
class SubscriptionPrediction:
    """The prediction for one subscription.

    ``method``: ``queueing`` (all queues on the path are stable), ``fluid`` (a finite buffer
    overflows, so the figures are approximate), ``unstable`` (an infinite queue grows without
    bound), ``nothing-delivered`` or ``nothing-offered``.
    """

    subscriber: Identifier
    filter: FilterName
    flow: Count
    priority: Priority
    drop_rate: Probability
    offered_events_per_second: Amount
    success_rate: Probability
    delay_mean_seconds: Amount | None
    delay_p50_seconds: Amount | None
    delay_p95_seconds: Amount | None
    delay_p99_seconds: Amount | None
    utility: Amount
    maximum_utility: Amount
    timely_fraction: Probability
    deadline_seconds: Amount | None
    deadline_met: Flag | None
    method: Method
    reason: str | None = None


@value
class ClassPrediction:
    """A priority class; success is weighted by offered rate, delay by delivered rate."""

    priority: Priority
    subscriptions: Count
    offered_events_per_second: Amount
    success_rate: Probability
    delay_mean_seconds: Amount | None
    delay_p95_seconds: Amount | None


@value
class SwitchPrediction:
    """A switch and the utilization of its busiest outbound port."""

    id: Identifier
    utilization: Amount


@value
class QueuePrediction:
    """A queue of the model: its utilization, and the reason if it is unstable or overflows."""

    id: str
    kind: QueueKind
    switch: Identifier | None = None
    utilization: Amount
    stable: Flag
    reason: str | None = None


@value
class Prediction:
    """The complete prediction for one assignment."""

    model: ModelName
    subscriptions: tuple[SubscriptionPrediction, ...]
    classes: tuple[ClassPrediction, ...]
    switches: tuple[SwitchPrediction, ...]
    queues: tuple[QueuePrediction, ...]
    first_to_saturate: str
    utility: Amount
    maximum_utility: Amount
    achieved_utility_rate: Probability
    achieved_utility_rate_per_subscription: Probability
    timely_utility: Amount
    deadlines_missed: Count


@value
class SimulatedSubscription:
    """The simulated results of one subscription; a figure that does not exist is null."""

    subscriber: Identifier
    filter: FilterName
    flow: Count
    priority: Priority
    drop_rate: Probability
    success_rate: Probability | None
    success_rate_half_width: Amount | None
    delay_mean_seconds: Amount | None
    delay_mean_half_width_seconds: Amount | None
    delay_p50_seconds: Amount | None
    delay_p95_seconds: Amount | None
    delay_p95_half_width_seconds: Amount | None
    delay_p99_seconds: Amount | None
    timely_fraction: Probability | None


@value
class SimulatedClass:
    """The simulated results of one class."""

    priority: Priority
    subscriptions: Count
    success_rate: Probability | None
    success_rate_half_width: Amount | None
    delay_mean_seconds: Amount | None
    delay_mean_half_width_seconds: Amount | None
    delay_p50_seconds: Amount | None
    delay_p95_seconds: Amount | None
    delay_p95_half_width_seconds: Amount | None
    delay_p99_seconds: Amount | None
    timely_fraction: Probability | None


@value
class SimulatedSwitch:
    """A switch and the load offered to its busiest outbound port."""

    id: Identifier
    utilization: Amount


@value
class SimulatedQueue:
    """An outbound port: the offered load, and the mean queue length seen by an arriving packet."""

    id: str
    utilization: Amount
    waiting_packets: Amount


@value
class NotificationCounts:
    """The number of notifications by outcome."""

    delivered: Count
    dropped_at_gateway: Count
    dropped_at_meter: Count
    dropped_at_buffer: Count
    lost_on_link: Count


@value
class SimulationReport:
    """The results of all replications of a simulation."""

    replications: PositiveCount
    publications: Count
    notifications: NotificationCounts
    subscriptions: tuple[SimulatedSubscription, ...]
    classes: tuple[SimulatedClass, ...]
    switches: tuple[SimulatedSwitch, ...]
    queues: tuple[SimulatedQueue, ...]
    utility: Amount
    maximum_utility: Amount
    achieved_utility_rate: Probability
    achieved_utility_rate_per_subscription: Probability
    timely_utility: Amount

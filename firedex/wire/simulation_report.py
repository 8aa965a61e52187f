"""What a simulation measured: every figure with half the width of its 95 % confidence interval."""

from firedex.wire.mqtt_names import FilterName
from firedex.wire.values import (
    Amount,
    Count,
    Identifier,
    PositiveCount,
    Priority,
    Probability,
    value,
)

__all__ = [
    "NotificationCounts",
    "SimulatedClass",
    "SimulatedQueue",
    "SimulatedSubscription",
    "SimulatedSwitch",
    "SimulationReport",
]


@value
class SimulatedSubscription:
    """What one subscription got; figures that do not exist are none."""

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
    """What one class got."""

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
    """A switch and the load that was offered to its busiest outbound port."""

    id: Identifier
    utilization: Amount


@value
class SimulatedQueue:
    """An outbound port: the load offered, and how many packets an arrival finds waiting."""

    id: str
    utilization: Amount
    waiting_packets: Amount


@value
class NotificationCounts:
    """What became of all notifications; none is unaccounted for."""

    delivered: Count
    dropped_at_gateway: Count
    dropped_at_meter: Count
    dropped_at_buffer: Count
    lost_on_link: Count


@value
class SimulationReport:
    """Everything that the replications came to."""

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

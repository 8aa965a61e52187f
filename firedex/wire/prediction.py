"""What the model says each subscription, class and queue will get.

A delay is ``None`` where there is none to state; ``reason`` then says why.
"""

from typing import Literal

from firedex.wire.mqtt_names import FilterName
from firedex.wire.values import (
    Amount,
    Count,
    Flag,
    Identifier,
    Priority,
    Probability,
    value,
)

__all__ = [
    "ClassPrediction",
    "Method",
    "ModelName",
    "Prediction",
    "QueueKind",
    "QueuePrediction",
    "SubscriptionPrediction",
    "SwitchPrediction",
]

ModelName = Literal["fan-out", "independent"]
QueueKind = Literal["switch-uplink", "broker-in", "broker-out", "switch-in", "switch-out"]
Method = Literal["queueing", "fluid", "unstable", "nothing-delivered", "nothing-offered"]


@value
class SubscriptionPrediction:
    """What one subscription will get.

    ``method``: ``queueing`` (stable queues all the way), ``fluid`` (a finite buffer overflows: a
    coarse figure), ``unstable`` (an endless queue grows without bound),
    ``nothing-delivered``, ``nothing-offered``.
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
    """A priority class: success weighted by offered rate, delay by delivered rate."""

    priority: Priority
    subscriptions: Count
    offered_events_per_second: Amount
    success_rate: Probability
    delay_mean_seconds: Amount | None
    delay_p95_seconds: Amount | None


@value
class SwitchPrediction:
    """A switch and the load of its busiest outbound port."""

    id: Identifier
    utilization: Amount


@value
class QueuePrediction:
    """Any queue of the model: offered load over capacity, and what is wrong with it if anything."""

    id: str
    kind: QueueKind
    switch: Identifier | None = None
    utilization: Amount
    stable: Flag
    reason: str | None = None


@value
class Prediction:
    """Everything the model says of one assignment."""

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

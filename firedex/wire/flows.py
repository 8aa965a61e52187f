"""Flows, their endpoints in the network, and the configuration that contains them."""

from datetime import datetime
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import Field

from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.results import Prediction
from firedex.wire.values import (
    Amount,
    Identifier,
    Positive,
    PositiveCount,
    Priority,
    Probability,
    value,
)
from firedex.wire.workload import QualityOfService, Transport

__all__ = [
    "Assignment",
    "Configuration",
    "EnforcementPoint",
    "Flow",
    "FlowEndpoints",
    "FlowNumber",
    "PlannedTopicRate",
    "Port",
]

EnforcementPoint = Literal["gateway", "meter"]
FlowNumber = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Port = Annotated[int, Field(strict=True, ge=1, le=65_535)]


@value
class Assignment:
    """The flow of one subscription (Ψ), with the flow's priority (Φ) and drop rate (Ω).

    Each subscriber's flows are numbered from 0. Priority 0 is the highest.
    """

    subscriber: Identifier
    filter: FilterName
    flow: FlowNumber
    priority: Priority
    drop_rate: Probability = 0.0
    enforced_at: EnforcementPoint = "gateway"


@value
class FlowEndpoints:
    """The addresses and ports by which the network identifies a flow.

    A flow has two local ports and uses them alternately, because a port cannot be bound again
    immediately after it was closed.
    """

    transport: Transport
    subscriber_address: IPv4Address
    subscriber_ports: tuple[Port, Port]
    gateway_address: IPv4Address
    gateway_port: Port


@value
class Flow:
    """One connection of a subscriber: its priority, drop rate, filters and endpoints.

    ``qos`` is the highest QoS of the flow. ``filter_qos`` has the QoS of each filter, in the same
    order; if it is empty, ``qos`` applies to all of them.
    """

    subscriber: Identifier
    flow: FlowNumber
    priority: Priority
    drop_rate: Probability
    enforced_at: EnforcementPoint = "gateway"
    qos: QualityOfService = 0
    filters: tuple[FilterName, ...] = ()
    filter_qos: tuple[QualityOfService, ...] = ()
    endpoints: FlowEndpoints | None = None


@value
class PlannedTopicRate:
    """The rate of a topic that the plan assumes, in events per second before any drop."""

    topic: TopicName
    rate_per_second: Amount


@value
class Configuration:
    """A numbered plan: all flows, and the prediction for each subscription.

    ``topic_rates`` are the rates at which the gateway polices topics; null if the plan has none.
    They are not part of responses to subscribers. ``unplanned_bits_per_second`` limits all
    connections together that are not in the plan.
    """

    version: PositiveCount
    broker: Identifier
    site: Identifier = "site"
    created_at: datetime
    reason: str
    flows: tuple[Flow, ...]
    prediction: Prediction | None = None
    topic_rates: tuple[PlannedTopicRate, ...] | None = None
    unplanned_bits_per_second: Positive | None = None

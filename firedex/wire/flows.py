"""Flows, their place in the network, and the configuration that is made of them."""

from datetime import datetime
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import Field

from firedex.wire.mqtt_names import FilterName
from firedex.wire.prediction import Prediction
from firedex.wire.values import Identifier, PositiveCount, Priority, Probability, value
from firedex.wire.workload import QualityOfService, Transport

__all__ = [
    "Assignment",
    "Configuration",
    "EnforcementPoint",
    "Flow",
    "FlowEndpoints",
    "FlowNumber",
    "Port",
]

EnforcementPoint = Literal["gateway", "meter"]
FlowNumber = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Port = Annotated[int, Field(strict=True, ge=1, le=65_535)]


@value
class Assignment:
    """Where one subscription goes: its flow (Ψ), the flow's priority (Φ) and drop rate (Ω).

    Flows are numbered for each subscriber; priority 0 is the highest.
    """

    subscriber: Identifier
    filter: FilterName
    flow: FlowNumber
    priority: Priority
    drop_rate: Probability = 0.0
    enforced_at: EnforcementPoint = "gateway"


@value
class FlowEndpoints:
    """The addresses and ports by which the network recognises a flow.

    A flow has two local ports that it uses in turn, since a port cannot be bound again right after
    a close.
    """

    transport: Transport
    subscriber_address: IPv4Address
    subscriber_ports: tuple[Port, Port]
    gateway_address: IPv4Address
    gateway_port: Port


@value
class Flow:
    """One connection of a subscriber, with what the network does to it."""

    subscriber: Identifier
    flow: FlowNumber
    priority: Priority
    drop_rate: Probability
    enforced_at: EnforcementPoint = "gateway"
    qos: QualityOfService = 0
    filters: tuple[FilterName, ...] = ()
    endpoints: FlowEndpoints | None = None


@value
class Configuration:
    """A numbered plan: every flow, and what each subscription is predicted to get."""

    version: PositiveCount
    broker: Identifier
    site: Identifier = "site"
    created_at: datetime
    reason: str
    flows: tuple[Flow, ...]
    prediction: Prediction | None = None

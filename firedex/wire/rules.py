"""What the service asks of the controller: the whole desired state of every switch."""

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import Field

from firedex.wire.flows import Port
from firedex.wire.values import Identifier, Positive, PositiveCount, Priority, value
from firedex.wire.workload import Transport

__all__ = ["Meter", "Queue", "Rule", "SwitchRules"]

Dscp = Annotated[int, Field(strict=True, ge=0, le=63)]


@value
class Queue:
    """One priority class of a port."""

    priority: Priority
    dscp: Dscp
    guaranteed_bits_per_second: Positive
    limit_packets: PositiveCount


@value
class Meter:
    """A limit in packets per second with an explicit burst; without one, meters admit too much."""

    id: PositiveCount
    packets_per_second: Positive
    burst_packets: PositiveCount


@value
class Rule:
    """Which packets, into which class, through which meter, towards whom."""

    transport: Transport
    source_address: IPv4Address
    source_port: Port
    destination_address: IPv4Address
    destination_port: Port
    priority: Priority
    dscp: Dscp
    meter: PositiveCount | None
    towards: Identifier


@value
class SwitchRules:
    """The desired state of one switch; whatever else FireDeX installed there goes."""

    switch: Identifier
    configuration_version: PositiveCount
    bandwidth_bits_per_second: Positive
    queues: tuple[Queue, ...]
    meters: tuple[Meter, ...] = ()
    rules: tuple[Rule, ...] = ()

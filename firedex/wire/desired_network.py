"""What the service asks of the controller: the whole desired state, and what became of it."""

from ipaddress import IPv4Address

from firedex.wire.flows import FlowEndpoints, FlowNumber, Port
from firedex.wire.values import (
    Count,
    Flag,
    Identifier,
    NonNegative,
    Positive,
    PositiveCount,
    Priority,
    value,
)

__all__ = [
    "ClassQueue",
    "ControlEndpoint",
    "DesiredNetwork",
    "DesiredSwitch",
    "FlowRule",
    "NetworkChange",
    "PacketLimit",
    "ShapedPort",
    "SwitchChange",
]


@value
class ClassQueue:
    """One priority class of a port: what it is served whatever the others want, and its buffer."""

    priority: Priority
    guaranteed_bits_per_second: Positive
    limit_packets: PositiveCount


@value
class ShapedPort:
    """A port with its bandwidth split into classes.

    ``towards`` is the neighbouring switch; none is the port that leads to the switch's own hosts.
    """

    towards: Identifier | None = None
    bandwidth_bits_per_second: Positive
    classes: tuple[ClassQueue, ...]


@value
class PacketLimit:
    """A limit in packets per second with an explicit burst; without one, meters admit too much."""

    packets_per_second: Positive
    burst_packets: PositiveCount


@value
class FlowRule:
    """One flow of a subscriber: which packets, into which class, at most how many."""

    subscriber: Identifier
    flow: FlowNumber
    priority: Priority
    endpoints: FlowEndpoints
    limit: PacketLimit


@value
class DesiredSwitch:
    """The desired state of one switch; whatever else FireDeX installed there goes."""

    switch: Identifier
    ports: tuple[ShapedPort, ...] = ()
    flows: tuple[FlowRule, ...] = ()


@value
class ControlEndpoint:
    """Where one of FireDeX's own parts is reached; its traffic rides in the highest class."""

    address: IPv4Address
    port: Port


@value
class DesiredNetwork:
    """The desired state of all switches; one that is not listed carries no FireDeX rules.

    ``control_bits_per_second`` bounds what the control endpoints may take of the highest class.
    """

    configuration_version: PositiveCount
    switches: tuple[DesiredSwitch, ...]
    control: tuple[ControlEndpoint, ...] = ()
    control_bits_per_second: Positive = 200_000.0


@value
class SwitchChange:
    """What bringing one switch to its desired state took."""

    switch: Identifier
    flows_added: Count = 0
    flows_modified: Count = 0
    flows_removed: Count = 0
    flows_unchanged: Count = 0
    meters_added: Count = 0
    meters_modified: Count = 0
    meters_removed: Count = 0
    ports_shaped: Count = 0
    bundled: Flag = False
    seconds: NonNegative = 0.0


@value
class NetworkChange:
    """The answer to a desired network, after the last barrier of the last switch."""

    configuration_version: PositiveCount
    seconds: NonNegative
    switches: tuple[SwitchChange, ...]

"""Messages between the service and the controller.

The service sends the complete desired state of the network; the controller answers with what it
changed, and reports the topology and the counters of switches.
"""

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import Field

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
    "FlowCounters",
    "FlowRule",
    "HostLocation",
    "NetworkChange",
    "NetworkStatistics",
    "NetworkTopology",
    "ObservedLink",
    "PacketLimit",
    "PortCounters",
    "QueueCounters",
    "ShapedPort",
    "SwitchChange",
    "SwitchPort",
    "SwitchStatistics",
    "SwitchStatus",
]


@value
class ClassQueue:
    """The queue of one priority class on a port: its guaranteed rate and its buffer limit."""

    priority: Priority
    guaranteed_bits_per_second: Positive
    limit_packets: PositiveCount


@value
class ShapedPort:
    """A port whose bandwidth is divided among priority classes.

    ``towards`` is the neighbouring switch. It is null for the port to the switch's own hosts.
    """

    towards: Identifier | None = None
    bandwidth_bits_per_second: Positive
    classes: tuple[ClassQueue, ...]


@value
class PacketLimit:
    """A rate limit in packets per second with an explicit burst.

    Without an explicit burst, a meter admits more packets than its rate.
    """

    packets_per_second: Positive
    burst_packets: PositiveCount


@value
class FlowRule:
    """The rule for one flow: the packets it matches, their class, and their rate limit."""

    subscriber: Identifier
    flow: FlowNumber
    priority: Priority
    endpoints: FlowEndpoints
    limit: PacketLimit


@value
class DesiredSwitch:
    """The desired state of one switch; all other FireDeX rules on it are removed."""

    switch: Identifier
    ports: tuple[ShapedPort, ...] = ()
    flows: tuple[FlowRule, ...] = ()


@value
class ControlEndpoint:
    """The address of a FireDeX process; its traffic uses the highest class."""

    address: IPv4Address
    port: Port


@value
class DesiredNetwork:
    """The desired state of all switches; a switch that is not listed gets no FireDeX rules.

    ``control_bits_per_second`` limits the rate of the control endpoints in the highest class.
    """

    configuration_version: PositiveCount
    switches: tuple[DesiredSwitch, ...]
    control: tuple[ControlEndpoint, ...] = ()
    control_bits_per_second: Positive = 200_000.0


@value
class SwitchChange:
    """The changes that were made to bring one switch to its desired state."""

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
    """The response to a desired network, sent after the last barrier of the last switch."""

    configuration_version: PositiveCount
    seconds: NonNegative
    switches: tuple[SwitchChange, ...]


HardwareAddress = Annotated[
    str, Field(strict=True, pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$", max_length=17)
]
PortName = Annotated[str, Field(strict=True, min_length=1, max_length=64)]


@value
class SwitchPort:
    """A port of a switch."""

    number: Count
    name: PortName
    up: Flag


@value
class SwitchStatus:
    """A switch that the controller knows. ``settled``: its rules are the desired rules."""

    switch: Identifier
    datapath_id: Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{16}$")]
    connected: Flag
    settled: Flag
    ports: tuple[SwitchPort, ...] = ()
    trouble: str | None = None


@value
class ObservedLink:
    """One direction of a link between two switches."""

    from_: Annotated[Identifier, Field(alias="from")]
    from_port: PortName
    to: Identifier
    to_port: PortName


@value
class HostLocation:
    """The switch port on which a host was last seen."""

    hardware_address: HardwareAddress
    address: IPv4Address | None
    switch: Identifier
    port: PortName


@value
class NetworkTopology:
    """The switches, the links between them, and the hosts."""

    switches: tuple[SwitchStatus, ...] = ()
    links: tuple[ObservedLink, ...] = ()
    hosts: tuple[HostLocation, ...] = ()


@value
class FlowCounters:
    """The packets of one flow that a switch forwarded, and those that its meter dropped."""

    subscriber: Identifier
    flow: FlowNumber
    packets: Count
    bytes: Count
    metered_out_packets: Count = 0
    packets_per_second: NonNegative = 0.0
    bits_per_second: NonNegative = 0.0


@value
class QueueCounters:
    """The counters of one class on one port."""

    port: PortName
    priority: Priority
    packets: Count
    bytes: Count
    dropped_packets: Count = 0
    backlog_packets: Count = 0
    packets_per_second: NonNegative = 0.0
    bits_per_second: NonNegative = 0.0


@value
class PortCounters:
    """The counters of one port, in both directions."""

    port: PortName
    sent_packets: Count
    sent_bytes: Count
    received_packets: Count
    received_bytes: Count
    dropped_packets: Count = 0
    sent_bits_per_second: NonNegative = 0.0
    received_bits_per_second: NonNegative = 0.0


@value
class SwitchStatistics:
    """The counters of one switch; rates are over the last ``window_seconds``."""

    switch: Identifier
    window_seconds: Positive
    flows: tuple[FlowCounters, ...] = ()
    queues: tuple[QueueCounters, ...] = ()
    ports: tuple[PortCounters, ...] = ()


@value
class NetworkStatistics:
    """The counters of all switches."""

    switches: tuple[SwitchStatistics, ...] = ()

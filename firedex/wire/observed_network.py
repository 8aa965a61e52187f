"""What the controller sees of the network: who is where, and what the counters say."""

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import Field

from firedex.wire.flows import FlowNumber
from firedex.wire.values import Count, Flag, Identifier, NonNegative, Positive, Priority, value

__all__ = [
    "FlowCounters",
    "HostPlace",
    "NetworkStatistics",
    "NetworkTopology",
    "ObservedLink",
    "PortCounters",
    "QueueCounters",
    "SwitchPort",
    "SwitchStatistics",
    "SwitchStatus",
]

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
    """A switch the controller knows of. ``settled``: its rules are the desired ones."""

    switch: Identifier
    datapath_id: Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{16}$")]
    connected: Flag
    settled: Flag
    ports: tuple[SwitchPort, ...] = ()
    trouble: str | None = None


@value
class ObservedLink:
    """A link between two switches, one direction."""

    from_: Annotated[Identifier, Field(alias="from")]
    from_port: PortName
    to: Identifier
    to_port: PortName


@value
class HostPlace:
    """Where a host was last heard."""

    hardware_address: HardwareAddress
    address: IPv4Address | None
    switch: Identifier
    port: PortName


@value
class NetworkTopology:
    """Switches, the links between them, and hosts."""

    switches: tuple[SwitchStatus, ...] = ()
    links: tuple[ObservedLink, ...] = ()
    hosts: tuple[HostPlace, ...] = ()


@value
class FlowCounters:
    """What one flow of a subscriber sent through a switch, and what its meter took away."""

    subscriber: Identifier
    flow: FlowNumber
    packets: Count
    bytes: Count
    metered_out_packets: Count = 0
    packets_per_second: NonNegative = 0.0
    bits_per_second: NonNegative = 0.0


@value
class QueueCounters:
    """One class of one port."""

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
    """One port, both ways."""

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

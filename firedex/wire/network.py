"""Switches, links and brokers, and what a switch says it can do."""

from typing import Annotated, Literal

from pydantic import Field

from firedex.wire.mqtt_names import TopicName
from firedex.wire.values import (
    Flag,
    Identifier,
    NonNegative,
    Positive,
    PositiveCount,
    value,
)

__all__ = [
    "Broker",
    "Buffer",
    "ForwardedTopic",
    "Link",
    "Network",
    "Switch",
    "SwitchCapabilities",
]

ClassCount = Annotated[int, Field(strict=True, ge=1, le=64)]
ErrorRate = Annotated[float, Field(strict=True, ge=0, lt=1)]


@value
class Buffer:
    """What a full queue does.

    ``shared-push-out``: ``packets`` in all classes together, an arrival evicts the lowest class.
    ``per-class-head-drop``: ``packets`` for each class, the oldest is dropped (as in OVS).
    """

    kind: Literal["shared-push-out", "per-class-head-drop"]
    packets: PositiveCount


@value
class Switch:
    """A switch and its outbound bandwidth, shared by the subscribers behind it.

    ``burst_bytes``: what an idle shaper (HTB) lets pass at once, the packet itself included; 0 is a
    plain link. ``guaranteed_bits_per_second``: what every class's leaf is served before any
    borrower, whatever its priority. Without ``buffer`` queues are endless.
    """

    id: Identifier
    managed: Flag = True
    bandwidth_bits_per_second: Positive
    in_packets_per_second: Positive | None = None
    priorities: ClassCount = 8
    buffer: Buffer | None = None
    error_rate: ErrorRate = 0.0
    propagation_seconds: NonNegative = 0.0
    burst_bytes: NonNegative = 0.0
    guaranteed_bits_per_second: NonNegative = 0.0


@value
class Link:
    """A link between two switches; events cross it from the broker, publications to it."""

    from_: Annotated[Identifier, Field(alias="from")]
    to: Identifier
    bandwidth_bits_per_second: Positive | None = None


@value
class ForwardedTopic:
    """The rate at which another broker forwards one topic's events to this one."""

    from_broker: Identifier
    topic: TopicName
    rate_per_second: NonNegative


@value
class Broker:
    """A broker: how fast it takes events in and hands them out, and where it is attached."""

    id: Identifier
    in_events_per_second: Positive | None = None
    out_events_per_second: Positive | None = None
    switch: Identifier | None = None
    site: Identifier = "site"
    forwarded: tuple[ForwardedTopic, ...] = ()


@value
class Network:
    """The switches of a site, the links between them and its broker."""

    switches: tuple[Switch, ...]
    links: tuple[Link, ...] = ()
    broker: Broker


@value
class SwitchCapabilities:
    """What a switch reports that it can do; plans stay within it."""

    switch: Identifier
    datapath: Literal["userspace", "kernel"]
    priorities: ClassCount
    meters: Flag
    meter_packets_per_second: Flag
    bundles: Flag

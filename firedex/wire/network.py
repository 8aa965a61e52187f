"""Switches, links and brokers, the capabilities of switches, and paths through the network."""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
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
    "missing_path_reason",
    "port_bandwidths",
    "switches_on_path",
]

ClassCount = Annotated[int, Field(strict=True, ge=1, le=64)]
ErrorRate = Annotated[float, Field(strict=True, ge=0, lt=1)]


@value
class Buffer:
    """The size of a buffer, and which packet is dropped when it is full.

    ``shared-push-out``: all classes share ``packets``; an arrival evicts a packet of the lowest
    class. ``per-class-head-drop``: each class has ``packets``; the oldest packet of the class is
    dropped (as in Open vSwitch).
    """

    kind: Literal["shared-push-out", "per-class-head-drop"]
    packets: PositiveCount


@value
class Switch:
    """A switch and its outbound bandwidth, shared by the subscribers behind it.

    ``burst_bytes``: bytes that an idle shaper (HTB) sends at once, including the packet itself; 0
    for a link without a shaper. ``guaranteed_bits_per_second``: the rate at which every class is
    served before any class borrows, whatever its priority. Without ``buffer`` queues are infinite.
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
    """A link between two switches, used in both directions."""

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
    """A broker: its rates for inbound and outbound events, and the switch it is attached to."""

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
    """The capabilities that a switch reports; plans do not exceed them."""

    switch: Identifier
    datapath: Literal["userspace", "kernel"]
    priorities: ClassCount
    meters: Flag
    meter_packets_per_second: Flag
    bundles: Flag


Links = Sequence[tuple[str, str]]


def switches_on_path(links: Links, broker_switch: str | None, switch: str) -> tuple[str, ...]:
    """Return the switches on the path from the broker to ``switch``, both ends included.

    If the broker's switch is not given, it is the switch that no link leads to. A switch without
    links is directly attached to the broker.
    """
    tree = _tree(tuple(links), broker_switch)
    return tree.get(switch, (switch,))


def missing_path_reason(links: Links, broker_switch: str | None, switch: str) -> str | None:
    """Return why there is no path between the broker and ``switch``, or None if there is one."""
    if not links and broker_switch is None:
        return None
    linked = {end for link in links for end in link}
    if broker_switch is None:
        if switch not in linked or switch in _tree(tuple(links), None):
            return None
        return (
            f"the position of the broker is unknown, because the links around {switch!r} form a "
            "loop: give network.broker.switch"
        )
    if switch == broker_switch or switch in _tree(tuple(links), broker_switch):
        return None
    return f"no links lead from the broker's switch {broker_switch!r} to {switch!r}"


@lru_cache(maxsize=64)
def _tree(
    links: tuple[tuple[str, str], ...], broker_switch: str | None
) -> dict[str, tuple[str, ...]]:
    """Return shortest paths from the broker's switch, or from all switches no link leads to."""
    neighbours: dict[str, list[str]] = {}
    for origin, target in links:
        neighbours.setdefault(origin, []).append(target)
        neighbours.setdefault(target, [])
        if broker_switch is not None:
            neighbours[target].append(origin)
    targets = {target for _, target in links}
    roots = [broker_switch] if broker_switch is not None else sorted(set(neighbours) - targets)
    paths: dict[str, tuple[str, ...]] = {root: (root,) for root in roots}
    waiting = deque(roots)
    while waiting:
        here = waiting.popleft()
        for neighbour in neighbours.get(here, ()):
            if neighbour not in paths:
                paths[neighbour] = (*paths[here], neighbour)
                waiting.append(neighbour)
    return paths


def port_bandwidths(network: Network) -> dict[tuple[str, str | None], float]:
    """Return the bandwidth of every outbound port: that of its link if given, or of its switch.

    A port is identified by its switch and the next switch, or None for the switch's own hosts.
    """
    switch_bandwidths = {s.id: s.bandwidth_bits_per_second for s in network.switches}
    bandwidths: dict[tuple[str, str | None], float] = {
        (name, None): rate for name, rate in switch_bandwidths.items()
    }
    for link in network.links:
        for here, neighbour in ((link.from_, link.to), (link.to, link.from_)):
            rate = link.bandwidth_bits_per_second or switch_bandwidths[here]
            bandwidths.setdefault((here, neighbour), rate)
    return bandwidths

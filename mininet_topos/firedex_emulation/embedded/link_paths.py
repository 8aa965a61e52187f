"""Over which outgoing ports of which switches a subscriber's packets go. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from firedex.wire import Buffer, Network, Scenario, Subscriber
from firedex.wire.network_paths import switches_on_path

__all__ = ["PortName", "PortSettings", "port_settings", "ports_to"]

PortName = tuple[str, str | None]
"""A switch, and the one that a port leads to; None: its own subscribers."""
UNMANAGED_BUFFER = Buffer(kind="per-class-head-drop", packets=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """How one outgoing port sends. An unmanaged switch has one class."""

    bits_per_second: float
    classes: int
    buffer: Buffer
    propagation_seconds: float


def ports_to(network: Network, subscriber: Subscriber) -> tuple[PortName, ...]:
    """From the broker to the subscriber."""
    links = [(link.from_, link.to) for link in network.links]
    way = switches_on_path(links, network.broker.switch, subscriber.switch)
    return tuple(zip(way, (*way[1:], None), strict=True))


def port_settings(scenario: Scenario) -> Mapping[PortName, PortSettings]:
    """Of every port on the way to a subscriber."""
    network = scenario.network
    switches = {switch.id: switch for switch in network.switches}
    of_link = {
        pair: link.bandwidth_bits_per_second
        for link in network.links
        for pair in ((link.from_, link.to), (link.to, link.from_))
    }
    found: dict[PortName, PortSettings] = {}
    for subscriber in scenario.subscribers:
        for port in ports_to(network, subscriber):
            switch, towards = switches[port[0]], port[1]
            own = None if towards is None else of_link.get((switch.id, towards))
            found[port] = PortSettings(
                bits_per_second=own or switch.bandwidth_bits_per_second,
                classes=switch.priorities if switch.managed else 1,
                buffer=switch.buffer or UNMANAGED_BUFFER,
                propagation_seconds=switch.propagation_seconds,
            )
    return found

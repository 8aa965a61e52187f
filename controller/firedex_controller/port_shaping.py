"""The queues of switch ports, set up through the agents on the switch hosts.

A class that is no longer desired is removed after its last flow has moved: ports first get both the
old and the new classes, and only the new ones after the rules have changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from firedex.wire import DesiredSwitch, QueueCounters, ShapedPort
from firedex_controller.errors import UnknownPort
from firedex_controller.settings import SwitchSettings
from firedex_controller.topology import Topology

__all__ = ["PortQueues", "QueueAgent", "desired_ports", "merge_classes"]


class QueueAgent(Protocol):
    """The part of a switch agent's client that is used here."""

    def shape(self, port: str, shaped: ShapedPort) -> bool:
        """Give a port its queues; return whether anything had to change."""

    def clear(self, port: str) -> bool:
        """Remove a port's queues; return whether there were any."""

    def counters(self, port: str) -> Iterable[QueueCounters]:
        """Return the counters of a port's queues."""


def desired_ports(
    desired: DesiredSwitch,
    settings: SwitchSettings,
    topology: Topology,
    names: Mapping[int, str],
) -> tuple[dict[str, ShapedPort], list[UnknownPort]]:
    """Return the queues by port name, and an error for each port that is not known (yet)."""
    by_port_name: dict[str, ShapedPort] = {}
    unknown: list[UnknownPort] = []
    for port in desired.ports:
        if port.towards is None:
            towards = [settings.hosts_port] if settings.hosts_port else []
        else:
            numbers = topology.ports_towards(desired.switch, port.towards)
            towards = [names[number] for number in numbers if number in names]
        if not towards:
            unknown.append(UnknownPort(desired.switch, port.towards))
        by_port_name |= dict.fromkeys(towards, port)
    return by_port_name, unknown


def merge_classes(before: ShapedPort | None, after: ShapedPort) -> ShapedPort:
    """Return ``after`` with the classes that only ``before`` has."""
    if before is None:
        return after
    desired = {queue.priority for queue in after.classes}
    only_before = (queue for queue in before.classes if queue.priority not in desired)
    return replace(
        after,
        classes=tuple(sorted((*after.classes, *only_before), key=lambda queue: queue.priority)),
    )


class PortQueues:
    """The ports of one switch that have queues."""

    def __init__(self, agent: QueueAgent) -> None:
        self._agent = agent
        self.shaped: dict[str, ShapedPort] = {}

    def prepare(self, desired: Mapping[str, ShapedPort]) -> int:
        """Add desired classes before rules change; return the number of changed ports."""
        both = {name: merge_classes(self.shaped.get(name), port) for name, port in desired.items()}
        return self._shape(both)

    def finish(self, desired: Mapping[str, ShapedPort]) -> None:
        """Remove everything else after rules have changed."""
        self._shape(desired)
        for name in set(self.shaped) - set(desired):
            self._agent.clear(name)
            del self.shaped[name]

    def counters(self) -> Iterable[QueueCounters]:
        """Return the counters of every class of every port."""
        for name in list(self.shaped):
            yield from self._agent.counters(name)

    def _shape(self, ports: Mapping[str, ShapedPort]) -> int:
        changed = 0
        for name, port in ports.items():
            self.shaped[name] = port  # also if the agent fails, because the agent retries
            changed += self._agent.shape(name, port)
        return changed

"""The queues of switches' ports, through the agents on the switch hosts.

Classes that are no longer wanted stay until the flows have left them: first both old and new, then
only the new.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from firedex.wire import DesiredSwitch, QueueCounters, ShapedPort
from firedex_controller.errors import PortUnknown
from firedex_controller.settings import SwitchSettings
from firedex_controller.topology import Topology

__all__ = ["PortShaping", "QueueAgent", "ports_of", "with_classes_of_both"]


class QueueAgent(Protocol):
    """What is asked of a switch host."""

    def shape(self, port: str, shaped: ShapedPort) -> bool:
        """Give a port its queues; whether anything had to change."""

    def clear(self, port: str) -> bool:
        """Take a port's queues away; whether there were any."""

    def counters(self, port: str) -> Iterable[QueueCounters]:
        """What went through them."""


def ports_of(
    desired: DesiredSwitch,
    settings: SwitchSettings,
    topology: Topology,
    names: Mapping[int, str],
) -> tuple[dict[str, ShapedPort], list[PortUnknown]]:
    """The port names that ``desired`` speaks of, and what is wrong with those not known (yet)."""
    found: dict[str, ShapedPort] = {}
    unknown: list[PortUnknown] = []
    for port in desired.ports:
        if port.towards is None:
            towards = [settings.hosts_port] if settings.hosts_port else []
        else:
            numbers = topology.ports_towards(desired.switch, port.towards)
            towards = [names[number] for number in numbers if number in names]
        if not towards:
            unknown.append(PortUnknown(desired.switch, port.towards))
        found |= dict.fromkeys(towards, port)
    return found, unknown


def with_classes_of_both(before: ShapedPort | None, after: ShapedPort) -> ShapedPort:
    """``after``, and the classes that only ``before`` has."""
    if before is None:
        return after
    wanted = {queue.priority for queue in after.classes}
    kept = (queue for queue in before.classes if queue.priority not in wanted)
    return replace(
        after, classes=tuple(sorted((*after.classes, *kept), key=lambda queue: queue.priority))
    )


class PortShaping:
    """The shaped ports of one switch."""

    def __init__(self, agent: QueueAgent) -> None:
        self._agent = agent
        self.shaped: dict[str, ShapedPort] = {}

    def widen(self, wanted: Mapping[str, ShapedPort]) -> int:
        """Before flows change: everything that is wanted is there. How many ports changed."""
        both = {
            name: with_classes_of_both(self.shaped.get(name), port) for name, port in wanted.items()
        }
        return self._shape(both)

    def settle(self, wanted: Mapping[str, ShapedPort]) -> None:
        """After flows have changed: nothing else is left."""
        self._shape(wanted)
        for name in set(self.shaped) - set(wanted):
            self._agent.clear(name)
            del self.shaped[name]

    def counters(self) -> Iterable[QueueCounters]:
        """Of every class of every shaped port."""
        for name in list(self.shaped):
            yield from self._agent.counters(name)

    def _shape(self, ports: Mapping[str, ShapedPort]) -> int:
        changed = 0
        for name, port in ports.items():
            self.shaped[name] = port  # also if the agent fails: it goes on trying
            changed += self._agent.shape(name, port)
        return changed

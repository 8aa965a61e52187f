"""The state of a switch as values: flow entries, meters, and the difference of two states. Pure.

FireDeX's pipeline has three tables::

    ORIGIN    reports packets of unknown hosts to the controller; follows from the topology
    CLASSIFY  sets class, DSCP mark and meter; follows from the configuration
    FORWARD   sets the output port; follows from the topology
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = [
    "CLASSIFY",
    "FORWARD",
    "ORIGIN",
    "Change",
    "FlowEntry",
    "FlowKey",
    "Match",
    "MeterEntry",
    "SwitchState",
    "difference",
    "make_match",
]

ORIGIN, CLASSIFY, FORWARD = 0, 1, 2

Match = tuple[tuple[str, object], ...]
FlowKey = tuple[int, int, Match]
"""Table, priority and match; an entry overwrites another with the same key."""


def make_match(**fields: object) -> Match:
    """Return a match with the fields in a fixed order; the names are those of OpenFlow."""
    return tuple(sorted(fields.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterEntry:
    """A meter: its rate and burst, in packets or kilobits (per second)."""

    id: int
    unit: Literal["packets", "kilobits"] = "packets"
    rate: int
    burst: int
    label: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """A flow entry; cookie and label do not count when entries are compared."""

    table: int
    priority: int
    match: Match
    meter: int | None = None
    dscp: int | None = None
    queue: int | None = None
    outputs: tuple[int, ...] = ()
    to_controller: bool = False
    next_table: int | None = None
    cookie: int = field(default=0, compare=False)
    label: str = field(default="", compare=False)

    @property
    def key(self) -> FlowKey:
        """The key of the entry on its switch."""
        return self.table, self.priority, self.match


@dataclass(frozen=True, slots=True)
class SwitchState:
    """All flow entries and meters of FireDeX on one switch."""

    flows: Mapping[FlowKey, FlowEntry] = field(default_factory=dict)
    meters: Mapping[int, MeterEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, flows: Iterable[FlowEntry], meters: Iterable[MeterEntry] = ()) -> "SwitchState":
        """Make a state of entries; the last of several with one key counts, as on a switch."""
        return cls({flow.key: flow for flow in flows}, {meter.id: meter for meter in meters})

    def in_tables(self, *tables: int) -> "SwitchState":
        """Return the entries of some tables, and the meters that they use."""
        flows = [flow for flow in self.flows.values() if flow.table in tables]
        used = {flow.meter for flow in flows}
        return SwitchState.of(flows, (m for number, m in self.meters.items() if number in used))

    def without_meters(self) -> "SwitchState":
        """Return the state for a switch that has no meters: nothing is limited."""
        return SwitchState.of(replace(flow, meter=None) for flow in self.flows.values())

    def with_state(self, other: "SwitchState") -> "SwitchState":
        """Return both states together; an entry of ``other`` replaces one with the same key."""
        return SwitchState({**self.flows, **other.flows}, {**self.meters, **other.meters})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The entries to send to a switch, in this order, with a barrier after the flows to set.

    Meters come first, because flows refer to them; stale meters are deleted last, because deleting
    a meter deletes its flows. Equal entries are not sent, so they keep their counters.
    """

    meters_to_add: tuple[MeterEntry, ...] = ()
    meters_to_modify: tuple[MeterEntry, ...] = ()
    flows_to_add: tuple[FlowEntry, ...] = ()
    flows_to_overwrite: tuple[FlowEntry, ...] = ()
    flows_to_delete: tuple[FlowEntry, ...] = ()
    meters_to_delete: tuple[MeterEntry, ...] = ()
    flows_unchanged: int = 0

    @property
    def flows_to_set(self) -> tuple[FlowEntry, ...]:
        """New and changed flows; for a switch, both are additions."""
        return self.flows_to_add + self.flows_to_overwrite

    def __bool__(self) -> bool:
        return bool(
            self.meters_to_add
            or self.meters_to_modify
            or self.flows_to_set
            or self.flows_to_delete
            or self.meters_to_delete
        )


def difference(installed: SwitchState, desired: SwitchState) -> Change:
    """Return the change that brings a switch from ``installed`` to ``desired``."""
    before, after = installed, desired
    return Change(
        meters_to_add=tuple(m for i, m in after.meters.items() if i not in before.meters),
        meters_to_modify=tuple(
            m for i, m in after.meters.items() if i in before.meters and before.meters[i] != m
        ),
        flows_to_add=tuple(f for key, f in after.flows.items() if key not in before.flows),
        flows_to_overwrite=tuple(
            f for key, f in after.flows.items() if key in before.flows and before.flows[key] != f
        ),
        flows_to_delete=tuple(f for key, f in before.flows.items() if key not in after.flows),
        meters_to_delete=tuple(m for i, m in before.meters.items() if i not in after.meters),
        flows_unchanged=sum(before.flows.get(key) == flow for key, flow in after.flows.items()),
    )

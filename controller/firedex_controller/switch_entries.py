"""What can be on a switch, as plain values: flow entries, meters, and the whole of one switch.

FireDeX's pipeline has three tables::

    ORIGIN    who is where: a packet from an unknown place is also shown to the controller
    CLASSIFY  which class, mark and meter: follows from the configuration alone
    FORWARD   out of which port: follows from the topology alone
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = [
    "CLASSIFY",
    "FORWARD",
    "ORIGIN",
    "FlowEntry",
    "FlowKey",
    "Match",
    "MeterEntry",
    "SwitchState",
    "match_of",
]

ORIGIN, CLASSIFY, FORWARD = 0, 1, 2

Match = tuple[tuple[str, object], ...]
FlowKey = tuple[int, int, Match]
"""Table, priority and match: two entries with the same key are the same place on the switch."""


def match_of(**fields: object) -> Match:
    """A match in OpenFlow's field names, in one order."""
    return tuple(sorted(fields.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterEntry:
    """A limit with its burst, in packets or in kilobits (per second)."""

    id: int
    unit: Literal["packets", "kilobits"] = "packets"
    rate: int
    burst: int
    label: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """One flow entry. Cookie (who wrote it) and label (what for) do not make it another."""

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
        """Where it stands."""
        return self.table, self.priority, self.match


@dataclass(frozen=True, slots=True)
class SwitchState:
    """Everything of FireDeX's on one switch."""

    flows: Mapping[FlowKey, FlowEntry] = field(default_factory=dict)
    meters: Mapping[int, MeterEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, flows: Iterable[FlowEntry], meters: Iterable[MeterEntry] = ()) -> "SwitchState":
        """From entries in any order; the last of several with one key stands, as on a switch."""
        return cls({flow.key: flow for flow in flows}, {meter.id: meter for meter in meters})

    def of_tables(self, *tables: int) -> "SwitchState":
        """The entries of some tables, and the meters that they use."""
        flows = [flow for flow in self.flows.values() if flow.table in tables]
        used = {flow.meter for flow in flows}
        return SwitchState.of(flows, (m for number, m in self.meters.items() if number in used))

    def without_meters(self) -> "SwitchState":
        """For a switch that has none: everything passes unlimited."""
        return SwitchState.of(replace(flow, meter=None) for flow in self.flows.values())

    def with_state(self, other: "SwitchState") -> "SwitchState":
        """Both together."""
        return SwitchState({**self.flows, **other.flows}, {**self.meters, **other.meters})

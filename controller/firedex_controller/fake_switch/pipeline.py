"""A packet's way through the tables of one switch. Pure: counts nothing, sends nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firedex_controller.fake_switch.flow_entries import (
    Action,
    FakeFlow,
    Output,
    SetField,
    SetQueue,
)
from firedex_controller.fake_switch.flow_tables import FlowTables, StoredFlow

__all__ = ["Emission", "Passage", "run_actions", "run_tables"]

NO_COOKIE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Emission:
    """One output: to which port (maybe a reserved one), from which queue, changed how."""

    port: int
    queue: int | None
    changes: Mapping[str, int]
    flow: FakeFlow | None

    @property
    def of_table_miss(self) -> bool:
        """Whether it is by the flow for packets that nothing else matches."""
        return self.flow is not None and not self.flow.priority and not self.flow.match.fields


@dataclass(slots=True)
class Passage:
    """What has become of a packet so far."""

    fields: dict[str, int]
    queue: int | None = None
    changes: dict[str, int] = field(default_factory=dict)
    meters: list[int] = field(default_factory=list)
    matched: list[StoredFlow] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)

    def act(self, action: Action, flow: FakeFlow | None) -> None:
        """Do one action."""
        if isinstance(action, SetField):
            self.fields[action.name] = self.changes[action.name] = action.value
        elif isinstance(action, SetQueue):
            self.queue = action.queue
        else:
            self.emissions.append(Emission(action.port, self.queue, dict(self.changes), flow))


def run_actions(fields: Mapping[str, int], actions: tuple[Action, ...]) -> Passage:
    """What becomes of a packet-out that is not sent to the tables."""
    passage = Passage(dict(fields))
    for action in actions:
        passage.act(action, None)
    return passage


def run_tables(fields: Mapping[str, int], tables: FlowTables) -> Passage:
    """Match in table after table. A packet that nothing matches is dropped."""
    passage = Passage(dict(fields))
    action_set: list[Action] = []
    table: int | None = 0
    last = None
    while table is not None:
        found = next(
            (s for s in tables.in_order(table) if s.flow.match.admits(passage.fields)), None
        )
        if found is None:
            break  # what was written so far is done all the same, as in Open vSwitch
        last = found.flow
        passage.matched.append(found)
        instructions = found.flow.instructions
        if instructions.meter is not None:
            passage.meters.append(instructions.meter)
        for action in instructions.apply:
            passage.act(action, found.flow)
        if instructions.clear:
            action_set.clear()
        action_set += instructions.write
        table = instructions.goto_table
    for action in sorted(action_set, key=lambda action: isinstance(action, Output)):
        passage.act(action, last)
    return passage

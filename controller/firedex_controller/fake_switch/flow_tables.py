"""The flow tables of a switch: how changes act on them, as Open vSwitch does it.

Adding over the same priority and match replaces, keeping the counters unless asked not to;
modifying changes instructions and nothing else, and adds nothing; deleting looks at the cookie, the
match (a broader match finds narrower flows, unless strict) and the output port.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic

from firedex_controller.fake_switch.flow_entries import FakeFlow, FlowChange
from firedex_controller.fake_switch.match_fields import Match
from firedex_controller.fake_switch.refusals import Refusal
from firedex_controller.framework import ofproto

__all__ = ["FlowFilter", "FlowTables", "StoredFlow"]

NO_MATCH = Match()
Key = tuple[int, Match]
Contents = dict[int, dict[Key, "StoredFlow"]]


@dataclass(slots=True)
class Counters:
    """What passed through a flow."""

    packets: int = 0
    octets: int = 0


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow in its table, with its counters and since when it is there."""

    flow: FakeFlow
    counters: Counters = field(default_factory=Counters, compare=False)
    since: float = field(default_factory=monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """Which flows a deletion or a request for statistics is about."""

    table: int = ofproto.OFPTT_ALL
    match: Match = NO_MATCH
    cookie: int = 0
    cookie_mask: int = 0
    out_port: int = ofproto.OFPP_ANY
    out_group: int = ofproto.OFPG_ANY

    def finds(self, flow: FakeFlow) -> bool:
        """Whether a flow of the right table is meant."""
        return self.finds_beside_match(flow) and self.match.covers(flow.match)

    def finds_beside_match(self, flow: FakeFlow) -> bool:
        """The same for a strict change, which has looked the match up."""
        if (flow.cookie ^ self.cookie) & self.cookie_mask:
            return False
        if self.out_group != ofproto.OFPG_ANY:
            return False  # no flow here uses a group
        return (
            self.out_port == ofproto.OFPP_ANY or self.out_port in flow.instructions.output_ports()
        )


class FlowTables:
    """All the flows of a switch. ``max_flows`` limits each table (None: no limit)."""

    def __init__(self) -> None:
        self.max_flows: int | None = None
        self._tables: Contents = {}
        self._by_priority: dict[int, list[StoredFlow]] = {}

    def apply(self, change: FlowChange, meter_exists: Callable[[int], bool]) -> list[StoredFlow]:
        """Make one change; return the flows that it deleted."""
        if change.command == "add":
            _check_meter(change.flow, meter_exists)
            self._add(change.flow)
            return []
        found = self._meant_by(change)
        if change.command.startswith("delete"):
            self._remove(found)
            return found
        if found:
            _check_meter(change.flow, meter_exists)
        self._modify(found, change.flow)
        return []

    def _add(self, flow: FakeFlow) -> None:
        table = self._tables.setdefault(flow.table, {})
        key = (flow.priority, flow.match)
        previous = table.get(key)
        if previous is None:
            self._check_room(flow, table)
            table[key] = StoredFlow(flow)
        elif flow.flags & ofproto.OFPFF_RESET_COUNTS:
            table[key] = StoredFlow(flow)
        else:
            table[key] = StoredFlow(flow, previous.counters)
        self._by_priority.pop(flow.table, None)

    def _check_room(self, flow: FakeFlow, table: dict[Key, StoredFlow]) -> None:
        if flow.flags & ofproto.OFPFF_CHECK_OVERLAP and any(
            other.flow.priority == flow.priority and other.flow.match.overlaps(flow.match)
            for other in table.values()
        ):
            raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_OVERLAP)
        if self.max_flows is not None and len(table) >= self.max_flows:
            raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_TABLE_FULL)

    def _modify(self, found: list[StoredFlow], wanted: FakeFlow) -> None:
        reset = wanted.flags & ofproto.OFPFF_RESET_COUNTS
        for stored in found:
            flow = replace(stored.flow, instructions=wanted.instructions)
            counters = Counters() if reset else stored.counters
            table = self._tables[flow.table]
            table[(flow.priority, flow.match)] = StoredFlow(flow, counters, stored.since)
            self._by_priority.pop(flow.table, None)

    def _meant_by(self, change: FlowChange) -> list[StoredFlow]:
        flow = change.flow
        modifies = change.command.startswith("modify")
        wanted = FlowFilter(
            table=flow.table,
            match=flow.match,
            cookie=flow.cookie,
            cookie_mask=change.cookie_mask,
            out_port=ofproto.OFPP_ANY if modifies else change.out_port,
            out_group=ofproto.OFPG_ANY if modifies else change.out_group,
        )
        if not change.command.endswith("strict"):
            return list(self.select(wanted))
        exact = (table.get((flow.priority, flow.match)) for table in self._tables_of(flow.table))
        return [stored for stored in exact if stored and wanted.finds_beside_match(stored.flow)]

    def _tables_of(self, table: int) -> list[dict[Key, StoredFlow]]:
        if table == ofproto.OFPTT_ALL:
            return list(self._tables.values())
        return [self._tables.get(table, {})]

    def select(self, wanted: FlowFilter) -> Iterator[StoredFlow]:
        """The flows that a filter finds."""
        for table in self._tables_of(wanted.table):
            for stored in list(table.values()):
                if wanted.finds(stored.flow):
                    yield stored

    def _remove(self, found: list[StoredFlow]) -> None:
        for stored in found:
            flow = stored.flow
            del self._tables[flow.table][(flow.priority, flow.match)]
            self._by_priority.pop(flow.table, None)

    def remove_users_of_meters(self, meters: set[int]) -> None:
        """Delete the flows that use a meter which goes."""
        self._remove([s for s in self if s.flow.instructions.meter in meters])

    def __iter__(self) -> Iterator[StoredFlow]:
        for table in self._tables.values():
            yield from list(table.values())

    def in_order(self, table: int) -> list[StoredFlow]:
        """The flows of one table as packets meet them."""
        if table not in self._by_priority:
            self._by_priority[table] = sorted(
                self._tables.get(table, {}).values(), key=lambda stored: -stored.flow.priority
            )
        return self._by_priority[table]

    def saved(self) -> Contents:
        """All that there is, to go back to when a bundle fails."""
        return {number: dict(table) for number, table in self._tables.items()}

    def restore(self, contents: Contents) -> None:
        """Go back to what was saved."""
        self._tables = contents
        self._by_priority.clear()


def _check_meter(flow: FakeFlow, meter_exists: Callable[[int], bool]) -> None:
    meter = flow.instructions.meter
    # Open vSwitch refuses the virtual meters in a flow as well: they are for the channel itself.
    if meter is not None and (meter > ofproto.OFPM_MAX or not meter_exists(meter)):
        raise Refusal(ofproto.OFPET_METER_MOD_FAILED, ofproto.OFPMMFC_INVALID_METER)

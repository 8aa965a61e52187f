"""The flow tables and the meters of a switch, and how changes act on them, as in Open vSwitch.

An addition replaces a flow with the same priority and match, and keeps its counters unless a flag
resets them. A modification changes only instructions, and adds nothing. A deletion compares the
cookie, the match (a broader match selects narrower flows, unless strict) and the output port.
Meters count packets; this fake does not drop any.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from firedex_controller.framework import ofproto
from tests.support.fake_switch.flow_entries import FakeFlow, FlowChange, Match
from tests.support.fake_switch.openflow_wire import Refusal

__all__ = [
    "FakeMeter",
    "FlowFilter",
    "FlowTables",
    "MeterBand",
    "MeterChange",
    "MeterTable",
    "StoredFlow",
    "StoredMeter",
]

NO_MATCH = Match()
Key = tuple[int, Match]
Contents = dict[int, dict[Key, "StoredFlow"]]


@dataclass(slots=True)
class Counters:
    """The counters of a flow."""

    packets: int = 0
    octets: int = 0


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow in its table, with its counters and the time of its creation."""

    flow: FakeFlow
    counters: Counters = field(default_factory=Counters, compare=False)
    since: float = field(default_factory=monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """The filter of a deletion or of a request for statistics."""

    table: int = ofproto.OFPTT_ALL
    match: Match = NO_MATCH
    cookie: int = 0
    cookie_mask: int = 0
    out_port: int = ofproto.OFPP_ANY
    out_group: int = ofproto.OFPG_ANY

    def selects(self, flow: FakeFlow) -> bool:
        """Return whether a flow of the right table is selected."""
        return self.selects_except_match(flow) and self.match.covers(flow.match)

    def selects_except_match(self, flow: FakeFlow) -> bool:
        """Return whether a flow with an equal match is selected, for a strict change."""
        if (flow.cookie ^ self.cookie) & self.cookie_mask:
            return False
        if self.out_group != ofproto.OFPG_ANY:
            return False  # the fake has no groups
        return (
            self.out_port == ofproto.OFPP_ANY or self.out_port in flow.instructions.output_ports()
        )


class FlowTables:
    """All flows of a switch; ``max_flows`` limits each table (None: no limit)."""

    def __init__(self) -> None:
        self.max_flows: int | None = None
        self._tables: Contents = {}
        self._by_priority: dict[int, list[StoredFlow]] = {}

    def apply(self, change: FlowChange, meter_exists: Callable[[int], bool]) -> list[StoredFlow]:
        """Apply one change; return the flows that it deleted."""
        if change.command == "add":
            _check_meter(change.flow, meter_exists)
            self._add(change.flow)
            return []
        found = self._selected_flows(change)
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

    def _selected_flows(self, change: FlowChange) -> list[StoredFlow]:
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
        return [stored for stored in exact if stored and wanted.selects_except_match(stored.flow)]

    def _tables_of(self, table: int) -> list[dict[Key, StoredFlow]]:
        if table == ofproto.OFPTT_ALL:
            return list(self._tables.values())
        return [self._tables.get(table, {})]

    def select(self, wanted: FlowFilter) -> Iterator[StoredFlow]:
        """Return the flows that a filter selects."""
        for table in self._tables_of(wanted.table):
            for stored in list(table.values()):
                if wanted.selects(stored.flow):
                    yield stored

    def _remove(self, found: list[StoredFlow]) -> None:
        for stored in found:
            flow = stored.flow
            del self._tables[flow.table][(flow.priority, flow.match)]
            self._by_priority.pop(flow.table, None)

    def remove_users_of_meters(self, meters: set[int]) -> None:
        """Delete the flows that use deleted meters."""
        self._remove([s for s in self if s.flow.instructions.meter in meters])

    def __iter__(self) -> Iterator[StoredFlow]:
        for table in self._tables.values():
            yield from list(table.values())

    def in_order(self, table: int) -> list[StoredFlow]:
        """Return the flows of one table in the order of matching."""
        if table not in self._by_priority:
            self._by_priority[table] = sorted(
                self._tables.get(table, {}).values(), key=lambda stored: -stored.flow.priority
            )
        return self._by_priority[table]

    def snapshot(self) -> Contents:
        """Return a snapshot, for a bundle that fails."""
        return {number: dict(table) for number, table in self._tables.items()}

    def restore(self, contents: Contents) -> None:
        """Restore a snapshot."""
        self._tables = contents
        self._by_priority.clear()


def _check_meter(flow: FakeFlow, meter_exists: Callable[[int], bool]) -> None:
    meter = flow.instructions.meter
    # Open vSwitch also refuses virtual meters in a flow; they are for the control channel.
    if meter is not None and (meter > ofproto.OFPM_MAX or not meter_exists(meter)):
        raise Refusal(ofproto.OFPET_METER_MOD_FAILED, ofproto.OFPMMFC_INVALID_METER)


MAX_BANDS = 8
VIRTUAL_METERS = {ofproto.OFPM_SLOWPATH, ofproto.OFPM_CONTROLLER}
UNITS = ofproto.OFPMF_KBPS | ofproto.OFPMF_PKTPS
KNOWN_FLAGS = UNITS | ofproto.OFPMF_BURST | ofproto.OFPMF_STATS
COMMANDS = {
    ofproto.OFPMC_ADD: "add",
    ofproto.OFPMC_MODIFY: "modify",
    ofproto.OFPMC_DELETE: "delete",
}


@dataclass(frozen=True, slots=True)
class MeterBand:
    """A drop band; the unit of ``rate`` is in the meter's flags."""

    rate: int
    burst: int


@dataclass(frozen=True, slots=True)
class FakeMeter:
    """One meter, without counters, so that equal meters compare equal."""

    id: int
    flags: int
    bands: tuple[MeterBand, ...]


@dataclass(frozen=True, slots=True)
class MeterChange:
    """One valid meter modification."""

    command: str
    meter: FakeMeter

    @classmethod
    def of(cls, command: int, flags: int, meter_id: int, bands: list[Any]) -> "MeterChange":
        """Make a change from a message; errors have the order of Open vSwitch."""
        name = COMMANDS.get(command)
        if name == "delete":
            return cls(name, FakeMeter(meter_id, 0, ()))
        if flags & UNITS == UNITS:
            raise _refusal(ofproto.OFPMMFC_BAD_FLAGS)
        if any(band.type != ofproto.OFPMBT_DROP for band in bands):
            raise _refusal(ofproto.OFPMMFC_BAD_BAND)
        _check_number(meter_id)
        if not 0 < len(bands) <= MAX_BANDS:
            raise _refusal(ofproto.OFPMMFC_OUT_OF_BANDS)
        if name is None:
            raise _refusal(ofproto.OFPMMFC_BAD_COMMAND)
        found = tuple(MeterBand(band.rate, band.burst_size) for band in bands)
        return cls(name, FakeMeter(meter_id, flags, found))


@dataclass(slots=True)
class StoredMeter:
    """A meter with its counters and the time of its creation."""

    meter: FakeMeter
    packets: int = 0
    octets: int = 0
    since: float = field(default_factory=monotonic)


class MeterTable:
    """All meters of a switch; ``max_meters`` limits their number."""

    def __init__(self) -> None:
        self.max_meters = 262144  # as in Open vSwitch's user space
        self.stored: dict[int, StoredMeter] = {}

    def exists(self, meter_id: int) -> bool:
        """Return whether a flow can refer to the meter."""
        return meter_id in self.stored

    def apply(self, change: MeterChange) -> set[int]:
        """Apply one change; return the ids of the meters that it deleted."""
        meter = change.meter
        if change.command == "delete":
            every = meter.id == ofproto.OFPM_ALL
            deleted = set(self.stored) if every else {meter.id} & set(self.stored)
            for meter_id in deleted:
                del self.stored[meter_id]
            return deleted
        known = self.stored.get(meter.id)
        if change.command == "add":
            if known is not None:
                raise _refusal(ofproto.OFPMMFC_METER_EXISTS)
            if len(self.stored) >= self.max_meters:
                raise _refusal(ofproto.OFPMMFC_OUT_OF_METERS)
            _check_settings(meter)
            self.stored[meter.id] = StoredMeter(meter)
        elif known is None:
            raise _refusal(ofproto.OFPMMFC_UNKNOWN_METER)
        else:
            _check_settings(meter)
            known.meter = meter
        return set()

    def select(self, meter_id: int) -> list[StoredMeter]:
        """Return the meters of a request for statistics."""
        if meter_id == ofproto.OFPM_ALL:
            return [self.stored[number] for number in sorted(self.stored)]
        if meter_id not in self.stored:
            raise _refusal(ofproto.OFPMMFC_UNKNOWN_METER)
        return [self.stored[meter_id]]

    def count(self, meter_id: int, octets: int) -> None:
        """Count a packet."""
        if meter_id in self.stored:
            self.stored[meter_id].packets += 1
            self.stored[meter_id].octets += octets


def _check_number(meter_id: int) -> None:
    if meter_id == 0 or (meter_id > ofproto.OFPM_MAX and meter_id not in VIRTUAL_METERS):
        raise _refusal(ofproto.OFPMMFC_INVALID_METER)


def _check_settings(meter: FakeMeter) -> None:
    """Make the checks that Open vSwitch makes after it has looked up the meter."""
    if not meter.flags & UNITS or meter.flags & ~KNOWN_FLAGS:
        raise _refusal(ofproto.OFPMMFC_BAD_FLAGS)
    if any(band.rate == 0 for band in meter.bands):
        raise _refusal(ofproto.OFPMMFC_BAD_RATE)


def _refusal(code: int) -> Refusal:
    return Refusal(ofproto.OFPET_METER_MOD_FAILED, code)

"""The meters of a switch. They count what passes; this fake does not police."""

from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from firedex_controller.fake_switch.refusals import Refusal
from firedex_controller.framework import ofproto

__all__ = ["FakeMeter", "MeterBand", "MeterChange", "MeterTable", "StoredMeter"]

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
    """Above ``rate`` packets are dropped. The unit is in the meter's flags."""

    rate: int
    burst: int


@dataclass(frozen=True, slots=True)
class FakeMeter:
    """One meter. Its counters are kept elsewhere, so that equal meters are equal."""

    id: int
    flags: int
    bands: tuple[MeterBand, ...]


@dataclass(frozen=True, slots=True)
class MeterChange:
    """One meter modification, checked for what is wrong in itself."""

    command: str
    meter: FakeMeter

    @classmethod
    def of(cls, command: int, flags: int, meter_id: int, bands: list[Any]) -> "MeterChange":
        """From the parts of a message; refuses in the order in which Open vSwitch does."""
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
    """A meter with its counters and since when it is there."""

    meter: FakeMeter
    packets: int = 0
    octets: int = 0
    since: float = field(default_factory=monotonic)


class MeterTable:
    """All the meters of a switch. ``max_meters`` limits their number."""

    def __init__(self) -> None:
        self.max_meters = 262144  # as in Open vSwitch's user space
        self.stored: dict[int, StoredMeter] = {}

    def exists(self, meter_id: int) -> bool:
        """Whether a flow may name it."""
        return meter_id in self.stored

    def apply(self, change: MeterChange) -> set[int]:
        """Make one change; return which meters it deleted."""
        meter = change.meter
        if change.command == "delete":
            every = meter.id == ofproto.OFPM_ALL
            gone = set(self.stored) if every else {meter.id} & set(self.stored)
            for meter_id in gone:
                del self.stored[meter_id]
            return gone
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

    def asked(self, meter_id: int) -> list[StoredMeter]:
        """The meters that a request for statistics is about."""
        if meter_id == ofproto.OFPM_ALL:
            return [self.stored[number] for number in sorted(self.stored)]
        if meter_id not in self.stored:
            raise _refusal(ofproto.OFPMMFC_UNKNOWN_METER)
        return [self.stored[meter_id]]

    def count(self, meter_id: int, octets: int) -> None:
        """A packet has passed."""
        if meter_id in self.stored:
            self.stored[meter_id].packets += 1
            self.stored[meter_id].octets += octets


def _check_number(meter_id: int) -> None:
    if meter_id == 0 or (meter_id > ofproto.OFPM_MAX and meter_id not in VIRTUAL_METERS):
        raise _refusal(ofproto.OFPMMFC_INVALID_METER)


def _check_settings(meter: FakeMeter) -> None:
    """What Open vSwitch finds only when it sets the meter, after having looked it up."""
    if not meter.flags & UNITS or meter.flags & ~KNOWN_FLAGS:
        raise _refusal(ofproto.OFPMMFC_BAD_FLAGS)
    if any(band.rate == 0 for band in meter.bands):
        raise _refusal(ofproto.OFPMMFC_BAD_RATE)


def _refusal(code: int) -> Refusal:
    return Refusal(ofproto.OFPET_METER_MOD_FAILED, code)

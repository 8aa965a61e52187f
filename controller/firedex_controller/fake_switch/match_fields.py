"""Matches as a switch sees them: a value and a mask for each field, nothing else.

Two matches that select the same packets by the same fields are equal, whatever the message looked
like: fields are sorted, bits outside a mask are cleared, a mask of nothing is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from firedex_controller.fake_switch.refusals import Refusal
from firedex_controller.framework import ofproto, parser

__all__ = ["Match", "MatchField", "match_of", "numbers_of", "prerequisites_hold", "readable_field"]

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
IP_FIELDS = {"ip_proto", "ip_dscp", "ip_ecn"}
PROTOCOLS = {"tcp": (6,), "udp": (17,), "sctp": (132,), "icmpv4": (1,), "icmpv6": (58,)}
ETHERNET_TYPES = {"ipv4": (IPV4,), "ipv6": (IPV6,), "arp": (ARP,)}


class MatchField(NamedTuple):
    """One field: which bits are looked at (``mask``), and what they must be."""

    name: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Match:
    """Which packets a flow is for."""

    fields: tuple[MatchField, ...] = ()

    def admits(self, packet: Mapping[str, int]) -> bool:
        """Whether a packet with these field values matches."""
        for name, value, mask in self.fields:
            found = packet.get(name)
            if found is None or found & mask != value:
                return False
        return True

    def covers(self, other: "Match") -> bool:
        """Whether every packet of ``other`` matches this too, as a non-strict change asks it."""
        theirs = {name: (value, mask) for name, value, mask in other.fields}
        for name, value, mask in self.fields:
            their_value, their_mask = theirs.get(name, (0, 0))
            if mask & ~their_mask or their_value & mask != value:
                return False
        return True

    def overlaps(self, other: "Match") -> bool:
        """Whether one packet could match both."""
        theirs = {name: (value, mask) for name, value, mask in other.fields}
        for name, value, mask in self.fields:
            their_value, their_mask = theirs.get(name, (0, 0))
            if (value ^ their_value) & mask & their_mask:
                return False
        return True

    def readable(self) -> dict[str, Any]:
        """As one would write it: addresses as text, masked values as (value, mask)."""
        return {field.name: readable_field(*field) for field in self.fields}

    def message(self) -> Any:
        """For the framework to encode."""
        return parser.OFPMatch(**self.readable())


_MAC, _ADDRESS = "00:00:00:00:00:00", "0.0.0.0"  # noqa: S104  # examples, for their length


def _example(name: str) -> Any:
    if name in {"eth_dst", "eth_src", "arp_sha", "arp_tha", "ipv6_nd_sll", "ipv6_nd_tll"}:
        return _MAC
    if name in {"ipv4_src", "ipv4_dst", "arp_spa", "arp_tpa"}:
        return _ADDRESS
    return "::" if name in {"ipv6_src", "ipv6_dst", "ipv6_nd_target"} else 0


@lru_cache(maxsize=65536)
def _canonical_field(name: str, given: Any) -> tuple[MatchField | None, int]:
    _, value, mask = ofproto.oxm_from_user(name, given)
    every_bit = (1 << 8 * len(value)) - 1
    if name == "vlan_vid":
        every_bit = 0x1FFF
    bits = every_bit if mask is None else int.from_bytes(mask, "big") & every_bit
    number = int.from_bytes(value, "big")
    return (MatchField(name, number & bits, bits) if bits else None), number


@lru_cache(maxsize=65536)
def readable_field(name: str, value: int, mask: int | None = None) -> Any:
    """A field's value as the framework's users write it; no mask means all of it."""
    number, example, _ = ofproto.oxm_from_user(name, _example(name))
    size = len(example)
    every_bit = 0x1FFF if name == "vlan_vid" else (1 << 8 * size) - 1
    whole = mask is None or mask == every_bit
    encoded_mask = None if whole else (mask or 0).to_bytes(size, "big")
    return ofproto.oxm_to_user(number, value.to_bytes(size, "big"), encoded_mask)[1]


def match_of(message: Any) -> Match:
    """The canonical form of the framework's match; refuses what a switch would."""
    fields: dict[str, MatchField] = {}
    seen: dict[str, int] = {}
    for name, given in message.items():
        if name in seen:
            raise Refusal(ofproto.OFPET_BAD_MATCH, ofproto.OFPBMC_DUP_FIELD)
        field, seen[name] = _canonical_field(name, given)
        if field is not None:
            fields[name] = field
    for name in fields:
        if not prerequisites_hold(name, seen):
            raise Refusal(ofproto.OFPET_BAD_MATCH, ofproto.OFPBMC_BAD_PREREQ)
    return Match(tuple(fields[name] for name in sorted(fields)))


def prerequisites_hold(name: str, known: Mapping[str, int]) -> bool:
    """Whether a packet of which ``known`` is known surely has the field ``name``."""
    kind = name.partition("_")[0]
    if name in IP_FIELDS:
        return known.get("eth_type") in (IPV4, IPV6)
    if kind in ETHERNET_TYPES:
        return known.get("eth_type") in ETHERNET_TYPES[kind]
    if kind in PROTOCOLS:
        return known.get("ip_proto") in PROTOCOLS[kind] and prerequisites_hold("ip_proto", known)
    return name != "vlan_pcp" or bool(known.get("vlan_vid", 0) & ofproto.OFPVID_PRESENT)


def numbers_of(given: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Field values as numbers, from how users write them."""
    return {name: _canonical_field(name, value)[1] for name, value in given}

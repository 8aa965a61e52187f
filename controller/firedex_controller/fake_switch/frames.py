"""Frames: which match fields they have, and frames with some of them changed."""

import importlib
from typing import Any

from firedex_controller.fake_switch.match_fields import numbers_of, readable_field
from firedex_controller.framework import parser

__all__ = ["changed_frame", "fields_of", "packet_fields"]

_PACKAGE = parser.__name__.partition(".")[0]


def _protocol(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.lib.packet.{name}")


_packet = _protocol("packet")
_CLASSES = {
    name: getattr(_protocol(name), name)
    for name in ("ethernet", "vlan", "arp", "ipv4", "ipv6", "tcp", "udp", "icmp")
}
# Which attribute of which protocol a match field is.
_FIELDS = {
    "eth_dst": ("ethernet", "dst"),
    "eth_src": ("ethernet", "src"),
    "arp_op": ("arp", "opcode"),
    "arp_sha": ("arp", "src_mac"),
    "arp_spa": ("arp", "src_ip"),
    "arp_tha": ("arp", "dst_mac"),
    "arp_tpa": ("arp", "dst_ip"),
    "ip_proto": ("ipv4", "proto"),
    "ipv4_src": ("ipv4", "src"),
    "ipv4_dst": ("ipv4", "dst"),
    "ipv6_src": ("ipv6", "src"),
    "ipv6_dst": ("ipv6", "dst"),
    "tcp_src": ("tcp", "src_port"),
    "tcp_dst": ("tcp", "dst_port"),
    "udp_src": ("udp", "src_port"),
    "udp_dst": ("udp", "dst_port"),
    "icmpv4_type": ("icmp", "type"),
    "icmpv4_code": ("icmp", "code"),
}


def packet_fields(**given: Any) -> dict[str, int]:
    """The fields of an imagined packet; what its other fields imply need not be said."""
    fields = {"vlan_vid": 0, **numbers_of(given.items())}
    kinds = {name.partition("_")[0] for name in given}
    for protocol, number in (("tcp", 6), ("udp", 17), ("icmpv4", 1)):
        if protocol in kinds:
            fields.setdefault("ip_proto", number)
    if "arp" in kinds:
        fields.setdefault("eth_type", 0x0806)
    if kinds & {"ipv4", "tcp", "udp", "icmpv4", "ip"}:
        fields.setdefault("eth_type", 0x0800)
    if fields.get("eth_type") in (0x0800, 0x86DD):
        fields.setdefault("ip_dscp", 0)
    return fields


def fields_of(frame: bytes) -> dict[str, int]:
    """The fields of a real frame."""
    headers = {type(header).__name__: header for header in _packet.Packet(frame).protocols}
    ethernet = headers.get("ethernet")
    if ethernet is None:
        return {}
    tag = headers.get("vlan")
    fields = {
        "eth_type": ethernet.ethertype if tag is None else tag.ethertype,
        "vlan_vid": 0 if tag is None else 0x1000 | tag.vid,
    }
    ip = headers.get("ipv4")
    if ip is not None:
        fields.update(ip_dscp=ip.tos >> 2, ip_ecn=ip.tos & 3)
    found = {
        name: getattr(headers[protocol], attribute)
        for name, (protocol, attribute) in _FIELDS.items()
        if protocol in headers
    }
    return {**fields, **numbers_of(found.items())}


def changed_frame(frame: bytes, changes: dict[str, int]) -> bytes:
    """The frame with fields set to new values, its checksums right."""
    if not changes:
        return frame
    packet = _packet.Packet(frame)
    headers = {type(header).__name__: header for header in packet.protocols}
    for name, value in changes.items():
        if name in ("ip_dscp", "ip_ecn") and "ipv4" in headers:
            ip = headers["ipv4"]
            ip.tos = value << 2 | ip.tos & 3 if name == "ip_dscp" else ip.tos & ~3 | value
        elif name in _FIELDS and _FIELDS[name][0] in headers:
            protocol, attribute = _FIELDS[name]
            setattr(headers[protocol], attribute, readable_field(name, value))
    without_checksum = "udp" in headers and headers["udp"].csum == 0
    for header in headers.values():
        if hasattr(header, "csum"):
            header.csum = 0  # asks for it to be computed
    packet.serialize()
    if without_checksum:
        return _without_udp_checksum(bytes(packet.data), headers)
    return bytes(packet.data)


def _without_udp_checksum(frame: bytes, headers: dict[str, Any]) -> bytes:
    """One that was left out stays out; the framework always computes it."""
    before = 14 + 4 * ("vlan" in headers)
    before += 4 * headers["ipv4"].header_length if "ipv4" in headers else 40
    return frame[: before + 6] + b"\0\0" + frame[before + 8 :]

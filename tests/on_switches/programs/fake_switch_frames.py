"""Send frames into the ports of Open vSwitch and of the fake, and compare the output."""

import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

from firedex_controller.framework import ofproto, parser
from tests.on_switches.programs import fake_switch_cases as cases
from tests.support.fake_switch import FakeNetwork, RawChannel

ARRIVAL_SECONDS, GRACE_SECONDS = 2.0, 0.05
OUTGOING = socket.PACKET_OUTGOING
CONTROLLER, FLOOD = ofproto.OFPP_CONTROLLER, ofproto.OFPP_FLOOD
UDP = {"eth_type": 0x0800, "ip_proto": 17}


def udp(*, dscp: int = 0, port: int = 2, with_checksum: bool = False) -> bytes:
    frame = bytearray(cases.FRAME)
    frame[15] = dscp << 2
    struct.pack_into("!H", frame, 24, 0)
    struct.pack_into("!H", frame, 24, checksum(frame[14:34]))
    struct.pack_into("!H", frame, 36, port)
    if with_checksum:
        pseudo_header = frame[26:34] + struct.pack("!HH", 17, 26)
        struct.pack_into("!H", frame, 40, checksum(pseudo_header + frame[34:]))
    return bytes(frame)


def checksum(octets: bytes | bytearray) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def arp() -> bytes:
    addresses = bytes.fromhex("0000000000010a0000010000000000000a000002")
    return b"\xff" * 6 + bytes.fromhex("00000000000108060001080006040001") + addresses + b"\0" * 18


def tcp() -> bytes:
    header = bytes.fromhex("45000028000000004006 66ce0a0000010a000002")
    segment = bytes.fromhex("000100020000000000000000500220007bdd0000")
    return cases.FRAME[:14] + header + segment + b"\0" * 6


FRAMES = [udp(), udp(dscp=46), udp(port=5000), udp(port=5000, dscp=10)]
FRAMES += [udp(port=9, with_checksum=True), tcp(), arp()]


def set_dscp_and_output(dscp: int, *ports: int) -> list[Any]:
    return [*cases.set_fields(ip_dscp=dscp), parser.OFPActionSetQueue(1), *cases.out(*ports)]


RULES: dict[str, Callable[[], list[Any]]] = {
    "nothing": list,
    "flooded": lambda: [cases.flow(actions=cases.out(FLOOD))],
    "back where it came from": lambda: [cases.flow(actions=cases.out(1, ofproto.OFPP_IN_PORT, 2))],
    "marked, by port": lambda: [
        cases.flow(priority=9, match={**UDP, "udp_dst": 5000}, actions=set_dscp_and_output(46, 2)),
        cases.flow(priority=8, match={"eth_type": 0x0800}, actions=set_dscp_and_output(0, 3)),
        cases.flow(priority=7, match={"eth_type": 0x0806}, actions=cases.out(CONTROLLER)),
    ],
    "by what was marked": lambda: [
        cases.flow(match={"eth_type": 0x0800, "ip_dscp": 46}, actions=cases.out(3)),
        cases.flow(priority=1, actions=cases.out(2)),
    ],
    "marked, then by mark": lambda: [
        cases.flow(match={**UDP, "udp_dst": 5000}, actions=cases.set_fields(ip_dscp=46), goto=1),
        cases.flow(priority=1, actions=[], goto=1),
        cases.flow(table_id=1, match={"eth_type": 0x0800, "ip_dscp": 46}, actions=cases.out(3)),
        cases.flow(table_id=1, priority=1, actions=cases.out(2)),
    ],
    "marked between two outputs": lambda: [
        cases.flow(match=UDP, actions=cases.out(2) + set_dscp_and_output(12, 3)),
    ],
    "metered": lambda: [
        cases.meter(1, rate=10_000, burst=1_000),
        cases.flow(meter=1, actions=cases.out(2)),
    ],
    "missed": lambda: [cases.flow(priority=0, cookie=4, actions=cases.out(CONTROLLER))],
    "table after table, then missed": lambda: [
        cases.flow(match=UDP, actions=cases.out(2), goto=4),
        cases.flow(table_id=4, match={"eth_type": 0x0806}, actions=cases.out(3)),
    ],
    "written": lambda: [
        cases.flow(
            instructions=[
                parser.OFPInstructionActions(ofproto.OFPIT_WRITE_ACTIONS, cases.out(3)),
                parser.OFPInstructionGotoTable(2),
            ]
        ),
        cases.flow(table_id=2, match=UDP, actions=cases.out(2)),
    ],
    "by address and mask": lambda: [
        cases.flow(
            match={"eth_type": 0x0800, "ipv4_dst": ("10.0.0.0", "255.255.255.0")},
            actions=cases.out(3),
        ),
        cases.flow(match={"eth_dst": "ff:ff:ff:ff:ff:ff"}, actions=cases.out(2)),
    ],
    "rewritten": lambda: [
        cases.flow(
            match=UDP,
            actions=cases.set_fields(eth_dst="00:00:00:00:00:09", ipv4_dst="10.0.0.9", udp_dst=99)
            + cases.out(2),
        )
    ],
}


class RealPorts:
    """The far ends of Open vSwitch's internal ports."""

    def __init__(self, names: list[str]) -> None:
        self._sockets = []
        for name in names:
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            port.bind((name, 0))
            port.setblocking(False)
            self._sockets.append(port)

    def arrivals(self, frames: list[bytes], expected: int) -> list[list[str]]:
        """Send frames into port 1; return the frames that arrived at each port."""
        for frame in frames:
            self._sockets[0].send(frame)
        arrived: list[list[str]] = [[] for _ in self._sockets]
        until = time.monotonic() + ARRIVAL_SECONDS
        while time.monotonic() < until:
            for port, found in zip(self._sockets, arrived, strict=True):
                found += self._read(port)
            if sum(map(len, arrived)) >= expected:
                until = min(until, time.monotonic() + GRACE_SECONDS)
            time.sleep(0.002)
        return [sorted(found) for found in arrived]

    @staticmethod
    def _read(port: socket.socket) -> list[str]:
        found: list[str] = []
        while True:
            try:
                frame, (_, _, kind, *_) = port.recvfrom(2048)
            except BlockingIOError:
                return found
            if kind != OUTGOING:
                found.append(frame.hex())


def fake_arrivals(network: FakeNetwork) -> list[list[str]]:
    hosts = network.hosts.values()
    for host in hosts:
        host.frames.clear()
    for frame in FRAMES:
        network.switches["fake"].inject(1, frame)
    return [sorted(frame.hex() for frame in host.frames) for host in hosts]


def frame_differences(
    ports: RealPorts, real: RawChannel, fake: RawChannel, network: FakeNetwork
) -> list[str]:
    found = []
    for name, rules in RULES.items():
        for channel in (real, fake):
            cases.clear(channel)
            channel.send_all(rules())
            channel.barrier()
        # After the barrier, Open vSwitch may still use cached flows until it revalidates them.
        subprocess.run(["ovs-appctl", "revalidator/wait"], check=True)
        of_fake = fake_arrivals(network)
        of_real = ports.arrivals(FRAMES, sum(map(len, of_fake)))
        inputs = [_packet_ins(channel) for channel in (real, fake)]
        if [of_real, inputs[0]] != [of_fake, inputs[1]]:
            found.append(
                f"{name}:\n  Open vSwitch {of_real} {inputs[0]}\n  fake {of_fake} {inputs[1]}"
            )
    return found


def _packet_ins(channel: RawChannel) -> list[Any]:
    return sorted(
        (m.reason, m.table_id, m.cookie, m.match["in_port"], m.data.hex())
        for m in channel.barrier()
        if m.msg_type == ofproto.OFPT_PACKET_IN
    )

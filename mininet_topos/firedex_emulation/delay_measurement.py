"""How long a link really takes, each way: probes sent in at one end and timed at the other.

Probes have an EtherType for experiments and go to the address that bridges never forward, so that
they may cross a network in use.
"""

import select
import socket
import statistics
import struct
import time
from dataclasses import dataclass

from firedex_emulation.network_namespaces import socket_in_namespace_of

__all__ = ["LinkEnd", "MeasuredDelay", "measure_delay"]

PROBES = 15
PROBE_GAP_SECONDS = 0.001
PROBE_KIND = 0x88B5
NEVER_FORWARDED = bytes.fromhex("0180c200000e")
PATIENCE_SECONDS = 0.5
SOL_PACKET = 263
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
STAMP = struct.Struct("=qq")
NUMBER = struct.Struct("!QI")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """An interface, and a process in whose network namespace it is."""

    pid: int
    interface: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDelay:
    """Median one-way times, and how many of the probes arrived; None where none did."""

    forward_seconds: float | None
    back_seconds: float | None
    arrived: int
    sent: int

    @property
    def round_trip_seconds(self) -> float | None:
        """There and back."""
        if self.forward_seconds is None or self.back_seconds is None:
            return None
        return self.forward_seconds + self.back_seconds


def measure_delay(one: LinkEnd, other: LinkEnd, *, at_most_seconds: float) -> MeasuredDelay:
    """Measure the link between two ends that are up; wait ``at_most_seconds`` for a probe."""
    with _open(one) as first, _open(other) as second:
        forward = _one_way(first, second, at_most_seconds)
        back = _one_way(second, first, at_most_seconds)
    return MeasuredDelay(
        forward_seconds=statistics.median(forward) if forward else None,
        back_seconds=statistics.median(back) if back else None,
        arrived=len(forward) + len(back),
        sent=2 * PROBES,
    )


def _open(end: LinkEnd) -> socket.socket:
    # The interface's own socket is bound to all kinds: a tap sees frames before a switch does.
    opened = socket_in_namespace_of(
        end.pid, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
    )
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    opened.bind((end.interface, ETH_P_ALL))
    return opened


def _one_way(sender: socket.socket, receiver: socket.socket, at_most_seconds: float) -> list[float]:
    series = time.monotonic_ns()
    header = NEVER_FORWARDED + sender.getsockname()[4] + struct.pack("!H", PROBE_KIND)
    sent_at: dict[int, int] = {}
    arrived: list[float] = []
    until = time.monotonic() + PROBES * PROBE_GAP_SECONDS + at_most_seconds + PATIENCE_SECONDS
    while len(arrived) < PROBES and time.monotonic() < until:
        if len(sent_at) < PROBES:
            number = len(sent_at)
            sent_at[number] = time.time_ns()
            sender.send((header + NUMBER.pack(series, number)).ljust(64, b"\0"))
        patience = PROBE_GAP_SECONDS if len(sent_at) < PROBES else 0.05
        while select.select([receiver], [], [], patience)[0]:
            frame, ancillary, _, _ = receiver.recvmsg(128, socket.CMSG_SPACE(STAMP.size))
            patience = 0.0
            if len(frame) < 14 + NUMBER.size or frame[12:14] != header[12:14]:
                continue
            its_series, number = NUMBER.unpack_from(frame, 14)
            if its_series != series:
                continue
            seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
            arrived.append((seconds * 10**9 + nanoseconds - sent_at[number]) / 1e9)
    return arrived

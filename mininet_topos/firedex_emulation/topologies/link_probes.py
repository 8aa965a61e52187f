"""Measuring the delay of a link with probe frames, and sockets in other network namespaces.

Probes have an experimental EtherType and a destination that bridges never forward, so they may also
cross a network in use.
"""

import ctypes
import os
import select
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass

__all__ = ["LinkEnd", "MeasuredDelay", "measure_delay", "socket_in_namespace_of"]

PROBES = 15
PROBE_GAP_SECONDS = 0.001
PROBE_KIND = 0x88B5
NEVER_FORWARDED_ADDRESS = bytes.fromhex("0180c200000e")
TIMEOUT_SECONDS = 0.5
SOL_PACKET = 263
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
STAMP = struct.Struct("=qq")
NUMBER = struct.Struct("!QI")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """An interface, and the id of a process in its network namespace."""

    pid: int
    interface: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDelay:
    """Median one-way delays (None if no probe arrived) and the numbers of probes."""

    forward_seconds: float | None
    back_seconds: float | None
    arrived: int
    sent: int

    @property
    def round_trip_seconds(self) -> float | None:
        """The sum of both directions; None if one is unknown."""
        if self.forward_seconds is None or self.back_seconds is None:
            return None
        return self.forward_seconds + self.back_seconds


def measure_delay(one: LinkEnd, other: LinkEnd, *, at_most_seconds: float) -> MeasuredDelay:
    """Measure the delay between two ends that are up; wait ``at_most_seconds`` for a probe."""
    with _open_packet_socket(one) as first, _open_packet_socket(other) as second:
        forward = _measure_one_way(first, second, at_most_seconds)
        back = _measure_one_way(second, first, at_most_seconds)
    return MeasuredDelay(
        forward_seconds=statistics.median(forward) if forward else None,
        back_seconds=statistics.median(back) if back else None,
        arrived=len(forward) + len(back),
        sent=2 * PROBES,
    )


def _open_packet_socket(end: LinkEnd) -> socket.socket:
    # Bound to all EtherTypes: a packet tap sees frames before the switch does.
    opened = socket_in_namespace_of(
        end.pid, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
    )
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    opened.bind((end.interface, ETH_P_ALL))
    return opened


def _measure_one_way(
    sender: socket.socket, receiver: socket.socket, at_most_seconds: float
) -> list[float]:
    series = time.monotonic_ns()
    header = NEVER_FORWARDED_ADDRESS + sender.getsockname()[4] + struct.pack("!H", PROBE_KIND)
    sent_at: dict[int, int] = {}
    arrived: list[float] = []
    until = time.monotonic() + PROBES * PROBE_GAP_SECONDS + at_most_seconds + TIMEOUT_SECONDS
    while len(arrived) < PROBES and time.monotonic() < until:
        if len(sent_at) < PROBES:
            number = len(sent_at)
            sent_at[number] = time.time_ns()
            sender.send((header + NUMBER.pack(series, number)).ljust(64, b"\0"))
        timeout = PROBE_GAP_SECONDS if len(sent_at) < PROBES else 0.05
        while select.select([receiver], [], [], timeout)[0]:
            frame, ancillary, _, _ = receiver.recvmsg(128, socket.CMSG_SPACE(STAMP.size))
            timeout = 0.0
            if len(frame) < 14 + NUMBER.size or frame[12:14] != header[12:14]:
                continue
            its_series, number = NUMBER.unpack_from(frame, 14)
            if its_series != series:
                continue
            seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
            arrived.append((seconds * 10**9 + nanoseconds - sent_at[number]) / 1e9)
    return arrived


CLONE_NEWNET = 0x40000000


def socket_in_namespace_of(pid: int, family: int, kind: int, protocol: int) -> socket.socket:
    """Return a socket in the network namespace of ``pid``.

    A temporary thread enters the namespace, so this process stays in its own.
    """
    result: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    result.append(OSError(number, os.strerror(number)))
                    return
                result.append(socket.socket(family, kind, protocol))
            finally:
                os.close(namespace)
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]

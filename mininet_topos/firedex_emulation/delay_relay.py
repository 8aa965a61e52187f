"""The process in the middle of a delayed link: holds every frame for the link's delay.

::

    one end ══ veth ══ [ "one" — relay — "other" ] ══ veth ══ other end

Runs by itself (``python delay_relay.py FORWARD_NS BACK_NS``) in a network namespace of its own, so
that the kernel there has no address and answers nothing. It says ``here`` when the namespace is
made, waits for a line while the two interfaces are put into it, says ``ready``, and relays until
its standard input ends. When it goes its namespace goes, and both ends with it: a link whose relay
has died is cut, not undelayed.

Frames leave in the order in which they came, unchanged, VLAN tags included. Time counts from when
the kernel received a frame, so that a late relay does not lengthen the delay further.

Only the standard library: it has to start quickly and to know nothing of FireDeX.
"""

import ctypes
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

__all__ = ["INTERFACES", "Direction"]

INTERFACES = ("one", "other")
LARGEST_MTU = 65535
LARGEST_FRAME_BYTES = 65536 + 64
MOST_FRAMES_HELD = 200_000
RECEIVE_BUFFER_BYTES = 32 * 2**20
FRAMES_A_TURN = 64

CLONE_NEWNET = 0x40000000
PR_SET_TIMERSLACK = 29
ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_QDISC_BYPASS = 20
PACKET_IGNORE_OUTGOING = 23
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
CHECKSUM_NOT_READY = 1 << 3
VLAN_VALID = 1 << 4
VLAN_KIND_VALID = 1 << 6
AUXILIARY = struct.Struct("=IIIHHHH")
TIME = struct.Struct("=qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(AUXILIARY.size) + socket.CMSG_SPACE(TIME.size)


class Direction:
    """Frames from one interface to the other, each held for ``delay_ns``."""

    def __init__(self, source: socket.socket, target: socket.socket, delay_ns: int) -> None:
        self.source, self._target, self._delay_ns = source, target, delay_ns
        self._held: deque[tuple[int, bytes]] = deque()
        self.refused = 0

    def take(self) -> None:
        """Take in what has arrived; not so much that the other direction is kept waiting."""
        receive = self.source.recvmsg
        for _ in range(FRAMES_A_TURN):
            try:
                frame, ancillary, _, _ = receive(LARGEST_FRAME_BYTES, ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError:  # the interface went down: its link is cut, for now
                return
            self._hold(frame, ancillary)

    def _hold(self, frame: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        age_ns = 0
        for _, kind, data in ancillary:
            if kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = TIME.unpack_from(data)
                # A clock that is set meanwhile must neither hold a frame for ever nor hurry it.
                age_ns = time.time_ns() - (seconds * 1_000_000_000 + nanoseconds)
                age_ns = min(max(age_ns, 0), self._delay_ns)
            elif kind == PACKET_AUXDATA:
                status, _, _, _, _, tag, tag_kind = AUXILIARY.unpack_from(data)
                if status & CHECKSUM_NOT_READY:
                    self._refuse("its checksum is left to hardware (ethtool -K … tx off)")
                    return
                if status & VLAN_VALID:  # the kernel has taken the tag off: put it back
                    known = tag_kind if status & VLAN_KIND_VALID else 0x8100
                    frame = frame[:12] + struct.pack("!HH", known, tag) + frame[12:]
        if len(self._held) >= MOST_FRAMES_HELD:
            self._refuse(f"{MOST_FRAMES_HELD} frames are being held")
            return
        self._held.append((time.monotonic_ns() - age_ns + self._delay_ns, frame))

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        if self.refused == 1:
            print(f"a frame was not relayed: {reason}", file=sys.stderr, flush=True)

    def release(self) -> int | None:
        """Send what is due; when the next frame is due, if one is held."""
        held = self._held
        while held:
            due, frame = held[0]
            if due > time.monotonic_ns():
                return due
            held.popleft()
            try:
                self._target.send(frame)
            except OSError as error:  # the far end is down or does not take frames this large
                self._refuse(str(error))
        return None


def main(forward_ns: str, back_ns: str) -> None:
    """Relay until standard input ends."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNET) != 0:
        sys.exit(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    library.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    for place in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{place}/disable_ipv6")
        if setting.exists():  # else its own neighbour discovery would be on the link
            setting.write_text("1")
    with suppress(OSError):  # then it is as on time as the machine allows; it is measured anyway
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    print("here", flush=True)
    if not sys.stdin.readline():
        return
    for name in INTERFACES:
        subprocess.run(["ip", "link", "set", name, "mtu", str(LARGEST_MTU), "up"], check=True)
    one, other = (_listen(name) for name in INTERFACES)
    print("ready", flush=True)
    _relay(Direction(one, other, int(forward_ns)), Direction(other, one, int(back_ns)))


def _listen(interface: str) -> socket.socket:
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    for option in (PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, PACKET_QDISC_BYPASS):
        listener.setsockopt(SOL_PACKET, option, 1)
    listener.bind((interface, ETH_P_ALL))
    listener.setblocking(False)
    return listener


def _relay(forward: Direction, back: Direction) -> None:
    lifeline = sys.stdin.fileno()
    sources = {forward.source.fileno(): forward, back.source.fileno(): back}
    waiting = [lifeline, *sources]
    while True:
        due = [at for at in (forward.release(), back.release()) if at is not None]
        patience = max(min(due) - time.monotonic_ns(), 0) / 1e9 if due else None
        readable, _, _ = select.select(waiting, [], [], patience)
        for descriptor in readable:
            if descriptor == lifeline:
                if not os.read(lifeline, 1):
                    return
            else:
                sources[descriptor].take()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The process in the middle of delayed links, which holds every frame for the delay.

::

    one end ══ veth ══ [ "one0" — relay — "other0" ] ══ veth ══ other end

It runs as ``python delay_relay.py FORWARD_NS BACK_NS [FORWARD_NS BACK_NS …]``, with two delays for
each link, in its own network namespace, where the kernel has no address and replies to nothing. It
prints ``created`` when the namespace exists, waits for a line while its parent moves the interfaces
into it, prints ``ready``, and relays until its standard input is closed. When it ends, the kernel
removes its namespace and both ends of every link: a link whose relay has died is down; it does not
forward without delay.

Frames are forwarded in order and unchanged, including VLAN tags. The delay counts from the time at
which the kernel received a frame, so scheduling of this process does not add to it.

It imports only the standard library, so that it starts quickly.
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

__all__ = ["PROGRAM", "Direction", "interface_names"]

PROGRAM = __file__
MAX_MTU = 65535
MAX_FRAME_BYTES = 65536 + 64
MAX_FRAMES_HELD = 200_000
RECEIVE_BUFFER_BYTES = 32 * 2**20
MAX_FRAMES_PER_TURN = 64

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


def interface_names(number: int) -> tuple[str, str]:
    """Return the names of the two interfaces of a link in the namespace of the relay."""
    return f"one{number}", f"other{number}"


class Direction:
    """Frames from one interface to the other, each held for ``delay_ns``."""

    def __init__(self, source: socket.socket, target: socket.socket, delay_ns: int) -> None:
        self.source, self._target, self._delay_ns = source, target, delay_ns
        self._held: deque[tuple[int, bytes]] = deque()
        self.dropped = 0

    def receive_frames(self) -> None:
        """Receive a limited number of frames, so that the other direction is served as well."""
        receive = self.source.recvmsg
        for _ in range(MAX_FRAMES_PER_TURN):
            try:
                frame, ancillary, _, _ = receive(MAX_FRAME_BYTES, ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError:  # the interface is down
                return
            self._hold(frame, ancillary)

    def _hold(self, frame: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        age_ns = 0
        for _, kind, data in ancillary:
            if kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = TIME.unpack_from(data)
                # The delay stays between 0 and the requested one even if the clock is set.
                age_ns = time.time_ns() - (seconds * 1_000_000_000 + nanoseconds)
                age_ns = min(max(age_ns, 0), self._delay_ns)
            elif kind == PACKET_AUXDATA:
                status, _, _, _, _, tag, tag_kind = AUXILIARY.unpack_from(data)
                if status & CHECKSUM_NOT_READY:
                    self._drop("its checksum was left to hardware; run ethtool -K INTERFACE tx off")
                    return
                if status & VLAN_VALID:  # the kernel removed the tag; insert it again
                    known = tag_kind if status & VLAN_KIND_VALID else 0x8100
                    frame = frame[:12] + struct.pack("!HH", known, tag) + frame[12:]
        if len(self._held) >= MAX_FRAMES_HELD:
            self._drop(f"the relay already holds {MAX_FRAMES_HELD} frames")
            return
        self._held.append((time.monotonic_ns() - age_ns + self._delay_ns, frame))

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        if self.dropped == 1:
            print(f"a frame was dropped: {reason}", file=sys.stderr, flush=True)

    def send_due_frames(self) -> int | None:
        """Send all frames that are due; return when the next one is due, if any."""
        held = self._held
        while held:
            due, frame = held[0]
            if due > time.monotonic_ns():
                return due
            held.popleft()
            try:
                self._target.send(frame)
            except OSError as error:  # the other end is down, or its MTU is smaller
                self._drop(str(error))
        return None


def main(*delays_ns: str) -> None:
    """Relay until standard input ends; ``delays_ns`` are those of each link, there and back."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNET) != 0:
        sys.exit(f"cannot create a network namespace: {os.strerror(ctypes.get_errno())}")
    library.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    for place in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{place}/disable_ipv6")
        if setting.exists():  # otherwise neighbour discovery packets would appear on the link
            setting.write_text("1")
    with suppress(OSError):  # a higher priority only improves timing, which is measured anyway
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    print("created", flush=True)
    if not sys.stdin.readline():
        return
    directions: list[Direction] = []
    for number in range(len(delays_ns) // 2):
        for name in interface_names(number):
            subprocess.run(["ip", "link", "set", name, "mtu", str(MAX_MTU), "up"], check=True)
        one, other = (_listen(name) for name in interface_names(number))
        forward_ns, back_ns = (int(delay) for delay in delays_ns[2 * number : 2 * number + 2])
        directions += [Direction(one, other, forward_ns), Direction(other, one, back_ns)]
    print("ready", flush=True)
    _relay(directions)


def _listen(interface: str) -> socket.socket:
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    for option in (PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, PACKET_QDISC_BYPASS):
        listener.setsockopt(SOL_PACKET, option, 1)
    listener.bind((interface, ETH_P_ALL))
    listener.setblocking(False)
    return listener


def _relay(directions: list[Direction]) -> None:
    parent_pipe = sys.stdin.fileno()
    sources = {direction.source.fileno(): direction for direction in directions}
    waiting = [parent_pipe, *sources]
    while True:
        due = [at for direction in directions if (at := direction.send_due_frames()) is not None]
        timeout = max(min(due) - time.monotonic_ns(), 0) / 1e9 if due else None
        readable, _, _ = select.select(waiting, [], [], timeout)
        for descriptor in readable:
            if descriptor == parent_pipe:
                if not os.read(parent_pipe, 1):
                    return
            else:
                sources[descriptor].receive_frames()


if __name__ == "__main__":
    main(*sys.argv[1:])

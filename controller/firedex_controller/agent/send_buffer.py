"""The socket through which Open vSwitch's userspace datapath sends on every port.

All that waits in the queues of all ports is charged to it. At its usual size (212 992 bytes) it is
full long before the queues are, and then every class loses, the highest too, while no queue counts
a drop. ``net.core.wmem_default`` sets it for sockets made later, for the whole machine, and is read
only in network namespaces; so the agent, being root, enlarges this one socket where it is.
"""

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LARGE_BYTES", "SendBuffers", "bytes_of_packet", "send_sockets", "socket_of"]

LARGE_BYTES = 32 * 1024 * 1024
MOST_BYTES = 2**30 - 1
SO_SNDBUFFORCE = 32
PIDFD_GETFD = 438  # the same number on every architecture
DAEMON = "ovs-vswitchd"
PACKET_OVERHEAD = 256
HEADROOM_AND_TRAILER = 448


def bytes_of_packet(mtu: int) -> int:
    """What the kernel charges for a packet at most: the next power of two, and its overhead."""
    return int(2 ** (mtu + HEADROOM_AND_TRAILER - 1).bit_length()) + PACKET_OVERHEAD


class SendBuffers:
    """The send buffers of the Open vSwitch in this network namespace."""

    def smallest(self) -> int | None:
        """Their size; none if there are none (yet)."""
        return min(_sizes(), default=None)

    def enlarge(self, wanted_bytes: int) -> int | None:
        """Make them at least that large; return their size, none if there are none (yet)."""
        return min(_sizes(wanted_bytes), default=None)


def _sizes(wanted_bytes: int = 0) -> Iterator[int]:
    for pid, descriptor in send_sockets():
        with contextlib.suppress(OSError), socket_of(pid, descriptor) as shared:
            yield _enlarged(shared, wanted_bytes)


def _enlarged(shared: socket.socket, wanted_bytes: int) -> int:
    size = shared.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    if size < wanted_bytes:
        with contextlib.suppress(OSError):  # then it stays as it is, and health says so
            # The kernel doubles what it is given.
            given = min(wanted_bytes + 1, MOST_BYTES) // 2
            shared.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, given)
        size = shared.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return size


def send_sockets() -> Iterator[tuple[int, int]]:
    """Process and descriptor of each packet socket that receives nothing: that one sends."""
    here = _link(Path("/proc/self/ns/net"))
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or (process / "comm").read_text().strip() != DAEMON:
                continue
            if _link(process / "ns" / "net") != here:
                continue
            lines = (process / "net" / "packet").read_text().splitlines()[1:]
            listed = [line.split() for line in lines]
            senders = {f"socket:[{row[8]}]" for row in listed if row[3] == "0000"}
            for descriptor in (process / "fd").iterdir():
                if senders and _link(descriptor) in senders:
                    yield int(process.name), int(descriptor.name)
        except (OSError, IndexError):  # it has ended meanwhile
            continue


def socket_of(pid: int, descriptor: int) -> socket.socket:
    """Another process's socket, for us to look at too; OSError if it is gone or out of reach."""
    handle = os.pidfd_open(pid)
    try:
        ours = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, handle, descriptor, 0)
    finally:
        os.close(handle)
    if ours < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {descriptor} of process {pid}")
    return socket.socket(fileno=ours)


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None

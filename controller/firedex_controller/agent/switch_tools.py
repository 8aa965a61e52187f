"""The tools of a switch host: ``ovs-vsctl``, ``tc``, and the send buffer of Open vSwitch.

Commands are lists of arguments; no shell is involved.

Open vSwitch's userspace datapath sends on all ports through one socket, and all packets queued on
all ports are charged to its send buffer. With the default size (212 992 bytes) the buffer is full
long before the queues are; then packets of every class are lost, and no queue counts a drop.
``net.core.wmem_default`` sets the size of sockets created later, for the whole machine, and is
read-only in network namespaces; so the agent, which is root, enlarges this one socket in place.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from firedex_controller.agent.observed_tree import (
    ClassCounts,
    Database,
    ObservedTree,
    class_counts,
    read_database,
    read_tree,
)
from firedex_controller.agent.tree_changes import Command
from firedex_controller.errors import QueuesNotApplied

__all__ = [
    "DEFAULT_BUFFER_BYTES",
    "SendBuffers",
    "SwitchTools",
    "Tools",
    "bytes_of_packet",
    "duplicate_socket",
    "send_sockets",
]

COMMAND_TIMEOUT_SECONDS = 5
DEFAULT_MTU = 1500
SIOCGIFMTU = 0x8921
TABLES = (
    ("name,datapath_id,datapath_type,ports", "bridge"),
    ("_uuid,name,qos,external_ids", "port"),
    ("_uuid,type,other_config,queues,external_ids", "qos"),
    ("_uuid,other_config,external_ids", "queue"),
    ("ovs_version", "open_vswitch"),
)


class Tools(Protocol):
    """The interface between `PortKeeper` and a switch host."""

    def database(self) -> Database:
        """Read the switch's database."""

    def tree(self, port: str) -> ObservedTree:
        """Read the queues of a port from the kernel."""

    def counts(self, port: str) -> dict[int, ClassCounts]:
        """Return the counters of a port's classes, by minor number."""

    def mtu(self, port: str) -> int:
        """Return the MTU of a port."""

    def run(self, commands: Sequence[Command]) -> None:
        """Run commands in order; raise QueuesNotApplied for the first that fails."""

    def version(self) -> str:
        """Return the version of Open vSwitch."""


class SwitchTools:
    """The tools of this machine."""

    def database(self) -> Database:
        """Read the switch's database."""
        command = ["ovs-vsctl", "--format=json"]
        for columns, table in TABLES:
            command += ["--", f"--columns={columns}", "list", table]
        return read_database(_output(command))

    def tree(self, port: str) -> ObservedTree:
        """Read the queues of a port from the kernel."""
        qdiscs = _output(["tc", "-j", "qdisc", "show", "dev", port])
        classes = _output(["tc", "class", "show", "dev", port])
        if not classes:
            return read_tree(qdiscs, "", "")
        return read_tree(
            qdiscs, classes, _output(["tc", "filter", "show", "dev", port, "parent", "1:"])
        )

    def counts(self, port: str) -> dict[int, ClassCounts]:
        """Return the counters of a port's classes, by minor number."""
        qdiscs = _output(["tc", "-s", "-j", "qdisc", "show", "dev", port])
        return class_counts(qdiscs, _output(["tc", "-s", "class", "show", "dev", port]))

    def mtu(self, port: str) -> int:
        """Return the MTU of a port."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16si12x", port.encode(), 0)
            try:
                reply = fcntl.ioctl(any_socket, SIOCGIFMTU, request)
            except OSError:
                return DEFAULT_MTU
        return int(struct.unpack("16si12x", reply)[1])

    def run(self, commands: Sequence[Command]) -> None:
        """Run commands in order; consecutive ``tc`` commands run in one process."""
        for tool, group in groupby(commands, key=lambda command: command[0]):
            if tool == "tc":
                _run_batch(list(group))
            else:
                for command in group:
                    _output(command)

    def version(self) -> str:
        """Return the version of Open vSwitch."""
        return _output(["ovs-vswitchd", "--version"]).splitlines()[0].split()[-1]


def _output(command: Sequence[str]) -> str:
    if command[0] == "ovs-vsctl":
        command = [command[0], f"--timeout={COMMAND_TIMEOUT_SECONDS}", *command[1:]]
    completed = _run(command)
    if completed.returncode != 0:
        output = completed.stderr.strip() or f"exit {completed.returncode}"
        if "signal 14" in output:  # printed by ovs-vsctl after its timeout
            output = f"timeout of {COMMAND_TIMEOUT_SECONDS} s; is ovs-vswitchd running? ({output})"
        raise QueuesNotApplied(" ".join(command), output)
    return completed.stdout


def _run_batch(commands: Sequence[Command]) -> None:
    """Run ``tc`` commands in one process, so that a tree is complete within milliseconds."""
    lines = "".join(" ".join(command[1:]) + "\n" for command in commands)
    completed = _run(["tc", "-batch", "-"], lines)
    if completed.returncode == 0:
        return
    output = completed.stderr.strip()
    number = output.rpartition("Command failed -:")[2].strip()
    failed = commands[int(number) - 1] if number.isdecimal() else commands[0]
    detail = output.partition("Command failed")[0].strip() or f"exit {completed.returncode}"
    raise QueuesNotApplied(" ".join(failed), detail)


def _run(command: Sequence[str], half_size: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input=half_size,
            stdin=subprocess.DEVNULL if half_size is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * COMMAND_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueuesNotApplied(" ".join(command), str(error)) from error


DEFAULT_BUFFER_BYTES = 32 * 1024 * 1024
MAX_BUFFER_BYTES = 2**30 - 1
SO_SNDBUFFORCE = 32
PIDFD_GETFD = 438  # the same number on every architecture
DAEMON = "ovs-vswitchd"
PACKET_OVERHEAD = 256
HEADROOM_AND_TRAILER = 448


def bytes_of_packet(mtu: int) -> int:
    """Return what the kernel charges for a packet: the next power of two, and an overhead."""
    return int(2 ** (mtu + HEADROOM_AND_TRAILER - 1).bit_length()) + PACKET_OVERHEAD


class SendBuffers:
    """The send buffers of the Open vSwitch in this network namespace."""

    def smallest(self) -> int | None:
        """Return the smallest size; None if there is no such socket (yet)."""
        return min(_sizes(), default=None)

    def enlarge(self, needed_bytes: int) -> int | None:
        """Enlarge them; return the smallest size, None if there is no such socket (yet)."""
        return min(_sizes(needed_bytes), default=None)


def _sizes(needed_bytes: int = 0) -> Iterator[int]:
    for pid, descriptor in send_sockets():
        with contextlib.suppress(OSError), duplicate_socket(pid, descriptor) as shared:
            yield _enlarge(shared, needed_bytes)


def _enlarge(shared: socket.socket, needed_bytes: int) -> int:
    size = shared.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    if size < needed_bytes:
        with contextlib.suppress(OSError):  # the buffer keeps its size, and ``health`` reports it
            # The kernel doubles the value.
            half_size = min(needed_bytes + 1, MAX_BUFFER_BYTES) // 2
            shared.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, half_size)
        size = shared.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return size


def send_sockets() -> Iterator[tuple[int, int]]:
    """Yield process id and descriptor of each packet socket that only sends."""
    own_namespace = _link(Path("/proc/self/ns/net"))
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or (process / "comm").read_text().strip() != DAEMON:
                continue
            if _link(process / "ns" / "net") != own_namespace:
                continue
            lines = (process / "net" / "packet").read_text().splitlines()[1:]
            rows = [line.split() for line in lines]
            senders = {f"socket:[{row[8]}]" for row in rows if row[3] == "0000"}
            for descriptor in (process / "fd").iterdir():
                if senders and _link(descriptor) in senders:
                    yield int(process.name), int(descriptor.name)
        except (OSError, IndexError):  # the process has ended
            continue


def duplicate_socket(pid: int, descriptor: int) -> socket.socket:
    """Duplicate a socket of another process; raise OSError if that is not possible."""
    handle = os.pidfd_open(pid)
    try:
        duplicate = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, handle, descriptor, 0)
    finally:
        os.close(handle)
    if duplicate < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {descriptor} of process {pid}")
    return socket.socket(fileno=duplicate)


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None

"""Running ``ovs-vsctl`` and ``tc``. Commands are lists of words, never a shell's."""

import fcntl
import socket
import struct
import subprocess
from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from firedex_controller.agent.errors import QueuesNotApplied
from firedex_controller.agent.observed_tree import (
    ClassCounts,
    Database,
    ObservedTree,
    class_counts,
    read_database,
    read_tree,
)
from firedex_controller.agent.tree_changes import Command

__all__ = ["SwitchTools", "Tools"]

PATIENCE_SECONDS = 5
USUAL_MTU = 1500
SIOCGIFMTU = 0x8921
TABLES = (
    ("name,datapath_id,datapath_type,ports", "bridge"),
    ("_uuid,name,qos,external_ids", "port"),
    ("_uuid,type,other_config,queues,external_ids", "qos"),
    ("_uuid,other_config,external_ids", "queue"),
    ("ovs_version", "open_vswitch"),
)


class Tools(Protocol):
    """What the keeper of ports needs of the switch host."""

    def database(self) -> Database:
        """What the switch's database says now."""

    def tree(self, port: str) -> ObservedTree:
        """What the kernel has on a port now."""

    def counts(self, port: str) -> dict[int, ClassCounts]:
        """The counters of a port's classes, by minor number."""

    def mtu(self, port: str) -> int:
        """The size of the port's largest packet."""

    def run(self, commands: Sequence[Command]) -> None:
        """Run commands in their order; QueuesNotApplied names the first that fails."""

    def version(self) -> str:
        """Open vSwitch's version."""


class SwitchTools:
    """The tools of the machine."""

    def database(self) -> Database:
        """What the switch's database says now."""
        words = ["ovs-vsctl", "--format=json"]
        for columns, table in TABLES:
            words += ["--", f"--columns={columns}", "list", table]
        return read_database(_output(words))

    def tree(self, port: str) -> ObservedTree:
        """What the kernel has on a port now."""
        qdiscs = _output(["tc", "-j", "qdisc", "show", "dev", port])
        classes = _output(["tc", "class", "show", "dev", port])
        if not classes:
            return read_tree(qdiscs, "", "")
        return read_tree(
            qdiscs, classes, _output(["tc", "filter", "show", "dev", port, "parent", "1:"])
        )

    def counts(self, port: str) -> dict[int, ClassCounts]:
        """The counters of a port's classes, by minor number."""
        qdiscs = _output(["tc", "-s", "-j", "qdisc", "show", "dev", port])
        return class_counts(qdiscs, _output(["tc", "-s", "class", "show", "dev", port]))

    def mtu(self, port: str) -> int:
        """The size of the port's largest packet."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16si12x", port.encode(), 0)
            try:
                answer = fcntl.ioctl(any_socket, SIOCGIFMTU, request)
            except OSError:
                return USUAL_MTU
        return int(struct.unpack("16si12x", answer)[1])

    def run(self, commands: Sequence[Command]) -> None:
        """Run commands in their order; neighbouring ones of tc in one process."""
        for tool, group in groupby(commands, key=lambda words: words[0]):
            if tool == "tc":
                _run_batch(list(group))
            else:
                for words in group:
                    _output(words)

    def version(self) -> str:
        """Open vSwitch's version."""
        return _output(["ovs-vswitchd", "--version"]).splitlines()[0].split()[-1]


def _output(words: Sequence[str]) -> str:
    if words[0] == "ovs-vsctl":
        words = [words[0], f"--timeout={PATIENCE_SECONDS}", *words[1:]]
    done = _done(words)
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit {done.returncode}"
        if "signal 14" in said:  # how ovs-vsctl says that its time is up
            said = f"not done within {PATIENCE_SECONDS} s; is ovs-vswitchd running? ({said})"
        raise QueuesNotApplied(" ".join(words), said)
    return done.stdout


def _run_batch(commands: Sequence[Command]) -> None:
    """One process for all, so that a tree is whole within a few milliseconds."""
    lines = "".join(" ".join(words[1:]) + "\n" for words in commands)
    done = _done(["tc", "-batch", "-"], lines)
    if done.returncode == 0:
        return
    said = done.stderr.strip()
    number = said.rpartition("Command failed -:")[2].strip()
    failed = commands[int(number) - 1] if number.isdecimal() else commands[0]
    detail = said.partition("Command failed")[0].strip() or f"exit {done.returncode}"
    raise QueuesNotApplied(" ".join(failed), detail)


def _done(words: Sequence[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueuesNotApplied(" ".join(words), str(error)) from error

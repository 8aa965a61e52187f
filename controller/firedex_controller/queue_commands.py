"""The commands that give a port its priority queues, and running them (as root, by the switch).

``set_queue`` does not steer in OVS's userspace datapath, so a filter on the packet's mark does; and
leaves drop their oldest packet, because a refused newest one makes OVS discard the rest of its send
batch, higher classes included.
"""

import re
import subprocess
from collections.abc import Sequence

from firedex.wire import Queue
from firedex_controller.errors import QueuesNotApplied

__all__ = ["apply_queues", "leaf_commands", "qos_command"]

PATIENCE_SECONDS = 20.0


def qos_command(port: str, bandwidth_bits_per_second: float, queues: Sequence[Queue]) -> list[str]:
    """One OVSDB transaction that gives ``port`` an HTB tree, a leaf for each class."""
    rate = str(round(bandwidth_bits_per_second))
    command = ["ovs-vsctl", "--timeout=10", "--", "set", "port", port, "qos=@qos", "--"]
    command += ["--id=@qos", "create", "qos", "type=linux-htb", f"other-config:max-rate={rate}"]
    command += [f"queues:{queue.priority}=@q{queue.priority}" for queue in queues]
    for queue in queues:
        least = str(round(queue.guaranteed_bits_per_second))
        command += ["--", f"--id=@q{queue.priority}", "create", "queue"]
        command += [f"other-config:min-rate={least}", f"other-config:max-rate={rate}"]
        command += [f"other-config:priority={queue.priority}"]
    return command


def leaf_commands(port: str, queues: Sequence[Queue]) -> list[list[str]]:
    """What OVS does not set up itself: head-drop leaves, and filters from mark to class."""
    commands = []
    for queue in queues:
        leaf = f"1:{queue.priority + 1:x}"
        limit = str(queue.limit_packets)
        commands.append(
            ["tc", "qdisc", "replace", "dev", port, "parent", leaf]
            + ["handle", f"{queue.priority + 16:x}:", "pfifo_head_drop", "limit", limit]
        )
        mark = f"0x{queue.dscp << 2:02x}"
        commands.append(
            ["tc", "filter", "add", "dev", port, "parent", "1:", "protocol", "ip", "prio", "1"]
            + ["u32", "match", "ip", "dsfield", mark, "0xfc", "flowid", leaf]
        )
    return commands


def apply_queues(port: str, bandwidth_bits_per_second: float, queues: Sequence[Queue]) -> None:
    """Set ``port`` up; a second time with other queues replaces the first, and nothing else."""
    before = _rows_of(port)
    _run(qos_command(port, bandwidth_bits_per_second, queues))
    for table, row in before:
        _run(["ovs-vsctl", "--timeout=10", "--", "--if-exists", "destroy", table, row])
    _try(["tc", "filter", "del", "dev", port, "parent", "1:"])
    for command in leaf_commands(port, queues):
        _run(command)


def _rows_of(port: str) -> list[tuple[str, str]]:
    """The rows that the port's present queues have in OVSDB."""
    qos = _run(["ovs-vsctl", "--timeout=10", "get", "port", port, "qos"]).strip()
    if qos == "[]":
        return []
    queues = _run(["ovs-vsctl", "--timeout=10", "get", "qos", qos, "queues"])
    return [("qos", qos), *(("queue", row) for row in re.findall(r"=([0-9a-f-]{36})", queues))]


def _try(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueuesNotApplied(" ".join(command), str(error)) from error


def _run(command: Sequence[str]) -> str:
    done = _try(command)
    if done.returncode != 0:
        raise QueuesNotApplied(" ".join(command), done.stderr.strip() or f"exit {done.returncode}")
    return done.stdout

"""Experiments with the switch agent in a sandbox; prints the results as JSON.

::

    near ── to-near [ bridge ] to-far ── far

The port ``to-far`` is shaped, by the real command.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from firedex.wire import ClassQueue, ShapedPort, to_plain
from firedex_controller.agent import AgentClient, AgentError, switch_tools, tree_changes
from firedex_controller.agent.switch_tools import SwitchTools
from firedex_controller.rules import dscp_of_class
from firedex_emulation.testbed.sandbox import OVS_RUN, enter_sandbox, start_open_vswitch
from tests.on_switches.programs.marked_traffic import LARGE_BYTES, SO_RCVBUFFORCE
from tests.on_switches.programs.marked_traffic import __file__ as traffic_program

PORT = "to-far"
FAR = "10.0.0.2"
LINK = 10e6
FRAME_BYTES = 1000
LINK_PACKETS = LINK / 8 / FRAME_BYTES
TOKEN = "token-of-the-tests"  # noqa: S105
AGENT = "from firedex_controller.agent.command import switch_agent; switch_agent()"
USUAL_BUFFER_BYTES = 212_992
PROGRAM = "tests.on_switches.programs.switch_agent"
SMALL_BUFFER_AGENT = f"from {PROGRAM} import keep_buffers_small as keep; keep(); {AGENT}"
TAIL_DROP_AGENT = f"from {PROGRAM} import drop_at_the_tail as drop; drop(); {AGENT}"


def run_command(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def build() -> None:
    start_open_vswitch()
    run_command("ovs-vsctl add-br br -- set bridge br datapath_type=netdev")
    for name, port, address in (("near", "to-near", "10.0.0.1"), ("far", "to-far", FAR)):
        run_command(f"ip netns add {name}")
        run_command(f"ip link add {port} type veth peer name eth0 netns {name}")
        run_command(f"ip link set {port} up")
        for words in (
            "sysctl -q net.ipv6.conf.all.disable_ipv6=1",
            f"ip addr add {address}/24 dev eth0",
            "ip link set eth0 up",
            "ethtool -K eth0 tx off",
        ):
            run_command(f"ip netns exec {name} {words}")
        run_command(f"ovs-vsctl add-port br {port}")
    enlarge_receive_buffers()


@contextmanager
def agent(port: int, program: str = AGENT) -> Iterator[tuple[AgentClient, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", program, "--listen", f"127.0.0.1:{port}"]
    environment = {**os.environ, "FIREDEX_SWITCH_AGENT_TOKEN": TOKEN}
    process = subprocess.Popen(command, env=environment)
    client = AgentClient(f"http://127.0.0.1:{port}", token=TOKEN)
    try:
        until(lambda: is_reachable(client))
        yield client, process
    finally:
        process.kill()
        process.wait()


def is_reachable(client: AgentClient) -> bool:
    try:
        client.bridges()
    except AgentError:
        return False
    return True


def until(condition: Callable[[], bool], timeout_seconds: float = 15) -> float:
    """Wait until ``condition`` is true; return the time in seconds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_seconds:
            raise RuntimeError(f"waited {timeout_seconds} s for a condition")
        time.sleep(0.02)
    return time.monotonic() - started


def make_shaped_port(
    *priorities: int, link: float = LINK, guaranteed: float = 12_000, limit: int = 150
) -> ShapedPort:
    return ShapedPort(
        bandwidth_bits_per_second=link,
        classes=tuple(
            ClassQueue(priority=p, guaranteed_bits_per_second=guaranteed, limit_packets=limit)
            for p in priorities
        ),
    )


def traffic(
    loads: dict[int, float],
    seconds: float,
    meanwhile: Callable[[], object] = lambda: None,
    *,
    together: bool = False,
) -> dict[int, dict[str, float]]:
    """Send each class at a share of the link; return delivered fractions and median delays."""
    streams = [
        {"number": p, "dscp": dscp_of_class(p) if p < 64 else 0, "rate": load * LINK_PACKETS}
        for p, load in loads.items()
    ]
    settings: dict[str, Any] = {"address": FAR, "seconds": seconds, "frame_bytes": FRAME_BYTES}
    settings |= {"streams": streams, "together": together}
    python = [sys.executable, traffic_program]
    with subprocess.Popen(
        ["ip", "netns", "exec", "far", *python, "receive"], stdout=subprocess.PIPE, text=True
    ) as receiver:
        receiver.stdout.readline()  # type: ignore[union-attr]
        with subprocess.Popen(
            ["ip", "netns", "exec", "near", *python, "send", json.dumps(settings)],
            stdout=subprocess.PIPE,
            text=True,
        ) as sender:
            meanwhile()
            sent = json.loads(sender.communicate(timeout=60)[0])
        received = json.loads(receiver.communicate(timeout=60)[0])
    return {
        int(p): {
            "fraction": row["all"] / sent[p],
            "meanwhile": row["meanwhile"] / sent[p],
            "delay_seconds": row["delay_seconds"],
        }
        for p in sent
        for row in [received.get(p, {"all": 0, "meanwhile": 0, "delay_seconds": 0.0})]
    }


def packets(client: AgentClient) -> dict[int, int]:
    return {row.priority: row.packets for row in client.counters(PORT)}


def same_loads(count: int, of_link: float = 2.5) -> dict[int, float]:
    return dict.fromkeys(range(count), of_link / count)


def restart_switch(meanwhile: Callable[[], object]) -> None:
    pid = int((OVS_RUN / "ovs-vswitchd.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # detached processes are children of the sandbox's first process
    meanwhile()
    command = ["ovs-vswitchd", f"unix:{OVS_RUN}/db.sock", f"--pidfile={OVS_RUN}/ovs-vswitchd.pid"]
    subprocess.run([*command, "-vconsole:off", "--detach"], check=True, stderr=subprocess.DEVNULL)


def enlarge_receive_buffers() -> None:
    """Enlarge the receive buffers of the switch, which may have to wait for a processor here."""
    pid = int((OVS_RUN / "ovs-vswitchd.pid").read_text())
    for line in Path(f"/proc/{pid}/net/packet").read_text().splitlines()[1:]:
        inode = line.split()[8]
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            if str(descriptor.readlink()) == f"socket:[{inode}]":
                with switch_tools.duplicate_socket(pid, int(descriptor.name)) as shared:
                    shared.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, LARGE_BYTES)


def keep_buffers_small() -> None:
    """Keep the send buffers at the default size of ``net.core.wmem_default``."""

    def shrink(*_: object) -> None:
        for pid, descriptor in switch_tools.send_sockets():
            with switch_tools.duplicate_socket(pid, descriptor) as shared:
                shared.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, USUAL_BUFFER_BYTES // 2)

    switch_tools.SendBuffers.enlarge = shrink  # type: ignore[assignment, method-assign]


def drop_at_the_tail() -> None:
    tree_changes.LEAF_KIND = "pfifo"


def small_buffer() -> Any:
    """Run an agent that does not enlarge the send buffer of Open vSwitch."""
    with agent(8081, SMALL_BUFFER_AGENT) as (client, _):
        client.shape(PORT, make_shaped_port(*range(8)))
        traffic({0: 0.05}, 0.1)  # the socket is created with the first packet
        until(lambda: client.health().send_buffer_bytes == USUAL_BUFFER_BYTES)
        return {"seen": traffic(same_loads(8), 1), "health": to_plain(client.health())}


def tail_drop() -> Any:
    """Run an agent whose queues drop the newest packet."""
    with agent(8084, TAIL_DROP_AGENT) as (client, _):
        traffic({0: 0.05}, 0.1)
        client.shape(PORT, make_shaped_port(*range(8)))
        return {"seen": traffic(same_loads(8), 1, together=True)}


def eight_classes(client: AgentClient) -> Any:
    client.shape(PORT, make_shaped_port(0))
    alone = traffic(same_loads(8), 1.2)
    changed = [client.shape(PORT, make_shaped_port(*range(8))) for _ in range(2)]
    idle = traffic({0: 0.1}, 0.6)
    together = traffic(same_loads(8), 1, together=True)
    before = packets(client)
    dropped = {row.priority: row.dropped_packets for row in client.counters(PORT)}
    results = traffic(same_loads(8), 2.5)
    return {
        "without classes": alone,
        "together": together,
        "changed": changed,
        "idle": idle,
        "seen": results,
        "counted": {p: n - before[p] for p, n in packets(client).items()},
        "dropped": {
            row.priority: row.dropped_packets - dropped[row.priority]
            for row in client.counters(PORT)
        },
        "sent": round(2.5 * LINK_PACKETS * 2.5 / 8),
        "health": to_plain(client.health()),
    }


def more_classes(client: AgentClient) -> Any:
    client.shape(PORT, make_shaped_port(*range(9)))
    nine = traffic(same_loads(9), 2.5)
    border = traffic({6: 0.45, 7: 0.45, 8: 0.6}, 2)
    client.shape(PORT, make_shaped_port(*range(16), guaranteed=800))
    sixteen = traffic({0: 0.3, 7: 0.4, 8: 0.5, 15: 0.6}, 2)
    return {"nine": nine, "border": border, "sixteen": sixteen}


def classes_of_packets(client: AgentClient, *priorities: int) -> Any:
    """Return for each kind of packet the classes that counted it."""
    client.shape(PORT, make_shaped_port(*priorities))
    results = {}
    traffic({priorities[1]: 0.05}, 0.1)  # resolve addresses first
    for kind, send in (
        ("unmarked", lambda: traffic({64: 0.05}, 0.3)),
        ("unknown mark", lambda: traffic({40: 0.05}, 0.3)),
        ("arp", send_arp_request),
        ("not ip", send_not_ip),
    ):
        before = packets(client)
        send()
        after = packets(client)
        results[kind] = {p: after[p] - before[p] for p in after if after[p] > before[p]}
    return results


def send_arp_request() -> None:
    subprocess.run(
        ["ip", "netns", "exec", "near", sys.executable, "-c", ETHERNET, "0806"], check=True
    )
    time.sleep(0.3)


def send_not_ip() -> None:
    subprocess.run(
        ["ip", "netns", "exec", "near", sys.executable, "-c", ETHERNET, "88b5"], check=True
    )
    time.sleep(0.3)


ETHERNET = """
import socket, sys
kind = bytes.fromhex(sys.argv[1])
arp = bytes.fromhex("0001080006040001") + bytes.fromhex("0200000000aa") + bytes([10,0,0,1])
arp += bytes(6) + bytes([10,0,0,77])
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(("eth0", 0))
    for _ in range(20):
        raw.send(b"\\xff" * 6 + bytes.fromhex("0200000000aa") + kind + arp + bytes(30))
"""


def change_in_place(client: AgentClient, *priorities: int) -> Any:
    """Fill queues, then change all settings that can be changed in place; count lost packets."""
    highest, lowest = priorities[0], priorities[-1]
    client.shape(PORT, make_shaped_port(*priorities, link=400e3, limit=400))
    backlog: dict[int, int] = {}

    def change() -> None:
        until(lambda: sum(row.backlog_packets for row in client.counters(PORT)) > 60)
        backlog.update({row.priority: row.backlog_packets for row in client.counters(PORT)})
        client.shape(PORT, make_shaped_port(*priorities, link=500e3, guaranteed=16_000, limit=300))
        client.shape(
            PORT,
            make_shaped_port(*priorities[:-2], lowest, link=500e3, guaranteed=16_000, limit=300),
        )
        client.shape(PORT, make_shaped_port(*priorities, link=10e6, guaranteed=16_000, limit=300))

    results = traffic({highest: 0.1, lowest: 0.3}, 0.5, change)
    return {"backlog": backlog, "seen": results}


def repair(client: AgentClient, *priorities: int) -> Any:
    """Kill the switch daemon and delete the queues; measure the time until both are restored."""
    client.shape(PORT, make_shaped_port(*priorities))
    tools = SwitchTools()
    expected = tools.tree(PORT)
    restart_switch(lambda: run_command(f"tc qdisc del dev {PORT} root"))
    tree_seconds = until(lambda: tools.tree(PORT) == expected)
    run_command(f"tc filter del dev {PORT} parent 1:")
    filter_seconds = until(lambda: tools.tree(PORT) == expected)
    run_command(f"ovs-vsctl clear port {PORT} qos")
    rows_seconds = until(
        lambda: tools.database().ports[PORT].qos is not None and tools.tree(PORT) == expected
    )
    until(lambda: rows_of_queues()[0] == 1)  # unused rows are deleted
    traffic({priorities[0]: 0.05}, 0.1)
    until(lambda: (client.health().send_buffer_bytes or 0) >= 32 * 1024 * 1024)
    return {
        "seconds": [tree_seconds, filter_seconds, rows_seconds],
        "rows": rows_of_queues(),
    }


def rows_of_queues() -> list[int]:
    database = SwitchTools().database()
    return [len(database.qos), len(database.queues)]


def replace_agent(process: subprocess.Popen[bytes]) -> Any:
    expected = SwitchTools().tree(PORT)
    process.kill()
    process.wait()
    run_command(f"tc qdisc del dev {PORT} root")
    with agent(8083) as (other, _):
        seconds = until(lambda: SwitchTools().tree(PORT) == expected)
        return {"seconds": seconds, "shaped": to_plain(other.report(PORT).shaped)}


def half_applied(client: AgentClient) -> Any:
    """Stop the switch daemon: the request fails, and is applied when the daemon continues."""
    client.shape(PORT, make_shaped_port(0, 1))
    pid = int((OVS_RUN / "ovs-vswitchd.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    error_text = ""
    try:
        client.shape(PORT, make_shaped_port(0, 1, 2))
    except AgentError as error:
        error_text = f"{type(error).__name__}: {error}"
    finally:
        unhealthy = to_plain(client.health())
        os.kill(pid, signal.SIGCONT)
    seconds = until(lambda: client.health().healthy)
    return {
        "said": error_text,
        "troubled": unhealthy,
        "seconds": seconds,
        "classes": [row.priority for row in client.counters(PORT)],
    }


def clear(client: AgentClient, *priorities: int) -> Any:
    client.shape(PORT, make_shaped_port(*priorities))
    before = rows_of_queues()
    changed = [client.clear(PORT) for _ in range(2)]
    return {
        "before": before,
        "changed": changed,
        "rows": rows_of_queues(),
        "qdiscs": [q["kind"] for q in json.loads(run_command(f"tc -j qdisc show dev {PORT}"))],
        "external_ids": run_command(f"ovs-vsctl get port {PORT} external_ids").strip(),
        "report": to_plain(client.report(PORT)),
    }


def remove_port(client: AgentClient) -> Any:
    client.shape(PORT, make_shaped_port(*range(9)))
    run_command(f"ovs-vsctl del-port {PORT}")
    until(lambda: rows_of_queues() == [0, 0])
    until(lambda: "htb" not in run_command(f"tc qdisc show dev {PORT}"))
    health = to_plain(client.health())
    run_command(f"ovs-vsctl add-port br {PORT}")
    return health


def main() -> None:
    enter_sandbox()
    build()
    results: dict[str, Any] = {}
    started = time.monotonic()
    if len(sys.argv) < 2 or "small buffer" in sys.argv:
        results["small buffer"] = small_buffer()
    if len(sys.argv) < 2 or "tail drop" in sys.argv:
        results["tail drop"] = tail_drop()
    with agent(8082) as (client, process):
        experiments: dict[str, Callable[[], Any]] = {
            "bridges": lambda: [to_plain(bridge) for bridge in client.bridges()],
            "eight": lambda: eight_classes(client),
            "more": lambda: more_classes(client),
            "places of eight": lambda: classes_of_packets(client, 1, 3, 6),
            "places of more": lambda: classes_of_packets(client, 1, 3, 12),
            "in place of eight": lambda: change_in_place(client, *range(8)),
            "in place of more": lambda: change_in_place(client, *range(10)),
            "repair eight": lambda: repair(client, *range(8)),
            "repair more": lambda: repair(client, *range(10)),
            "half applied": lambda: half_applied(client),
            "clear eight": lambda: clear(client, *range(8)),
            "clear more": lambda: clear(client, *range(12)),
            "gone": lambda: remove_port(client),
            "new agent": lambda: [
                client.shape(PORT, make_shaped_port(*range(9))),
                replace_agent(process),
            ],
        }
        for name, experiment in experiments.items():
            if len(sys.argv) < 2 or name in sys.argv[1:]:
                at = time.monotonic()
                results[name] = experiment()
                print(f"{name}: {time.monotonic() - at:.1f} s", file=sys.stderr)
    results["seconds"] = time.monotonic() - started
    print(json.dumps(results))


if __name__ == "__main__":
    main()

"""The network of a scenario for experiments: Mininet hosts, real switches and real parts."""

import contextlib
import json
import selectors
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from firedex.scenario import read_scenario
from firedex_emulation.testbed.emulated_network import EmulatedHost, EmulatedLink, build_network
from firedex_emulation.testbed.sandbox import RUN, enter_sandbox, start_open_vswitch
from firedex_emulation.topologies.link_probes import socket_in_namespace_of
from tests.on_switches.programs.switch_lab import (
    CONTROLLER_PORT,
    PROGRAM,
    Parts,
    StreamResult,
    run,
    until,
)

PROBE_PORT, STREAM_PORT = 7000, 20_000
EXPERIMENT = 0x88B5
"""An Ethernet type for experiments."""
BROADCAST = b"\xff" * 6
PACKETS_PER_SECOND = 200.0
PAYLOAD_BYTES = 200

Pair = tuple[str, str]


class NetworkLab(Parts):
    """The network of a scenario under the controller."""

    def __init__(self, framework: str, source: str) -> None:
        enter_sandbox()
        start_open_vswitch()
        start = time.monotonic()
        self.network = build_network(read_scenario(source), controller_port=CONTROLLER_PORT)
        self.build_seconds = time.monotonic() - start
        super().__init__(framework, self.network.controller_options())
        edge = {"edge": self.network.edge}
        self.hosts: dict[str, EmulatedHost] = {
            **edge,
            **self.network.publishers,
            **self.network.subscribers,
        }

    def address(self, host: str) -> str:
        return self.hosts[host].address

    def start_on(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (RUN / f"{host}.log").open("ab") as log:
            started: subprocess.Popen[bytes] = self.hosts[host].node.popen(
                [*PROGRAM, *arguments], stdout=log, stderr=log
            )
        return started

    def open_socket(self, host: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
        made = socket_in_namespace_of(self.hosts[host].node.pid, family, kind, protocol)
        made.setblocking(False)
        return made

    # -- topology ------------------------------------------------------------------------------

    def topology(self) -> Any:
        return self.ask("GET", "/v1/topology")[1]

    def existing_links(self) -> set[frozenset[str]]:
        """Return the existing links between managed switches, by their ports."""
        managed = self.network.managed
        return {
            frozenset((link.one_port, link.other_port))
            for link in self.network.links
            if link.one in managed and link.other in managed
        }

    def discovered_links(self) -> set[frozenset[str]]:
        return {
            frozenset((link["from_port"], link["to_port"])) for link in self.topology()["links"]
        }

    def host_locations(self) -> dict[str, str]:
        """Return the switch of each host address, as the controller knows it."""
        return {host["address"]: host["switch"] for host in self.topology()["hosts"]}

    def link(self, one: str, other: str) -> EmulatedLink:
        return next(k for k in self.network.links if {k.one, k.other} == {one, other})

    def packets(self) -> dict[str, int]:
        """Return the packet counters of each port, both directions added."""
        counters = {}
        for lines in json.loads(run("ip", "-json", "-stats", "link")):
            if "-eth" in lines["ifname"]:
                both = lines["stats64"]
                counters[lines["ifname"]] = both["rx"]["packets"] + both["tx"]["packets"]
        return counters

    def packets_during(self, seconds: float) -> dict[str, int]:
        before = self.packets()
        time.sleep(seconds)
        return {port: count - before[port] for port, count in self.packets().items()}

    # -- traffic -------------------------------------------------------------------------------

    def wait_for_full_connectivity(
        self, hosts: list[str] | None = None, seconds: float = 20.0
    ) -> float:
        """Send UDP requests between all hosts until all are answered; return the seconds."""
        names = hosts or list(self.hosts)
        missing = {(one, other) for one in names for other in names if one != other}
        with contextlib.ExitStack() as stack, selectors.EpollSelector() as selector:
            sockets = {}
            for name in names:
                sockets[name] = stack.enter_context(
                    self.open_socket(name, socket.AF_INET, socket.SOCK_DGRAM)
                )
                sockets[name].bind((self.address(name), PROBE_PORT))
                selector.register(sockets[name], selectors.EVENT_READ, name)

            def all_answered() -> bool:
                for one, other in missing:
                    with contextlib.suppress(OSError):  # no route yet: retried
                        request = json.dumps(["?", one, other]).encode()
                        sockets[one].sendto(request, (self.address(other), PROBE_PORT))
                while ready := selector.select(timeout=0.1):
                    for key, _ in ready:
                        missing.difference_update(_answer_requests(sockets[key.data]))
                return not missing

            try:
                return until(all_answered, "all hosts reach each other", seconds)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{error}\nunanswered: {sorted(missing)}\n{self.state()}"
                ) from error

    def state(self) -> str:
        """Return the state of controller, hosts and switches, to explain a missing connection."""
        lines = [json.dumps(self.topology())]
        for name, host in self.hosts.items():
            lines.append(f"{name}: {host.node.cmd('ip -br addr; ip neigh')}")
        for name, switch in self.network.managed.items():
            flows = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch.node.name)
            lines.append(f"{name}: {flows}")
        return "\n".join(lines)

    @contextlib.contextmanager
    def record_broadcasts(self) -> Iterator[dict[str, Counter[bytes]]]:
        """Count the broadcasts that each host receives; the counts are complete after the block."""
        received: dict[str, Counter[bytes]] = {name: Counter() for name in self.hosts}
        with contextlib.ExitStack() as stack:
            sockets = {}
            for name in self.hosts:
                sockets[name] = stack.enter_context(self.raw_socket(name))
            yield received
            time.sleep(0.5)
            for name, receiver in sockets.items():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        received[name][receiver.recv(2000)[14:]] += 1

    def raw_socket(self, host: str) -> socket.socket:
        kind = socket.htons(EXPERIMENT)
        made = self.open_socket(host, socket.AF_PACKET, socket.SOCK_RAW, kind)
        made.setsockopt(socket.SOL_SOCKET, 33, 2**23)  # SO_RCVBUFFORCE
        made.bind((self.hosts[host].node.defaultIntf().name, EXPERIMENT))
        return made

    def send_broadcasts(self, host: str, count: int = 1, seconds: float = 0.0) -> list[bytes]:
        """Send broadcasts, spread over ``seconds``; return their payloads."""
        payloads = []
        own = bytes.fromhex(self.hosts[host].node.defaultIntf().MAC().replace(":", ""))
        with self.raw_socket(host) as sender:
            for _ in range(count):
                payloads.append(f"{host} {time.monotonic_ns()}".encode().ljust(50))
                sender.send(BROADCAST + own + EXPERIMENT.to_bytes(2, "big") + payloads[-1])
                time.sleep(seconds / count)
        return payloads

    @contextlib.contextmanager
    def stream(self, source: str, target: str, seconds: float) -> Iterator[Any]:
        """Send a numbered stream; yield a function that waits for it and returns the result."""
        count = int(seconds * PACKETS_PER_SECOND)
        same = np.zeros(count, dtype=np.int64)
        timetable = np.arange(count) / PACKETS_PER_SECOND
        with self.traffic(
            timetable, same, same + PAYLOAD_BYTES, same + STREAM_PORT, source=source, target=target
        ) as look:
            time.sleep(1.0)  # time to start its programs
            yield look


def _answer_requests(here: socket.socket) -> Iterator[Pair]:
    """Answer the received requests; yield the pairs whose answers arrived."""
    with contextlib.suppress(OSError):
        while True:
            data, sender = here.recvfrom(2000)
            kind, one, other = json.loads(data)
            if kind == "?":
                here.sendto(json.dumps(["!", one, other]).encode(), sender)
            else:
                yield one, other


def count_lost(seen: StreamResult) -> int:
    return int(seen.sent.sum() - len(seen.number))


def longest_gap(seen: StreamResult) -> float:
    """Return the longest time in which all sent packets were lost."""
    sent_at = np.sort(seen.arrived_at_seconds - seen.delay_seconds)
    return float(np.diff(sent_at).max())

"""A scenario's whole network to experiment with: Mininet's hosts, real switches, the real parts."""

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

from experiments.switch_lab import CONTROLLER_PORT, PROGRAM, Parts, Seen, run, until
from firedex.scenario_file import read_scenario
from firedex_emulation.emulated_network import PlacedHost, PlacedLink, build_network
from firedex_emulation.network_namespaces import socket_in_namespace_of
from firedex_emulation.sandbox import RUN, settle_in
from firedex_emulation.switch_host import start_open_vswitch

MEETING_PORT, STREAM_PORT = 7000, 20_000
EXPERIMENT = 0x88B5
"""An Ethernet type for experiments."""
BROADCAST = b"\xff" * 6
PACKETS_PER_SECOND = 200.0
PAYLOAD_BYTES = 200

Pair = tuple[str, str]


class NetworkLab(Parts):
    """The network of a scenario under the controller."""

    def __init__(self, framework: str, source: str) -> None:
        settle_in()
        start_open_vswitch()
        begun = time.monotonic()
        self.network = build_network(read_scenario(source), controller_port=CONTROLLER_PORT)
        self.built_seconds = time.monotonic() - begun
        super().__init__(framework, self.network.controller_options())
        edge = {"edge": self.network.edge}
        self.hosts: dict[str, PlacedHost] = {
            **edge,
            **self.network.publishers,
            **self.network.subscribers,
        }

    def address(self, host: str) -> str:
        return self.hosts[host].address

    def on(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (RUN / f"{host}.log").open("ab") as log:
            started: subprocess.Popen[bytes] = self.hosts[host].node.popen(
                [*PROGRAM, *arguments], stdout=log, stderr=log
            )
        return started

    def open_socket(self, host: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
        made = socket_in_namespace_of(self.hosts[host].node.pid, family, kind, protocol)
        made.setblocking(False)
        return made

    # -- what is known and what is there -------------------------------------------------------

    def topology(self) -> Any:
        return self.ask("GET", "/v1/topology")[1]

    def links_built(self) -> set[frozenset[str]]:
        """Those between managed switches, by their ports."""
        managed = self.network.managed
        return {
            frozenset((link.one_port, link.other_port))
            for link in self.network.links
            if link.one in managed and link.other in managed
        }

    def links_found(self) -> set[frozenset[str]]:
        return {
            frozenset((link["from_port"], link["to_port"])) for link in self.topology()["links"]
        }

    def places(self) -> dict[str, str]:
        """Where hosts are known to be: the switch, by address."""
        return {host["address"]: host["switch"] for host in self.topology()["hosts"]}

    def link(self, one: str, other: str) -> PlacedLink:
        return next(k for k in self.network.links if {k.one, k.other} == {one, other})

    def packets(self) -> dict[str, int]:
        """What has gone over each port of a switch so far, both ways."""
        counted = {}
        for shown in json.loads(run("ip", "-json", "-stats", "link")):
            if "-eth" in shown["ifname"]:
                both = shown["stats64"]
                counted[shown["ifname"]] = both["rx"]["packets"] + both["tx"]["packets"]
        return counted

    def packets_during(self, seconds: float) -> dict[str, int]:
        before = self.packets()
        time.sleep(seconds)
        return {port: count - before[port] for port, count in self.packets().items()}

    # -- traffic -------------------------------------------------------------------------------

    def meeting(self, hosts: list[str] | None = None, seconds: float = 20.0) -> float:
        """Everybody asks everybody by UDP until all were answered; how long it took."""
        names = hosts or list(self.hosts)
        missing = {(one, other) for one in names for other in names if one != other}
        with contextlib.ExitStack() as stack, selectors.EpollSelector() as watching:
            sockets = {}
            for name in names:
                sockets[name] = stack.enter_context(
                    self.open_socket(name, socket.AF_INET, socket.SOCK_DGRAM)
                )
                sockets[name].bind((self.address(name), MEETING_PORT))
                watching.register(sockets[name], selectors.EVENT_READ, name)

            def all_met() -> bool:
                for one, other in missing:
                    with contextlib.suppress(OSError):  # not found yet: asked again
                        question = json.dumps(["?", one, other]).encode()
                        sockets[one].sendto(question, (self.address(other), MEETING_PORT))
                while ready := watching.select(timeout=0.1):
                    for key, _ in ready:
                        missing.difference_update(_answered(sockets[key.data]))
                return not missing

            try:
                return until(all_met, "everybody has met", seconds)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{error}\nnot met: {sorted(missing)}\n{self.state()}"
                ) from error

    def state(self) -> str:
        """Everything that could say why somebody does not reach somebody."""
        shown = [json.dumps(self.topology())]
        for name, host in self.hosts.items():
            shown.append(f"{name}: {host.node.cmd('ip -br addr; ip neigh')}")
        for name, switch in self.network.managed.items():
            flows = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch.node.name)
            shown.append(f"{name}: {flows}")
        return "\n".join(shown)

    @contextlib.contextmanager
    def ears(self) -> Iterator[dict[str, Counter[bytes]]]:
        """What arrives at each host of what ``shout`` sends, and how often; full at the end."""
        heard: dict[str, Counter[bytes]] = {name: Counter() for name in self.hosts}
        with contextlib.ExitStack() as stack:
            sockets = {}
            for name in self.hosts:
                sockets[name] = stack.enter_context(self.raw_socket(name))
            yield heard
            time.sleep(0.5)
            for name, ear in sockets.items():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        heard[name][ear.recv(2000)[14:]] += 1

    def raw_socket(self, host: str) -> socket.socket:
        kind = socket.htons(EXPERIMENT)
        made = self.open_socket(host, socket.AF_PACKET, socket.SOCK_RAW, kind)
        made.setsockopt(socket.SOL_SOCKET, 33, 2**23)  # SO_RCVBUFFORCE
        made.bind((self.hosts[host].node.defaultIntf().name, EXPERIMENT))
        return made

    def shout(self, host: str, count: int = 1, seconds: float = 0.0) -> list[bytes]:
        """Send broadcasts, spread over ``seconds``; return what they say."""
        said = []
        own = bytes.fromhex(self.hosts[host].node.defaultIntf().MAC().replace(":", ""))
        with self.raw_socket(host) as mouth:
            for _ in range(count):
                said.append(f"{host} {time.monotonic_ns()}".encode().ljust(50))
                mouth.send(BROADCAST + own + EXPERIMENT.to_bytes(2, "big") + said[-1])
                time.sleep(seconds / count)
        return said

    @contextlib.contextmanager
    def stream(self, source: str, target: str, seconds: float) -> Iterator[Any]:
        """A numbered stream from one host to another; call what it gives to wait and see."""
        count = int(seconds * PACKETS_PER_SECOND)
        same = np.zeros(count, dtype=np.int64)
        timetable = np.arange(count) / PACKETS_PER_SECOND
        with self.traffic(
            timetable, same, same + PAYLOAD_BYTES, same + STREAM_PORT, source=source, target=target
        ) as look:
            time.sleep(1.0)  # its programs start
            yield look


def _answered(here: socket.socket) -> Iterator[Pair]:
    """Answer the questions that have come, and tell of the answers."""
    with contextlib.suppress(OSError):
        while True:
            data, sender = here.recvfrom(2000)
            kind, one, other = json.loads(data)
            if kind == "?":
                here.sendto(json.dumps(["!", one, other]).encode(), sender)
            else:
                yield one, other


def lost(seen: Seen) -> int:
    return int(seen.sent.sum() - len(seen.number))


def longest_gap(seen: Seen) -> float:
    """The longest time in which nothing was sent that arrived."""
    sent_at = np.sort(seen.arrived_at_seconds - seen.delay_seconds)
    return float(np.diff(sent_at).max())

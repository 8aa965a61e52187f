"""Inside the sandbox, for ``test_topologies.py``: builds, tries, prints what it found as JSON."""

import hashlib
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from mininet.net import Mininet

from firedex.scenario_file import read_scenario
from firedex_emulation.big_switch import BigSwitch
from firedex_emulation.building import Building
from firedex_emulation.campus import Campus
from firedex_emulation.delayed_link import DelayedLink
from firedex_emulation.emulated_network import (
    EmulatedNetwork,
    PlacedHost,
    bring_up,
    build_network,
)
from firedex_emulation.errors import EmulationError
from firedex_emulation.network_namespaces import socket_in_namespace_of
from firedex_emulation.sandbox import settle_in
from firedex_emulation.switch_host import start_open_vswitch
from firedex_emulation.switch_nodes import SiteHost

PORT = 5000
PAYLOAD = os.urandom(50_000)
PATIENCE_SECONDS = 5.0
IMPATIENCE_SECONDS = 0.5
"""Where nothing is expected to come."""
SO_TIMESTAMPNS = 35
"""When the kernel got a packet, however late we look."""


# -- what the checks are made of -------------------------------------------------------------------


def tcp_socket(host: PlacedHost, patience: float = PATIENCE_SECONDS) -> socket.socket:
    opened = socket_in_namespace_of(host.node.pid, socket.AF_INET, socket.SOCK_STREAM, 0)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.settimeout(patience)
    return opened


def udp_socket(host: PlacedHost) -> socket.socket:
    opened = socket_in_namespace_of(host.node.pid, socket.AF_INET, socket.SOCK_DGRAM, 0)
    opened.settimeout(1.0)
    return opened


def echo_over_tcp(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)


def reaches(host: PlacedHost, address: str, patience: float = PATIENCE_SECONDS) -> bool:
    """Whether 50 kB come back unchanged from who listens there."""
    with tcp_socket(host, patience) as opened:
        try:
            opened.connect((address, PORT))
            threading.Thread(target=opened.sendall, args=(PAYLOAD,), daemon=True).start()
            got = b""
            while len(got) < len(PAYLOAD):
                data = opened.recv(65536)
                if not data:
                    break
                got += data
        except OSError:
            return False
    return hashlib.sha256(got).digest() == hashlib.sha256(PAYLOAD).digest()


def who_reaches_the_edge(
    network: EmulatedNetwork, patience: float = PATIENCE_SECONDS
) -> dict[str, bool]:
    with tcp_socket(network.edge) as listener:
        listener.bind((network.edge.address, PORT))
        listener.listen()
        listener.settimeout(None)
        threading.Thread(target=echo_over_tcp, args=(listener,), daemon=True).start()
        everybody = {**network.publishers, **network.subscribers}
        address = network.edge.address
        found = {name: reaches(host, address, patience) for name, host in everybody.items()}
        listener.shutdown(socket.SHUT_RDWR)
    return found


def add_rule(switch: Any, rule: str) -> None:
    subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch.name, rule], check=True)


def forward_like_a_bridge(network: EmulatedNetwork) -> None:
    for switch in network.managed.values():
        add_rule(switch.node, "priority=1,actions=NORMAL")


def ignore_links(network: EmulatedNetwork, *pairs: tuple[str, str]) -> None:
    """Leave one way only: what arrives by these links is dropped."""
    for link in network.links:
        if (link.one, link.other) in pairs:
            for switch, port in ((link.one, link.one_port), (link.other, link.other_port)):
                node = network.switches[str(switch)].node
                number = node.ports[node.nameToIntf[port]]
                add_rule(node, f"priority=10,in_port={number},actions=drop")


def ovs(*words: str) -> str:
    done = subprocess.run(["ovs-vsctl", *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


# -- checks ----------------------------------------------------------------------------------------


def topology(name: str) -> Any:
    """A topology by its defaults: up, and everybody reaches the edge once there are rules."""
    makers = {"big-switch": BigSwitch, "building": Building, "campus": Campus}
    begun = time.monotonic()
    network = bring_up(makers[name]().plan)
    seconds = time.monotonic() - begun
    somebody = next(iter(network.subscribers.values()))
    with_no_rules = reaches(somebody, network.edge.address, IMPATIENCE_SECONDS)
    forward_like_a_bridge(network)
    halls = [link for link in network.links if link.one == "core2" and link.other]
    ignore_links(network, *((link.one, str(link.other)) for link in halls))
    return {
        "seconds": seconds,
        "with_no_rules": with_no_rules,
        "reached": who_reaches_the_edge(network),
        "links": [[link.one, link.other] for link in network.links],
    }


def plain_mininet() -> Any:
    """As a network researcher would use a topology: Mininet's own start and stop."""
    topo = Building(floors=2, riser_delay_seconds=0.002)
    net = Mininet(topo=topo, controller=None, autoSetMacs=True)
    net.start()
    names = sorted(ovs("list-br").split())
    net.stop()
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    left = [line.split()[0] for line in links.stdout.splitlines()]
    return {"bridges": names, "bridges_left": ovs("list-br").split(), "links_left": left}


def scenario(source: str) -> Any:
    """A scenario's network: what Open vSwitch says of the switches that were asked for."""
    network = build_network(read_scenario(source), controller_port=6653)
    switches = {}
    for name, switch in network.switches.items():
        bridge = switch.node.name
        switches[name] = {
            "managed": switch.managed,
            "datapath_id": ovs("get", "bridge", bridge, "datapath_id").strip('"'),
            "asked_datapath_id": switch.datapath_id,
            "fail_mode": ovs("get", "bridge", bridge, "fail_mode").strip('"'),
            "datapath_type": ovs("get", "bridge", bridge, "datapath_type").strip('"'),
            "protocols": ovs("get", "bridge", bridge, "protocols"),
            "ports": ovs("list-ports", bridge).split(),
            "hosts_port": switch.hosts_port,
            "controllers": ovs("get-controller", bridge),
        }
    return {
        "topology": network.topology,
        "switches": switches,
        "options": network.controller_options(),
        "max_backoff": ovs("--bare", "--columns=max_backoff", "list", "controller").split(),
        "shaped": ovs("--bare", "--columns=name", "find", "port", "qos!=[]").split(),
        "publishers": {name: host.switch for name, host in network.publishers.items()},
        "subscribers": {name: host.address for name, host in network.subscribers.items()},
        "links": [
            [link.one, link.other, link.delay_seconds, link.measured_round_trip_seconds]
            for link in network.links
        ],
    }


def failing_link() -> Any:
    """One way through a campus, cut and restored."""
    network = bring_up(Campus(halls=2, subscribers_per_hall=1).plan)
    forward_like_a_bridge(network)
    ignore_links(network, ("core2", "hall1"), ("core2", "hall2"))
    found = [who_reaches_the_edge(network)]
    network.set_link("core1", "hall1", up=False)
    found.append(who_reaches_the_edge(network, IMPATIENCE_SECONDS))
    network.set_link("hall1", "core1", up=True)
    found.append(who_reaches_the_edge(network))
    return found


def trunk_rate() -> Any:
    """Bits per second that come through a trunk of 2 Mbit/s that nobody else shapes."""
    network = bring_up(BigSwitch(subscribers=1, trunk_bits_per_second=2e6).plan)
    forward_like_a_bridge(network)
    subscriber = network.subscribers["sub0"]
    size = 1000
    with udp_socket(network.edge) as sender, udp_socket(subscriber) as receiver:
        receiver.bind((subscriber.address, PORT))
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sender.sendto(b"hello", (subscriber.address, PORT))
        receiver.recv(2000)
        for _ in range(250):
            sender.sendto(b"x" * size, (subscriber.address, PORT))
            time.sleep(0.0005)
        times = []
        try:
            while True:
                _, ((_, _, stamp), *_), _, _ = receiver.recvmsg(2000, 100)
                seconds, nanoseconds = struct.unpack("qq", stamp)
                times.append(seconds + nanoseconds / 1e9)
        except TimeoutError:
            pass
    later = times[len(times) // 4 :]  # without the burst at the beginning
    return (len(later) - 1) * (size + 42) * 8 / (later[-1] - later[0])


def delayed_hosts(delay: float) -> tuple[DelayedLink, list[PlacedHost]]:
    net = Mininet(controller=None, build=False, autoSetMacs=True)
    hosts = [net.addHost(f"h{n}", cls=SiteHost, ip=f"10.0.0.{n}/16") for n in (1, 2)]
    link = net.addLink(*hosts, cls=DelayedLink, delay_seconds=delay)
    net.build()
    placed = [PlacedHost(node=h, address=h.IP(), switch="") for h in hosts]
    return link, placed


def delay(seconds: str) -> Any:
    """A delayed link: as it was measured when made, and as datagrams and frames find it."""
    link, (one, other) = delayed_hosts(float(seconds))
    return {
        "when_made": link.measured.round_trip_seconds,
        "round_trips": statistics.median(round_trips(one, other)),
        "frames": frames_unchanged(one, other),
        "fast": fast_frames(one, other),
    }


def round_trips(one: PlacedHost, other: PlacedHost) -> list[float]:
    found = []
    with udp_socket(one) as asks, udp_socket(other) as answers:
        answers.bind((other.address, PORT))

        def echo() -> None:
            for _ in range(21):
                data, back = answers.recvfrom(2000)
                answers.sendto(data, back)

        threading.Thread(target=echo, daemon=True).start()
        for _ in range(21):
            begun = time.monotonic()
            asks.sendto(b"?", (other.address, PORT))
            asks.recv(2000)
            found.append(time.monotonic() - begun)
    return found[1:]  # the first looked for the other's hardware address


def raw_socket(host: PlacedHost) -> socket.socket:
    opened = socket_in_namespace_of(
        host.node.pid, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)
    )
    opened.setsockopt(263, 23, 1)  # not what it sends itself
    opened.setsockopt(263, 8, 1)  # the VLAN tag, which the kernel takes off
    opened.bind((host.node.defaultIntf().name, 3))
    opened.setsockopt(socket.SOL_SOCKET, 33, 2**25)
    opened.settimeout(1.0)
    return opened


ADDRESSES = bytes.fromhex("0180c200000e 020000000001".replace(" ", ""))
KIND = bytes.fromhex("88b6")
VLAN = bytes.fromhex("8100 6064".replace(" ", ""))


def received(opened: socket.socket) -> bytes:
    """The next frame of ours, its tag put back on."""
    while True:
        frame, ancillary, _, _ = opened.recvmsg(70_000, 1000)
        for _, kind, data in ancillary:
            if kind == 8 and int.from_bytes(data[:4], sys.byteorder) & 1 << 4:
                tag = int.from_bytes(data[16:18], sys.byteorder)
                frame = frame[:12] + VLAN[:2] + tag.to_bytes(2, "big") + frame[12:]
        if frame[12:14] in (KIND, VLAN[:2]):
            return frame


def frames_unchanged(one: PlacedHost, other: PlacedHost) -> dict[str, bool]:
    frames = {
        "smallest": ADDRESSES + KIND + os.urandom(46),
        "largest": ADDRESSES + KIND + os.urandom(1500),
        "tagged": ADDRESSES + VLAN + KIND + os.urandom(1500),
        "jumbo": ADDRESSES + KIND + os.urandom(9000),
    }
    for host in (one, other):
        host.node.cmd(f"ip link set {host.node.defaultIntf().name} mtu 9000")
    found = {}
    with raw_socket(one) as first, raw_socket(other) as second:
        for way, sender, receiver in (("there", first, second), ("back", second, first)):
            for name, frame in frames.items():
                sender.send(frame)
                found[f"{name} {way}"] = received(receiver) == frame
    return found


def fast_frames(one: PlacedHost, other: PlacedHost) -> dict[str, Any]:
    """Ten thousand frames a second for a while: all of them, in order."""
    rate, count = 10_000, 5_000
    got: list[int] = []
    with raw_socket(one) as sender, raw_socket(other) as receiver:

        def receive() -> None:
            try:
                while len(got) < count:
                    got.append(int.from_bytes(received(receiver)[14:22], "big"))
            except TimeoutError:
                pass

        thread = threading.Thread(target=receive)
        thread.start()
        begun = time.monotonic()
        for number in range(count):
            ahead = begun + number / rate - time.monotonic()
            if ahead > 0.001:
                time.sleep(ahead)
            sender.send(ADDRESSES + KIND + number.to_bytes(8, "big") + bytes(200))
        seconds = time.monotonic() - begun
        thread.join()
    return {"sent": count, "per_second": count / seconds, "in_order": got == list(range(count))}


def refused_delays() -> Any:
    """Links that are not what they were asked to be."""
    said = {}

    def refused(name: str, attempt: Callable[[], Any]) -> None:
        try:
            attempt()
            said[name] = ""
        except EmulationError as error:
            said[name] = str(error)

    link, _ = delayed_hosts(0.005)
    link.delay_seconds = 0.02
    refused("shorter than asked", link.verify)
    link.delay_seconds = 0.001
    refused("longer than asked", link.verify)
    os.kill(link._relay.pid, signal.SIGSTOP)
    refused("no relay", link.verify)
    refused("too long", lambda: delayed_hosts(60.0))
    refused("negative", lambda: delayed_hosts(-0.1))
    return said


if __name__ == "__main__":
    settle_in()
    start_open_vswitch()
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer), flush=True)

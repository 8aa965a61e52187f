"""Programs of ``test_topologies.py``: build a network, check it, and print the result as JSON."""

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

from firedex.scenario import read_scenario
from firedex_emulation.errors import EmulationError
from firedex_emulation.testbed.emulated_network import (
    EmulatedHost,
    EmulatedNetwork,
    bring_up,
    build_network,
)
from firedex_emulation.testbed.sandbox import enter_sandbox, start_open_vswitch
from firedex_emulation.topologies.big_switch import BigSwitch
from firedex_emulation.topologies.building import Building
from firedex_emulation.topologies.campus import Campus
from firedex_emulation.topologies.delayed_link import DelayedLink
from firedex_emulation.topologies.link_probes import socket_in_namespace_of
from firedex_emulation.topologies.mininet_nodes import SiteHost

PORT = 5000
PAYLOAD = os.urandom(50_000)
TIMEOUT_SECONDS = 30.0
SHORT_TIMEOUT_SECONDS = 0.5
"""Timeout where no packet is expected."""
SO_TIMESTAMPNS = 35
"""Socket option for the time at which the kernel received a packet."""


# -- helpers ---------------------------------------------------------------------------------------


def tcp_socket(host: EmulatedHost, timeout: float = TIMEOUT_SECONDS) -> socket.socket:
    opened = socket_in_namespace_of(host.node.pid, socket.AF_INET, socket.SOCK_STREAM, 0)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.settimeout(timeout)
    return opened


def udp_socket(host: EmulatedHost) -> socket.socket:
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


def reaches(host: EmulatedHost, address: str, timeout: float = TIMEOUT_SECONDS) -> bool:
    """Return whether an echo server at ``address`` returns 50 kB unchanged."""
    with tcp_socket(host, timeout) as opened:
        try:
            opened.connect((address, PORT))
            threading.Thread(target=opened.sendall, args=(PAYLOAD,), daemon=True).start()
            received_data = b""
            while len(received_data) < len(PAYLOAD):
                data = opened.recv(65536)
                if not data:
                    break
                received_data += data
        except OSError:
            return False
    return hashlib.sha256(received_data).digest() == hashlib.sha256(PAYLOAD).digest()


def hosts_reaching_the_edge(
    network: EmulatedNetwork, timeout: float = TIMEOUT_SECONDS
) -> dict[str, bool]:
    with tcp_socket(network.edge) as listener:
        listener.bind((network.edge.address, PORT))
        listener.listen()
        listener.settimeout(None)
        threading.Thread(target=echo_over_tcp, args=(listener,), daemon=True).start()
        hosts = {**network.publishers, **network.subscribers}
        address = network.edge.address
        found = {name: reaches(host, address, timeout) for name, host in hosts.items()}
        listener.shutdown(socket.SHUT_RDWR)
    return found


def add_rule(switch: Any, rule: str) -> None:
    subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch.name, rule], check=True)


def forward_like_a_bridge(network: EmulatedNetwork) -> None:
    for switch in network.managed.values():
        add_rule(switch.node, "priority=1,actions=NORMAL")


def ignore_links(network: EmulatedNetwork, *pairs: tuple[str, str]) -> None:
    """Drop all frames that arrive over these links, so that one path is left."""
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
    """Build a default topology; check which hosts reach the edge with and without rules."""
    topologies: dict[str, Callable[[], Any]] = {
        "big-switch": BigSwitch,
        "building": Building,
        "campus": Campus,
    }
    start = time.monotonic()
    network = bring_up(topologies[name]().plan)
    seconds = time.monotonic() - start
    any_subscriber = next(iter(network.subscribers.values()))
    with_no_rules = reaches(any_subscriber, network.edge.address, SHORT_TIMEOUT_SECONDS)
    forward_like_a_bridge(network)
    halls = [link for link in network.links if link.one == "core2" and link.other]
    ignore_links(network, *((link.one, str(link.other)) for link in halls))
    return {
        "seconds": seconds,
        "with_no_rules": with_no_rules,
        "reached": hosts_reaching_the_edge(network),
        "links": [[link.one, link.other] for link in network.links],
    }


def plain_mininet() -> Any:
    """Use a topology with Mininet's own start and stop."""
    topo = Building(floors=2, riser_delay_seconds=0.002)
    net = Mininet(topo=topo, controller=None, autoSetMacs=True)
    net.start()
    names = sorted(ovs("list-br").split())
    net.stop()
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    left = [line.split()[0] for line in links.stdout.splitlines()]
    return {"bridges": names, "bridges_left": ovs("list-br").split(), "links_left": left}


def scenario(source: str) -> Any:
    """Build the network of a scenario; return the settings that Open vSwitch reports."""
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
    """Cut and restore the only path through a campus."""
    network = bring_up(Campus(halls=2, subscribers_per_hall=1).plan)
    forward_like_a_bridge(network)
    ignore_links(network, ("core2", "hall1"), ("core2", "hall2"))
    found = [hosts_reaching_the_edge(network)]
    network.set_link("core1", "hall1", up=False)
    found.append(hosts_reaching_the_edge(network, SHORT_TIMEOUT_SECONDS))
    network.set_link("hall1", "core1", up=True)
    found.append(hosts_reaching_the_edge(network))
    return found


def trunk_rate() -> Any:
    """Return the measured bandwidth of a trunk of 2 Mbit/s without a controller."""
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
    window = 25
    # Use the median over windows: a short stall of the machine affects one window only.
    spans = [later[n + window] - later[n] for n in range(0, len(later) - window, window)]
    return window * (size + 42) * 8 / statistics.median(spans)


def delayed_hosts(delay: float) -> tuple[DelayedLink, list[EmulatedHost]]:
    net = Mininet(controller=None, build=False, autoSetMacs=True)
    hosts = [net.addHost(f"h{n}", cls=SiteHost, ip=f"10.0.0.{n}/16") for n in (1, 2)]
    link = net.addLink(*hosts, cls=DelayedLink, delay_seconds=delay)
    net.build()
    emulated = [EmulatedHost(node=h, address=h.IP(), switch="") for h in hosts]
    return link, emulated


def delay(seconds: str) -> Any:
    """Return the delay of a link: as measured at its creation, and with datagrams and frames."""
    link, (one, other) = delayed_hosts(float(seconds))
    return {
        "when_made": link.measured.round_trip_seconds,
        "fastest_round_trip": min(round_trips(one, other)),
        "frames": frames_unchanged(one, other),
        "fast": fast_frames(one, other),
    }


def round_trips(one: EmulatedHost, other: EmulatedHost) -> list[float]:
    found = []
    with udp_socket(one) as asks, udp_socket(other) as answers:
        answers.bind((other.address, PORT))

        def echo() -> None:
            for _ in range(21):
                data, back = answers.recvfrom(2000)
                answers.sendto(data, back)

        threading.Thread(target=echo, daemon=True).start()
        for _ in range(21):
            start = time.monotonic()
            asks.sendto(b"?", (other.address, PORT))
            asks.recv(2000)
            found.append(time.monotonic() - start)
    return found[1:]  # the first one includes address resolution


def raw_socket(host: EmulatedHost) -> socket.socket:
    opened = socket_in_namespace_of(
        host.node.pid, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)
    )
    opened.setsockopt(263, 23, 1)  # ignore outgoing frames
    opened.setsockopt(263, 8, 1)  # get the VLAN tag, which the kernel removes
    opened.bind((host.node.defaultIntf().name, 3))
    opened.setsockopt(socket.SOL_SOCKET, 33, 2**25)
    opened.settimeout(1.0)
    return opened


ADDRESSES = bytes.fromhex("0180c200000e 020000000001".replace(" ", ""))
KIND = bytes.fromhex("88b6")
VLAN = bytes.fromhex("8100 6064".replace(" ", ""))


def next_frame(opened: socket.socket) -> bytes:
    """Return the next test frame with its VLAN tag."""
    while True:
        frame, ancillary, _, _ = opened.recvmsg(70_000, 1000)
        for _, kind, data in ancillary:
            if kind == 8 and int.from_bytes(data[:4], sys.byteorder) & 1 << 4:
                tag = int.from_bytes(data[16:18], sys.byteorder)
                frame = frame[:12] + VLAN[:2] + tag.to_bytes(2, "big") + frame[12:]
        if frame[12:14] in (KIND, VLAN[:2]):
            return frame


def frames_unchanged(one: EmulatedHost, other: EmulatedHost) -> dict[str, bool]:
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
        for mode, sender, receiver in (("there", first, second), ("back", second, first)):
            for name, frame in frames.items():
                sender.send(frame)
                found[f"{name} {mode}"] = next_frame(receiver) == frame
    return found


def fast_frames(one: EmulatedHost, other: EmulatedHost) -> dict[str, Any]:
    """Send ten thousand frames per second; return whether all arrived in order."""
    rate, count = 10_000, 5_000
    received_data: list[int] = []
    with raw_socket(one) as sender, raw_socket(other) as receiver:

        def receive() -> None:
            try:
                while len(received_data) < count:
                    received_data.append(int.from_bytes(next_frame(receiver)[14:22], "big"))
            except TimeoutError:
                pass

        thread = threading.Thread(target=receive)
        thread.start()
        start = time.monotonic()
        for number in range(count):
            ahead = start + number / rate - time.monotonic()
            if ahead > 0.001:
                time.sleep(ahead)
            sender.send(ADDRESSES + KIND + number.to_bytes(8, "big") + bytes(200))
        seconds = time.monotonic() - start
        thread.join()
    return {
        "sent": count,
        "per_second": count / seconds,
        "in_order": received_data == list(range(count)),
    }


def wrong_delays() -> Any:
    """Return the errors of links whose delay is wrong."""
    errors = {}

    def record_error(name: str, attempt: Callable[[], Any]) -> None:
        try:
            attempt()
            errors[name] = ""
        except EmulationError as error:
            errors[name] = str(error)

    link, _ = delayed_hosts(0.005)
    link.delay_seconds = 0.02
    record_error("shorter than asked", link.verify)
    link.delay_seconds = 0.001
    record_error("longer than asked", link.verify)
    assert link._relay is not None
    os.kill(link._relay.pid, signal.SIGSTOP)
    record_error("no relay", link.verify)
    record_error("too long", lambda: delayed_hosts(60.0))
    record_error("negative", lambda: delayed_hosts(-0.1))
    return errors


if __name__ == "__main__":
    enter_sandbox()
    start_open_vswitch()
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer), flush=True)

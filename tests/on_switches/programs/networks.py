"""Building and campus under the controller: connectivity, paths and failures."""

import json
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from firedex.wire import DesiredNetwork, DesiredSwitch, ShapedPort, to_json
from firedex_emulation.testbed.emulated_network import EmulatedHost
from firedex_emulation.testbed.sandbox import RUN
from tests.on_switches.programs.network_lab import NetworkLab, count_lost, longest_gap
from tests.on_switches.programs.switch_lab import run, until
from tests.support.desired_examples import shaped_port

LINK_BITS_PER_SECOND = 8e6
CONNECTIVITY_SECONDS = 8.0


def main(framework: str, source: str, *checks: str) -> None:
    lab = NetworkLab(framework, source)
    found: dict[str, Any] = {"comes_up": comes_up(lab)}
    for name in checks:
        start = time.monotonic()
        found[name] = {**globals()[name](lab), "seconds": time.monotonic() - start}
    logs = [(RUN / f"{part}.log").read_text() for part in ("controller", "agent")]
    found["mistakes"] = [log for log in logs if "firedex_controller/" in log or " failed" in log]
    print(json.dumps(found))


def comes_up(lab: NetworkLab) -> Any:
    """Measure the time until switches are settled and until all hosts reach each other."""
    lab.start_agent()
    lab.start_controller()
    start = time.monotonic()
    until(lab.settled, "the switches are settled")
    settled = time.monotonic() - start
    lab.wait_for_full_connectivity(seconds=CONNECTIVITY_SECONDS)
    met = time.monotonic() - start
    until(lambda: lab.discovered_links() == lab.existing_links(), "all links are discovered")
    addresses = {host.address for host in lab.hosts.values()}
    until(lambda: addresses <= set(lab.host_locations()), "the controller knows all hosts")
    places = lab.host_locations()
    return {
        "built_seconds": lab.build_seconds,
        "settled_seconds": settled,
        "met_seconds": met,
        "hosts": len(lab.hosts),
        "links": len(lab.existing_links()),
        "troubles": [s["trouble"] for s in lab.topology()["switches"] if s["trouble"]],
        "misplaced": {
            name: places[host.address]
            for name, host in lab.hosts.items()
            if places[host.address] != switch_of(lab, host)
        },
        "strangers": unknown_hosts(lab),
    }


def switch_of(lab: NetworkLab, host: EmulatedHost) -> str:
    """Return the managed switch of a host."""
    if lab.network.switches[host.switch].managed:
        return host.switch
    return next(
        link.one if link.other == host.switch else str(link.other)
        for link in lab.network.links
        if host.switch in (link.one, link.other)
    )


def unknown_hosts(lab: NetworkLab) -> list[Any]:
    """Return the hosts that the controller reports but that do not exist."""
    made = {host.node.defaultIntf().MAC() for host in lab.hosts.values()}
    return [h for h in lab.topology()["hosts"] if h["hardware_address"] not in made]


def broadcasts(lab: NetworkLab) -> Any:
    """Count the copies of one broadcast of each host at all others; then the idle traffic."""
    with lab.record_broadcasts() as received:
        payloads = {name: lab.send_broadcasts(name)[0] for name in lab.hosts}
    copies = {
        name: {other: received[name][words] for other, words in payloads.items() if other != name}
        for name in lab.hosts
    }
    own = [name for name in lab.hosts if received[name][payloads[name]]]
    idle = lab.packets_during(1.0)
    return {"copies": copies, "own": own, "idle_most": max(idle.values())}


def failing_link(lab: NetworkLab) -> Any:
    """Send a stream over a link to the first hall; the link goes down and comes back."""
    short = lab.link("core1", "hall1").one_port
    with lab.record_broadcasts() as received, lab.stream("edge", "engine1", 6) as receive_all:
        broadcaster, payloads = start_broadcasts(lab, "command", 4.5)
        time.sleep(0.5)
        lab.network.set_link("core1", "hall1", up=False)
        time.sleep(1.5)
        missing = lab.existing_links() - lab.discovered_links()
        lab.network.set_link("core1", "hall1", up=True)
        back = until(
            lambda: lab.discovered_links() == lab.existing_links(), "the link is discovered again"
        )
        time.sleep(1.0)
        used = lab.packets_during(0.5)[short]
        result = receive_all()
        broadcaster.join()
    return {
        "outage_seconds": longest_gap(result),
        "lost": count_lost(result),
        "links_missing": len(missing),
        "link_found_again_seconds": back,
        "short_way_packets": used,
        **copies_of(lab, received, payloads, "command"),
    }


def start_broadcasts(
    lab: NetworkLab, host: str, seconds: float
) -> tuple[threading.Thread, list[bytes]]:
    """Send fifty broadcasts per second in the background."""
    payloads: list[bytes] = []
    thread = threading.Thread(
        target=lambda: payloads.extend(lab.send_broadcasts(host, int(50 * seconds), seconds))
    )
    thread.start()
    return thread, payloads


def copies_of(lab: NetworkLab, received: Any, payloads: list[bytes], by: str) -> Any:
    """Return the most copies of one broadcast, and the fewest broadcasts that a host received."""
    listeners = [name for name in lab.hosts if name != by]
    return {
        "shouts": len(payloads),
        "most_copies": max(received[name][words] for name in lab.hosts for words in payloads),
        "heard_least": min(
            sum(received[name][words] > 0 for words in payloads) for name in listeners
        ),
    }


def silent_link(lab: NetworkLab) -> Any:
    """Lose all frames of a link in both directions, while its ports stay up."""
    link = lab.link("core1", "hall1")
    with lab.stream("edge", "engine1", 7) as receive_all:
        drops = []
        for switch, port in ((link.one, link.one_port), (str(link.other), link.other_port)):
            bridge = lab.network.switches[switch].node.name
            drops.append((bridge, f"table=0,priority=65000,in_port={port}"))
            run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", bridge, f"{drops[-1][1]},actions=drop")
        result = receive_all()
    with lab.record_broadcasts() as received:
        broadcaster, payloads = start_broadcasts(lab, "command", 1.5)
        time.sleep(0.2)
        for bridge, match in drops:
            run("ovs-ofctl", "-O", "OpenFlow13", "--strict", "del-flows", bridge, match)
        until(
            lambda: lab.discovered_links() == lab.existing_links(), "the link is discovered again"
        )
        broadcaster.join()
    return {
        "outage_seconds": longest_gap(result),
        "lost": count_lost(result),
        **copies_of(lab, received, payloads, "command"),
    }


def moving_hosts(lab: NetworkLab) -> Any:
    """Attach a host to another switch, and move the addresses of another host."""
    return {"plugged": plugged_elsewhere(lab), "taken": addresses_taken(lab)}


def plugged_elsewhere(lab: NetworkLab) -> Any:
    """Move a host from the access switch of its hall to core2; then it sends one datagram."""
    interface = lab.hosts["engine2"].node.defaultIntf()
    far = interface.link.intf2 if interface.link.intf1 is interface else interface.link.intf1
    core2 = lab.network.switches["core2"].node.name
    before = lab.host_locations()[lab.address("engine2")]
    with lab.stream("edge", "engine2", 4) as receive_all:
        run("ovs-vsctl", "del-port", far.node.name, far.name, "--", "add-port", core2, far.name)
        time.sleep(1.0)
        moved = time.monotonic()
        send_datagram(lab, "engine2", "edge")
        until(
            lambda: lab.host_locations().get(lab.address("engine2")) == "core2",
            "the controller knows the new location",
        )
        known = time.monotonic() - moved
        result = receive_all()
    first = result.arrived_at_seconds[result.arrived_at_seconds > moved].min() - moved
    return {
        "before": before,
        "known_seconds": known,
        "resumed_seconds": float(first),
        "met_seconds": lab.wait_for_full_connectivity(),
    }


def addresses_taken(lab: NetworkLab) -> Any:
    """Give the addresses of ``command`` at core2 to ``ladder2`` in the second hall."""
    old, new = lab.hosts["command"].node, lab.hosts["ladder2"].node
    address, hardware_address = lab.address("command"), old.defaultIntf().MAC()
    old.cmd(f"ip addr flush dev {old.defaultIntf().name}")
    old.cmd(f"ip link set {old.defaultIntf().name} address 02:00:00:00:00:77")
    new.cmd(f"ip addr add {address}/16 dev {new.defaultIntf().name}")
    new.cmd(f"ip link set {new.defaultIntf().name} address {hardware_address}")
    before = lab.host_locations()[address]
    lab.hosts["command"] = replace(lab.hosts.pop("ladder2"), address=address)
    start = time.monotonic()
    send_datagram(lab, "command", "edge")
    until(
        lambda: lab.host_locations().get(address) == "hall2",
        "the controller knows the new location",
    )
    known = time.monotonic() - start
    return {
        "before": before,
        "known_seconds": known,
        "met_seconds": lab.wait_for_full_connectivity(),
    }


def send_datagram(lab: NetworkLab, host: str, to: str) -> None:
    """Send one datagram."""
    with lab.open_socket(host, 2, 2) as sender:
        sender.bind((lab.address(host), 0))
        sender.sendto(b"here", (lab.address(to), 9))


def controller_killed(lab: NetworkLab) -> Any:
    """Kill the controller and restart it after a while, during a stream and broadcasts."""
    with lab.record_broadcasts() as received, lab.stream("edge", "engine1", 7.5) as receive_all:
        broadcaster, payloads = start_broadcasts(lab, "ladder1", 6)
        time.sleep(0.5)
        lab.kill("controller")
        time.sleep(1.0)
        lab.start_controller()
        back = until(lab.settled, "the switches are settled")
        result = receive_all()
        broadcaster.join()
    return {
        "lost": count_lost(result),
        "sent": int(result.sent.sum()),
        "back_seconds": back,
        **copies_of(lab, received, payloads, "ladder1"),
    }


def shaped_links(lab: NetworkLab) -> Any:
    """Set queues on the ports between switches, and towards a switch that is not a neighbour."""
    links = [("core1", "hall1"), ("hall1", "core1"), ("core1", "core2"), ("hall2", None)]
    answer = lab.put(network_with_queues(1, links))
    ports = {f"{one} {other}": port_towards(lab, one, other) for one, other in links}
    shown = {name: leaves(port) for name, port in ports.items()}
    unshaped = leaves(port_towards(lab, "core1", "hall2"))
    status, payloads = lab.ask(
        "PUT", "/v1/network", to_json(network_with_queues(2, [("hall1", "hall2")]))
    )
    return {
        "shaped": {each["switch"]: each["ports_shaped"] for each in answer["switches"]},
        "leaves": shown,
        "unshaped": unshaped,
        "wrong": [status, payloads],
        "stands": {name: leaves(port) for name, port in ports.items()} == shown,
        "version": lab.ask("GET", "/v1/network")[1]["configuration_version"],
        "met_seconds": lab.wait_for_full_connectivity(),
    }


def late_link(lab: NetworkLab) -> Any:
    """Bring up a link that the controller has never seen, during broadcasts.

    Before that, while the link is down, the configuration changes, the controller is restarted, and
    the configuration changes again.
    """
    lab.network.set_link("core1", "hall1", up=False)
    until(lambda: lab.discovered_links() != lab.existing_links(), "the link is gone")
    networks = [
        network_with_queues(version, [("core1", "hall1")], classes=version) for version in (3, 4)
    ]
    changed = [lab.ask("PUT", "/v1/network", to_json(networks[0]))[0]]
    lab.kill("controller")
    lab.start_controller()
    until(lab.settled, "the switches are settled")
    changed.append(lab.ask("PUT", "/v1/network", to_json(networks[1]))[0])
    lab.wait_for_full_connectivity()
    with lab.record_broadcasts() as received:
        broadcaster, payloads = start_broadcasts(lab, "command", 2.2)
        lab.network.set_link("core1", "hall1", up=True)
        back = until(lambda: lab.discovered_links() == lab.existing_links(), "the link is found")
        broadcaster.join()
    idle = lab.packets_during(1.0)
    return {
        "changed": changed,
        "leaves": len(leaves(port_towards(lab, "core1", "hall1"))),
        "found_seconds": back,
        "idle_most": max(idle.values()),
        **copies_of(lab, received, payloads, "command"),
    }


def network_with_queues(
    version: int, links: list[tuple[str, str | None]], classes: int = 3
) -> DesiredNetwork:
    ports: dict[str, list[ShapedPort]] = {}
    for switch, towards in links:
        port = shaped_port(classes, towards=towards, bandwidth_bits_per_second=LINK_BITS_PER_SECOND)
        ports.setdefault(switch, []).append(port)
    return DesiredNetwork(
        configuration_version=version,
        switches=tuple(
            DesiredSwitch(switch=name, ports=tuple(given)) for name, given in ports.items()
        ),
    )


def port_towards(lab: NetworkLab, switch: str, other: str | None) -> str:
    if other is None:
        return str(lab.network.switches[switch].hosts_port)
    link = lab.link(switch, other)
    return link.one_port if link.one == switch else link.other_port


def leaves(port: str) -> list[list[str]]:
    """Return rate and ceiling of the leaf classes of a port, as the kernel shows them."""
    found = []
    for line in run("tc", "class", "show", "dev", port).splitlines():
        words = line.split()
        if "leaf" in words or "prio" in words:
            found.append([words[words.index(name) + 1] for name in ("prio", "rate", "ceil")])
    return sorted(found)


if __name__ == "__main__":
    main(*sys.argv[1:])

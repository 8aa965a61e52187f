"""Building and campus under the controller: who reaches whom, by which way, and what fails."""

import json
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from desired_examples import shaped_port

from experiments.network_lab import NetworkLab, longest_gap, lost
from experiments.switch_lab import run, until
from firedex.wire import DesiredNetwork, DesiredSwitch, ShapedPort, to_json
from firedex_emulation.emulated_network import PlacedHost
from firedex_emulation.sandbox import RUN

LINK_BITS_PER_SECOND = 8e6
MEETING_SECONDS = 8.0


def main(framework: str, source: str, *checks: str) -> None:
    lab = NetworkLab(framework, source)
    found: dict[str, Any] = {"comes_up": comes_up(lab)}
    for name in checks:
        begun = time.monotonic()
        found[name] = {**globals()[name](lab), "seconds": time.monotonic() - begun}
    logs = [(RUN / f"{part}.log").read_text() for part in ("controller", "agent")]
    found["mistakes"] = [log for log in logs if "firedex_controller/" in log or " failed" in log]
    print(json.dumps(found))


def comes_up(lab: NetworkLab) -> Any:
    """From when the controller answers: when switches are settled, and when hosts have met."""
    lab.start_agent()
    lab.start_controller()
    begun = time.monotonic()
    until(lab.settled, "the switches are settled")
    settled = time.monotonic() - begun
    lab.meeting(seconds=MEETING_SECONDS)
    met = time.monotonic() - begun
    until(lambda: lab.links_found() == lab.links_built(), "the links are found")
    addresses = {host.address for host in lab.hosts.values()}
    until(lambda: addresses <= set(lab.places()), "the hosts are known")
    places = lab.places()
    return {
        "built_seconds": lab.built_seconds,
        "settled_seconds": settled,
        "met_seconds": met,
        "hosts": len(lab.hosts),
        "links": len(lab.links_built()),
        "troubles": [s["trouble"] for s in lab.topology()["switches"] if s["trouble"]],
        "misplaced": {
            name: places[host.address]
            for name, host in lab.hosts.items()
            if places[host.address] != switch_of(lab, host)
        },
        "strangers": strangers(lab),
    }


def switch_of(lab: NetworkLab, host: PlacedHost) -> str:
    """The managed switch that a host is behind."""
    if lab.network.switches[host.switch].managed:
        return host.switch
    return next(
        link.one if link.other == host.switch else str(link.other)
        for link in lab.network.links
        if host.switch in (link.one, link.other)
    )


def strangers(lab: NetworkLab) -> list[Any]:
    """Hosts that the controller knows of and that we have not made."""
    made = {host.node.defaultIntf().MAC() for host in lab.hosts.values()}
    return [h for h in lab.topology()["hosts"] if h["hardware_address"] not in made]


def broadcasts(lab: NetworkLab) -> Any:
    """One broadcast of every host: copies at every other; then a second in which nobody talks."""
    with lab.ears() as heard:
        said = {name: lab.shout(name)[0] for name in lab.hosts}
    copies = {
        name: {other: heard[name][words] for other, words in said.items() if other != name}
        for name in lab.hosts
    }
    own = [name for name in lab.hosts if heard[name][said[name]]]
    idle = lab.packets_during(1.0)
    return {"copies": copies, "own": own, "idle_most": max(idle.values())}


def failing_link(lab: NetworkLab) -> Any:
    """A stream from the edge to the first hall, whose link goes down and comes back."""
    short = lab.link("core1", "hall1").one_port
    with lab.ears() as heard, lab.stream("edge", "engine1", 6) as look:
        shouting, said = shouts(lab, "command", 4.5)
        time.sleep(0.5)
        lab.network.set_link("core1", "hall1", up=False)
        time.sleep(1.5)
        missing = lab.links_built() - lab.links_found()
        lab.network.set_link("core1", "hall1", up=True)
        back = until(lambda: lab.links_found() == lab.links_built(), "the link is found again")
        time.sleep(1.0)
        used = lab.packets_during(0.5)[short]
        seen = look()
        shouting.join()
    return {
        "outage_seconds": longest_gap(seen),
        "lost": lost(seen),
        "links_missing": len(missing),
        "link_found_again_seconds": back,
        "short_way_packets": used,
        **copies_of(lab, heard, said, "command"),
    }


def shouts(lab: NetworkLab, host: str, seconds: float) -> tuple[threading.Thread, list[bytes]]:
    """Broadcasts in the background, fifty a second."""
    said: list[bytes] = []
    thread = threading.Thread(
        target=lambda: said.extend(lab.shout(host, int(50 * seconds), seconds))
    )
    thread.start()
    return thread, said


def copies_of(lab: NetworkLab, heard: Any, said: list[bytes], by: str) -> Any:
    """Of broadcasts: the most copies of one at any host, and the fewest that any host heard of."""
    listeners = [name for name in lab.hosts if name != by]
    return {
        "shouts": len(said),
        "most_copies": max(heard[name][words] for name in lab.hosts for words in said),
        "heard_least": min(sum(heard[name][words] > 0 for words in said) for name in listeners),
    }


def silent_link(lab: NetworkLab) -> Any:
    """Frames are lost on a link whose ports stay up, both ways."""
    link = lab.link("core1", "hall1")
    with lab.stream("edge", "engine1", 7) as look:
        drops = []
        for switch, port in ((link.one, link.one_port), (str(link.other), link.other_port)):
            bridge = lab.network.switches[switch].node.name
            drops.append((bridge, f"table=0,priority=65000,in_port={port}"))
            run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", bridge, f"{drops[-1][1]},actions=drop")
        seen = look()
    with lab.ears() as heard:
        shouting, said = shouts(lab, "command", 1.5)
        time.sleep(0.2)
        for bridge, match in drops:
            run("ovs-ofctl", "-O", "OpenFlow13", "--strict", "del-flows", bridge, match)
        until(lambda: lab.links_found() == lab.links_built(), "the link is found again")
        shouting.join()
    return {
        "outage_seconds": longest_gap(seen),
        "lost": lost(seen),
        **copies_of(lab, heard, said, "command"),
    }


def moving_hosts(lab: NetworkLab) -> Any:
    """One is plugged in elsewhere; another's addresses turn up elsewhere while its port is up."""
    return {"plugged": plugged_elsewhere(lab), "taken": addresses_taken(lab)}


def plugged_elsewhere(lab: NetworkLab) -> Any:
    """From the access switch of its hall to core2 itself; then it says one thing to the edge."""
    interface = lab.hosts["engine2"].node.defaultIntf()
    far = interface.link.intf2 if interface.link.intf1 is interface else interface.link.intf1
    core2 = lab.network.switches["core2"].node.name
    before = lab.places()[lab.address("engine2")]
    with lab.stream("edge", "engine2", 4) as look:
        run("ovs-vsctl", "del-port", far.node.name, far.name, "--", "add-port", core2, far.name)
        time.sleep(1.0)
        moved = time.monotonic()
        say(lab, "engine2", "edge")
        until(lambda: lab.places().get(lab.address("engine2")) == "core2", "it is followed")
        known = time.monotonic() - moved
        seen = look()
    first = seen.arrived_at_seconds[seen.arrived_at_seconds > moved].min() - moved
    return {
        "before": before,
        "known_seconds": known,
        "resumed_seconds": float(first),
        "met_seconds": lab.meeting(),
    }


def addresses_taken(lab: NetworkLab) -> Any:
    """Of ``command`` at core2, by who was ``ladder2`` in the second hall."""
    old, new = lab.hosts["command"].node, lab.hosts["ladder2"].node
    address, hardware_address = lab.address("command"), old.defaultIntf().MAC()
    old.cmd(f"ip addr flush dev {old.defaultIntf().name}")
    old.cmd(f"ip link set {old.defaultIntf().name} address 02:00:00:00:00:77")
    new.cmd(f"ip addr add {address}/16 dev {new.defaultIntf().name}")
    new.cmd(f"ip link set {new.defaultIntf().name} address {hardware_address}")
    before = lab.places()[address]
    lab.hosts["command"] = replace(lab.hosts.pop("ladder2"), address=address)
    begun = time.monotonic()
    say(lab, "command", "edge")
    until(lambda: lab.places().get(address) == "hall2", "it is followed")
    known = time.monotonic() - begun
    return {"before": before, "known_seconds": known, "met_seconds": lab.meeting()}


def say(lab: NetworkLab, host: str, to: str) -> None:
    """One datagram."""
    with lab.open_socket(host, 2, 2) as mouth:
        mouth.bind((lab.address(host), 0))
        mouth.sendto(b"here", (lab.address(to), 9))


def controller_killed(lab: NetworkLab) -> Any:
    """Killed, away for a while, and back, under a stream and broadcasts."""
    with lab.ears() as heard, lab.stream("edge", "engine1", 7.5) as look:
        shouting, said = shouts(lab, "ladder1", 6)
        time.sleep(0.5)
        lab.kill("controller")
        time.sleep(1.0)
        lab.start_controller()
        back = until(lab.settled, "the switches are settled")
        seen = look()
        shouting.join()
    return {
        "lost": lost(seen),
        "sent": int(seen.sent.sum()),
        "back_seconds": back,
        **copies_of(lab, heard, said, "ladder1"),
    }


def shaped_links(lab: NetworkLab) -> Any:
    """Queues on the ports between switches; and a neighbour that is none."""
    asked = [("core1", "hall1"), ("hall1", "core1"), ("core1", "core2"), ("hall2", None)]
    answer = lab.put(shaping(1, asked))
    ports = {f"{one} {other}": port_towards(lab, one, other) for one, other in asked}
    shown = {name: leaves(port) for name, port in ports.items()}
    unshaped = leaves(port_towards(lab, "core1", "hall2"))
    status, said = lab.ask("PUT", "/v1/network", to_json(shaping(2, [("hall1", "hall2")])))
    return {
        "shaped": {each["switch"]: each["ports_shaped"] for each in answer["switches"]},
        "leaves": shown,
        "unshaped": unshaped,
        "wrong": [status, said],
        "stands": {name: leaves(port) for name, port in ports.items()} == shown,
        "version": lab.ask("GET", "/v1/network")[1]["configuration_version"],
        "met_seconds": lab.meeting(),
    }


def late_link(lab: NetworkLab) -> Any:
    """A link is down: the configuration is changed, the controller goes away and comes back, it is
    changed again; then the link comes up, which this controller has never seen, under broadcasts.
    """
    lab.network.set_link("core1", "hall1", up=False)
    until(lambda: lab.links_found() != lab.links_built(), "the link is gone")
    wanted = [shaping(version, [("core1", "hall1")], classes=version) for version in (3, 4)]
    changed = [lab.ask("PUT", "/v1/network", to_json(wanted[0]))[0]]
    lab.kill("controller")
    lab.start_controller()
    until(lab.settled, "the switches are settled")
    changed.append(lab.ask("PUT", "/v1/network", to_json(wanted[1]))[0])
    lab.meeting()
    with lab.ears() as heard:
        shouting, said = shouts(lab, "command", 2.2)
        lab.network.set_link("core1", "hall1", up=True)
        back = until(lambda: lab.links_found() == lab.links_built(), "the link is found")
        shouting.join()
    idle = lab.packets_during(1.0)
    return {
        "changed": changed,
        "leaves": len(leaves(port_towards(lab, "core1", "hall1"))),
        "found_seconds": back,
        "idle_most": max(idle.values()),
        **copies_of(lab, heard, said, "command"),
    }


def shaping(version: int, asked: list[tuple[str, str | None]], classes: int = 3) -> DesiredNetwork:
    ports: dict[str, list[ShapedPort]] = {}
    for switch, towards in asked:
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
    """Rate and ceiling of the classes of a port, as the kernel shows them."""
    found = []
    for line in run("tc", "class", "show", "dev", port).splitlines():
        words = line.split()
        if "leaf" in words or "prio" in words:
            found.append([words[words.index(name) + 1] for name in ("prio", "rate", "ceil")])
    return sorted(found)


if __name__ == "__main__":
    main(*sys.argv[1:])

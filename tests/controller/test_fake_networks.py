"""The controller in networks of several switches with loops: links, hosts, ways, floods."""

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from controller_process import FRAMEWORKS, ControllerProcess, wait_until
from desired_examples import flow_rule, network

from firedex.wire import DesiredNetwork, DesiredSwitch, to_json
from firedex_controller.fake_switch import FakeFlow, FakeNetwork, FakeSwitch

NAMES = ("north", "east", "south", "west")
HOST_PORT = 3


def frame(source: str, target: str, kind: str = "0800") -> bytes:
    return bytes.fromhex(target.replace(":", "") + source.replace(":", "") + kind) + bytes(50)


def arp(source: str, address: str) -> bytes:
    """A host asks for somebody, so that everybody hears of it."""
    numbers = "".join(f"{int(part):02x}" for part in address.split("."))
    asking = "0001080006040001" + source.replace(":", "") + numbers + "0" * 12 + "0a0000ff"
    return bytes.fromhex("f" * 12 + source.replace(":", "") + "0806" + asking) + bytes(18)


class Ring:
    """Four switches in a ring, with a chord, and a host at each; all links are made up front."""

    def __init__(self, controller: ControllerProcess, fakes: FakeNetwork) -> None:
        self.controller, self.fakes = controller, fakes
        for number, name in enumerate(NAMES, start=1):
            fakes.add_switch(name, datapath_id=number, ports=5, connect=False)
        self.links = {
            (one, other): fakes.add_link((one, 1), (other, 2))
            for one, other in zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)
        }
        for number, name in enumerate(NAMES, start=1):
            mac, address = f"00:00:00:00:00:0{number}", f"10.0.0.{number}"
            fakes.add_host(name, mac=mac, ip=address, switch=name, port=HOST_PORT)
        for switch in fakes.switches.values():
            switch.start()
        wait_until(lambda: len(self.observed_links()) == 4, "all links are found")
        wait_until(self.floods_everywhere, "broadcasts reach everybody")
        wait_until(self.knows_all, "all hosts are known everywhere")
        self.wait_until_at_rest()

    def observed_links(self) -> set[frozenset[str]]:
        return {
            frozenset((link["from"], link["to"])) for link in self.controller.topology()["links"]
        }

    def hosts(self) -> dict[str, tuple[str, str | None]]:
        found = self.controller.topology()["hosts"]
        return {host["hardware_address"]: (host["switch"], host["address"]) for host in found}

    def knows_all(self) -> bool:
        return all(self.way(one, other) for one in NAMES for other in NAMES if one != other)

    def wait_until_at_rest(self) -> None:
        """No switch is changed for a second."""
        before, since = self.flows(), time.monotonic()
        while time.monotonic() < since + 1.0:
            time.sleep(0.1)
            if self.flows() != before:
                before, since = self.flows(), time.monotonic()

    def flows(self) -> dict[str, frozenset[FakeFlow]]:
        return {name: switch.flows() for name, switch in self.fakes.switches.items()}

    def broadcast(self, host: str) -> Any:
        sender = self.fakes.hosts[host]
        return self.fakes.send(host, arp(sender.mac, sender.ip))

    def floods_everywhere(self) -> bool:
        return all(
            sorted(self.broadcast(host).hosts) == sorted(set(NAMES) - {host}) for host in NAMES
        )

    def way(self, source: str, target: str) -> list[str] | None:
        """The switches that a packet passes, if it arrives and nobody else gets it."""
        hosts = self.fakes.hosts
        journey = self.fakes.send(source, frame(hosts[source].mac, hosts[target].mac))
        return [switch for switch, _ in journey.passed] if journey.hosts == [target] else None


@pytest.fixture(params=FRAMEWORKS)
def controller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerProcess]:
    made = ControllerProcess(
        request.param, tmp_path, {name: number for number, name in enumerate(NAMES, start=1)}
    )
    made.start()
    yield made
    made.kill()


@pytest.fixture
def ring(controller: ControllerProcess) -> Iterator[Ring]:
    with FakeNetwork(controller=controller.openflow) as fakes:
        yield Ring(controller, fakes)
        assert fakes.storms == 0, "something went round and round"


def test_links_hosts_and_shortest_ways_are_found_and_followed(ring: Ring) -> None:
    assert ring.observed_links() == {frozenset(pair) for pair in ring.links}
    wait_until(lambda: len(ring.hosts()) == 4, "all hosts are known")
    assert ring.hosts()["00:00:00:00:00:02"] == ("east", "10.0.0.2")
    wait_until(lambda: ring.way("north", "east") == ["north", "east"], "the way over one link")
    opposite = ring.way("north", "south")
    assert opposite is not None
    assert len(opposite) == 3

    ring.fakes.cut(ring.links["north", "east"])
    around = ["north", "west", "south", "east"]
    wait_until(lambda: ring.way("north", "east") == around, "the other way around", seconds=5)
    wait_until(ring.floods_everywhere, "broadcasts reach everybody")

    ring.fakes.restore(ring.links["north", "east"])
    wait_until(lambda: ring.way("north", "east") == ["north", "east"], "the short way again")
    wait_until(ring.floods_everywhere, "broadcasts reach everybody again")

    ring.fakes.cut(ring.links["north", "east"], silently=True)
    wait_until(lambda: ring.way("north", "east") == around, "a link that fell silent", seconds=15)

    ring.fakes.move("east", switch="west", port=4)
    ring.broadcast("east")
    wait_until(lambda: ring.way("north", "east") == ["north", "west"], "the host that moved")
    assert ring.hosts()["00:00:00:00:00:02"] == ("west", "10.0.0.2")


def test_ways_stand_while_the_controller_is_away_and_when_it_is_back(ring: Ring) -> None:
    wait_until(lambda: ring.way("north", "south") is not None, "the way is there")
    before = ring.flows()
    ring.controller.kill()
    assert ring.way("north", "south") is not None
    ring.controller.start()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        assert ring.way("north", "south") is not None, "not even for a moment"
        assert sorted(ring.broadcast("west").hosts) == ["east", "north", "south"]
        time.sleep(0.05)
    ring.controller.wait_until_settled()
    for name, switch in ring.fakes.switches.items():
        assert switch.flows() ^ before[name] == frozenset()


def test_a_switch_whose_channel_is_away_is_still_part_of_the_ways(ring: Ring) -> None:
    wait_until(lambda: ring.way("north", "east") == ["north", "east"], "the way is there")
    ring.fakes.switches["east"].disconnect()
    wait_until(lambda: not ring.controller.settled(), "the controller has noticed")
    time.sleep(5.0)  # longer than a link may be silent
    assert ring.way("north", "east") == ["north", "east"]
    assert len(ring.observed_links()) == 4


def test_all_switches_or_none(ring: Ring) -> None:
    def rules(version: int, switches: tuple[str, ...], flows: int) -> DesiredNetwork:
        return DesiredNetwork(
            configuration_version=version,
            switches=tuple(
                DesiredSwitch(
                    switch=name, flows=tuple(flow_rule(flow=n, priority=n) for n in range(flows))
                )
                for name in switches
            ),
        )

    def classified(switch: FakeSwitch) -> int:
        return sum("udp_dst" in {f.name for f in flow.match.fields} for flow in switch.flows())

    ring.controller.ask("PUT", "/v1/network", to_json(rules(1, NAMES, 1)))
    assert [classified(switch) for switch in ring.fakes.switches.values()] == [2] * 4
    ring.fakes.switches["west"].limit(max_flows=30)
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(rules(2, NAMES, 40)))
    assert (status, answer["switch"]) == (409, "west")
    assert [classified(switch) for switch in ring.fakes.switches.values()] == [2] * 4


def test_the_order_of_messages_without_bundles(
    controller: ControllerProcess,
) -> None:
    with FakeNetwork(controller=controller.openflow) as fakes:
        switch = fakes.add_switch("north", datapath_id=1, ports=2, connect=False)
        switch.limit(bundles=False)
        switch.start()
        wait_until(lambda: controller.topology()["switches"][0]["settled"], "the switch is settled")
        first = network(flow_rule(flow=0), flow_rule(flow=1), version=1, switch="north")
        assert controller.put(first)["bundled"] is False
        time.sleep(1.5)  # ways are worked out
        switch.forget_received()
        controller.put(
            network(
                flow_rule(flow=1, packets_per_second=9.0),
                flow_rule(flow=2),
                version=2,
                switch="north",
            )
        )
        kinds = [message.kind for message in switch.received() if message.kind != "packet out"]
        changes = [kind for kind in switch.order() if kind not in ("packet out", "barrier")]
        assert [kind for kind, _ in groupby(changes)] == [
            "meter add",
            "meter modify",
            "flow add",
            "flow delete strict",
            "meter delete",
        ]
        last_addition = len(kinds) - kinds[::-1].index("flow add")
        assert "barrier" in kinds[last_addition : kinds.index("flow delete strict")]
        assert "barrier" in kinds[len(kinds) - kinds[::-1].index("meter delete") :]


def test_what_hosts_send_does_not_make_links(ring: Ring) -> None:
    """A host that speaks LLDP, or repeats what it heard of a switch, is no neighbour."""
    before = ring.observed_links()
    heard = [f for f in ring.fakes.hosts["north"].frames if f[12:14] == b"\x88\xcc"]
    assert heard, "switches announce themselves on host ports too"
    changed = bytearray(heard[-1])
    changed[-10] ^= 1
    log = ring.controller.said()
    for lie in (
        bytes(changed),
        frame("00:00:00:00:00:01", "01:80:c2:00:00:0e", "88cc"),
        b"\0" * 14,
    ):
        ring.fakes.send("south", lie)
    time.sleep(0.5)
    assert ring.observed_links() == before
    assert ring.controller.said() == log, "no word, and no traceback"

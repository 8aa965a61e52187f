"""The controller in networks of several switches with loops: links, hosts, ways, floods."""

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from controller_process import FRAMEWORKS, ControllerProcess, wait_until
from desired_examples import flow_rule, network, shaped_port

from firedex.wire import DesiredNetwork, DesiredSwitch, to_json
from firedex_controller.fake_switch import FakeFlow, FakeNetwork, FakeSwitch
from firedex_controller.kept_state import KeptState, write_kept_state
from firedex_controller.topology import PortRef

NAMES = ("north", "east", "south", "west")
HOST_PORT = 3
LONG_ON_RYU = pytest.param(*FRAMEWORKS[0].values, marks=[*FRAMEWORKS[0].marks, pytest.mark.long])


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

    def ports_down(self) -> set[tuple[str, int]]:
        return {
            (switch["switch"], port["number"])
            for switch in self.controller.topology()["switches"]
            for port in switch["ports"]
            if not port["up"]
        }

    def hosts(self) -> dict[str, tuple[str, str | None]]:
        found = self.controller.topology()["hosts"]
        return {host["hardware_address"]: (host["switch"], host["address"]) for host in found}

    def settled_but(self, away: str) -> bool:
        switches = self.controller.topology()["switches"]
        return all(switch["settled"] for switch in switches if switch["switch"] != away)

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


def classified(switch: FakeSwitch) -> int:
    """How many entries are a flow's."""
    return sum("udp_dst" in {f.name for f in flow.match.fields} for flow in switch.flows())


@pytest.fixture(params=[LONG_ON_RYU, FRAMEWORKS[-1]])
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


def test_a_link_that_comes_up_is_found_before_anything_circles(ring: Ring) -> None:
    """Both of its ports were down when the controller met them."""
    ring.fakes.cut(ring.links["north", "east"])
    wait_until(lambda: len(ring.observed_links()) == 3, "the link is gone")
    ring.controller.kill()
    ring.controller.start()
    ring.controller.wait_until_settled()
    down = {("north", 1), ("east", 2)}
    wait_until(lambda: ring.ports_down() >= down, "its ports are down")
    ring.fakes.restore(ring.links["north", "east"])
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        reached = ring.broadcast("west").hosts
        assert len(reached) == len(set(reached)), "twice to the same host"
        time.sleep(0.02)
    wait_until(lambda: len(ring.observed_links()) == 4, "the link is found")
    wait_until(ring.floods_everywhere, "broadcasts reach everybody")
    assert not ring.ports_down() & down


def test_a_configuration_may_speak_of_a_link_that_is_down_but_not_of_one_that_never_was(
    ring: Ring,
) -> None:
    def put(version: int, towards: str) -> tuple[int, str]:
        port = shaped_port(2, towards=towards)
        asked = network(flow_rule(), version=version, switch="north", ports=(port,))
        status, answer = ring.controller.ask("PUT", "/v1/network", to_json(asked))
        return status, answer["error"]

    # There is no agent here: whoever gets as far as to it is told so.
    assert put(1, "south") == (409, "no link from 'north' to 'south' is known")
    assert "agent" in put(1, "east")[1]
    ring.fakes.cut(ring.links["north", "east"])
    wait_until(lambda: len(ring.observed_links()) == 3, "the link is gone")
    assert "agent" in put(1, "east")[1]
    ring.controller.kill()
    ring.controller.start()
    ring.controller.wait_until_settled()
    assert "agent" in put(1, "east")[1]


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

    ring.controller.ask("PUT", "/v1/network", to_json(rules(1, NAMES, 1)))
    assert [classified(switch) for switch in ring.fakes.switches.values()] == [2] * 4
    ring.fakes.switches["west"].limit(max_flows=30)
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(rules(2, NAMES, 40)))
    assert (status, answer["switch"]) == (409, "west")
    assert [classified(switch) for switch in ring.fakes.switches.values()] == [2] * 4


def test_a_first_network_that_one_switch_refuses_leaves_nothing_behind(ring: Ring) -> None:
    ring.fakes.switches["west"].limit(max_flows=30)
    before = ring.flows()
    parts = tuple(
        DesiredSwitch(switch=name, flows=tuple(flow_rule(flow=n) for n in range(40)))
        for name in NAMES
    )
    wanted = DesiredNetwork(configuration_version=1, switches=parts)
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(wanted))
    assert (status, answer["switch"]) == (409, "west")
    assert ring.flows() == before
    assert ring.controller.ask("GET", "/v1/network")[0] == 404


def test_a_switch_that_is_gone_at_a_restart_keeps_nobody_from_finding_ways(ring: Ring) -> None:
    for link in (ring.links["north", "east"], ring.links["east", "south"]):
        ring.fakes.cut(link)
    ring.fakes.switches["east"].disconnect()
    wait_until(lambda: len(ring.observed_links()) == 2, "two links are gone")
    time.sleep(1.5)  # that is written down
    ring.controller.kill()
    ring.controller.start()
    wait_until(lambda: ring.settled_but("east"), "the others are settled")
    ring.fakes.move("south", switch="west", port=4)
    ring.broadcast("south")
    wait_until(lambda: ring.way("north", "south") == ["north", "west"], "the host that moved")


def test_a_state_that_cannot_be_kept_is_not_carried_out(ring: Ring, tmp_path: Path) -> None:
    (tmp_path / "controller.json.new").mkdir()
    before = ring.flows()
    wanted = network(flow_rule(), switch="north")
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(wanted))
    assert status == 409
    assert "the state cannot be kept" in answer["error"]
    assert ring.flows() == before


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


@pytest.mark.parametrize("framework", FRAMEWORKS[-1:])
@pytest.mark.parametrize(
    ("towards", "trouble"),
    [("south", "no link from 'north' to 'south' is known"), ("east", "the switch agent at")],
)
def test_a_switch_without_its_queues_still_has_its_rules(
    towards: str, trouble: str, framework: str, tmp_path: Path
) -> None:
    wanted = network(flow_rule(), switch="north", ports=(shaped_port(2, towards=towards),))
    cut = frozenset({PortRef("north", 1), PortRef("east", 1)})
    state = KeptState(network=wanted, cut_links=frozenset({cut}))
    write_kept_state(tmp_path / "controller.json", state)
    controller = ControllerProcess(framework, tmp_path, {"north": 1, "east": 2})
    controller.start()
    try:
        with FakeNetwork(controller=controller.openflow) as fakes:
            switch = fakes.add_switch("north", datapath_id=1, ports=2, connect=False)
            switch.set_port_up(1, up=False)
            switch.start()
            wait_until(lambda: trouble in told(controller), "the trouble is named")
            wait_until(lambda: bool(classified(switch)), "its rules are there")
            assert not controller.settled()
    finally:
        controller.kill()


def told(controller: ControllerProcess) -> str:
    return controller.topology()["switches"][0]["trouble"] or ""


def test_what_hosts_send_does_not_make_links(ring: Ring) -> None:
    """A host that speaks LLDP, or repeats what it heard of a switch, is no neighbour."""
    before = ring.observed_links()
    heard = [f for f in ring.fakes.hosts["north"].frames if f[12:14] == b"\x88\xcc"]
    assert heard, "switches announce themselves on host ports too"
    changed = bytearray(heard[-1])
    changed[-10] ^= 1
    time.sleep(5.0)  # what was heard is too old to be repeated
    log = ring.controller.said()
    for lie in (
        bytes(changed),
        heard[-1],
        frame("00:00:00:00:00:01", "01:80:c2:00:00:0e", "88cc"),
        b"\0" * 14,
    ):
        ring.fakes.send("south", lie)
    time.sleep(0.5)
    assert ring.observed_links() == before
    assert ring.controller.said() == log, "no word, and no traceback"

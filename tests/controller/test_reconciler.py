"""The controller process in networks of several switches with loops: links, hosts, floods."""

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from firedex.wire import DesiredNetwork, DesiredSwitch, to_json
from firedex_controller.state_file import SavedState, read_state, write_state
from firedex_controller.topology import PortRef
from tests.support.controller_process import FRAMEWORKS, ControllerProcess
from tests.support.desired_examples import flow_rule, network, shaped_port
from tests.support.fake_switch import FakeFlow, FakeNetwork, FakeSwitch
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

NAMES = ("north", "east", "south", "west")
HOST_PORT = 3
LONG_ON_RYU = pytest.param(*FRAMEWORKS[0].values, marks=[*FRAMEWORKS[0].marks, pytest.mark.long])


def frame(source: str, target: str, kind: str = "0800") -> bytes:
    return bytes.fromhex(target.replace(":", "") + source.replace(":", "") + kind) + bytes(50)


def arp_request(source: str, address: str) -> bytes:
    """Return an ARP request, which is flooded and makes its sender known."""
    numbers = "".join(f"{int(part):02x}" for part in address.split("."))
    request = "0001080006040001" + source.replace(":", "") + numbers + "0" * 12 + "0a0000ff"
    return bytes.fromhex("f" * 12 + source.replace(":", "") + "0806" + request) + bytes(18)


class Ring:
    """Four switches in a ring, each with one host."""

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
        wait_until(lambda: len(self.observed_links()) == 4, "all links are discovered")
        wait_until(self.floods_everywhere, "broadcasts reach all hosts")
        wait_until(self.routes_exist, "all hosts are known to all switches")
        self.wait_until_unchanged()

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
        hosts = self.controller.topology()["hosts"]
        return {host["hardware_address"]: (host["switch"], host["address"]) for host in hosts}

    def settled_except(self, missing: str) -> bool:
        switches = self.controller.topology()["switches"]
        return all(switch["settled"] for switch in switches if switch["switch"] != missing)

    def routes_exist(self) -> bool:
        return all(self.route(one, other) for one in NAMES for other in NAMES if one != other)

    def wait_until_unchanged(self) -> None:
        """Wait until the tables of all switches have not changed for a second."""
        before, since = self.flows(), time.monotonic()
        while time.monotonic() < since + 1.0:
            time.sleep(0.1)
            if self.flows() != before:
                before, since = self.flows(), time.monotonic()

    def flows(self) -> dict[str, frozenset[FakeFlow]]:
        return {name: switch.flows() for name, switch in self.fakes.switches.items()}

    def broadcast(self, host: str) -> Any:
        sender = self.fakes.hosts[host]
        return self.fakes.send(host, arp_request(sender.mac, sender.ip))

    def floods_everywhere(self) -> bool:
        return all(
            sorted(self.broadcast(host).hosts) == sorted(set(NAMES) - {host}) for host in NAMES
        )

    def route(self, source: str, target: str) -> list[str] | None:
        """Return the switches that a packet passes, if it reaches its target and no other host."""
        hosts = self.fakes.hosts
        journey = self.fakes.send(source, frame(hosts[source].mac, hosts[target].mac))
        return [switch for switch, _ in journey.passed] if journey.hosts == [target] else None


def flow_entries(switch: FakeSwitch) -> int:
    """Return the number of entries that match a flow."""
    return sum("udp_dst" in {f.name for f in flow.match.fields} for flow in switch.flows())


@pytest.fixture(params=[LONG_ON_RYU, FRAMEWORKS[-1]])
def controller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(
        request.param, tmp_path, {name: number for number, name in enumerate(NAMES, start=1)}
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def ring(controller: ControllerProcess) -> Iterator[Ring]:
    with FakeNetwork(controller=controller.openflow) as fakes:
        yield Ring(controller, fakes)
        assert fakes.storms == 0, "a broadcast storm occurred"


def test_links_hosts_and_shortest_routes_are_discovered_and_updated(ring: Ring) -> None:
    assert ring.observed_links() == {frozenset(pair) for pair in ring.links}
    wait_until(lambda: len(ring.hosts()) == 4, "all hosts are known")
    assert ring.hosts()["00:00:00:00:00:02"] == ("east", "10.0.0.2")
    wait_until(lambda: ring.route("north", "east") == ["north", "east"], "the route over one link")
    opposite = ring.route("north", "south")
    assert opposite is not None
    assert len(opposite) == 3

    ring.fakes.cut(ring.links["north", "east"])
    around = ["north", "west", "south", "east"]
    wait_until(lambda: ring.route("north", "east") == around, "the route around the ring")
    wait_until(ring.floods_everywhere, "broadcasts reach all hosts")

    ring.fakes.restore(ring.links["north", "east"])
    wait_until(
        lambda: ring.route("north", "east") == ["north", "east"], "the route over one link again"
    )
    wait_until(ring.floods_everywhere, "broadcasts reach all hosts again")

    ring.fakes.cut(ring.links["north", "east"], silently=True)
    wait_until(lambda: ring.route("north", "east") == around, "the link times out")

    ring.fakes.move("east", switch="west", port=4)
    ring.broadcast("east")
    wait_until(
        lambda: ring.route("north", "east") == ["north", "west"],
        "the host is found at its new port",
    )
    assert ring.hosts()["00:00:00:00:00:02"] == ("west", "10.0.0.2")


def test_new_link_causes_no_loop(ring: Ring) -> None:
    """The ports of the link are down when the controller starts."""
    ring.fakes.cut(ring.links["north", "east"])
    wait_until(lambda: len(ring.observed_links()) == 3, "the link is removed")
    ring.controller.kill()
    ring.controller.start()
    ring.controller.wait_until_settled()
    down = {("north", 1), ("east", 2)}
    wait_until(lambda: ring.ports_down() >= down, "the ports of the link are down")
    ring.fakes.restore(ring.links["north", "east"])
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        reached = ring.broadcast("west").hosts
        assert len(reached) == len(set(reached)), "a host received the broadcast twice"
        time.sleep(0.02)
    wait_until(lambda: len(ring.observed_links()) == 4, "the link is discovered")
    wait_until(ring.floods_everywhere, "broadcasts reach all hosts")
    assert not ring.ports_down() & down


def test_queues_of_a_cut_link_are_accepted_and_of_an_unknown_link_rejected(
    ring: Ring,
) -> None:
    def put(version: int, towards: str) -> tuple[int, str]:
        port = shaped_port(2, towards=towards)
        desired = network(flow_rule(), version=version, switch="north", ports=(port,))
        status, answer = ring.controller.ask("PUT", "/v1/network", to_json(desired))
        return status, answer["error"]

    # There is no agent: a request that is valid fails when the agent is contacted.
    assert put(1, "south") == (409, "no link from switch 'north' to 'south' has been discovered")
    assert "agent" in put(1, "east")[1]
    ring.fakes.cut(ring.links["north", "east"])
    wait_until(lambda: len(ring.observed_links()) == 3, "the link is removed")
    assert "agent" in put(1, "east")[1]
    ring.controller.kill()
    ring.controller.start()
    ring.controller.wait_until_settled()
    assert "agent" in put(1, "east")[1]


def test_forwarding_survives_a_controller_restart(ring: Ring) -> None:
    wait_until(lambda: ring.route("north", "south") is not None, "the route exists")
    before = ring.flows()
    ring.controller.kill()
    assert ring.route("north", "south") is not None
    ring.controller.start()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        assert ring.route("north", "south") is not None, "the route was interrupted"
        assert sorted(ring.broadcast("west").hosts) == ["east", "north", "south"]
        time.sleep(0.05)
    ring.controller.wait_until_settled()
    for name, switch in ring.fakes.switches.items():
        assert switch.flows() ^ before[name] == frozenset()


def test_disconnected_switch_stays_in_routes(ring: Ring) -> None:
    wait_until(lambda: ring.route("north", "east") == ["north", "east"], "the route exists")
    ring.fakes.switches["east"].disconnect()
    wait_until(lambda: not ring.controller.settled(), "the controller notices the disconnection")
    time.sleep(5.0)  # longer than the timeout of a link
    assert ring.route("north", "east") == ["north", "east"]
    assert len(ring.observed_links()) == 4


def test_network_is_applied_to_all_switches_or_none(ring: Ring) -> None:
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
    assert [flow_entries(switch) for switch in ring.fakes.switches.values()] == [2] * 4
    ring.fakes.switches["west"].limit(max_flows=30)
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(rules(2, NAMES, 40)))
    assert (status, answer["switch"]) == (409, "west")
    assert [flow_entries(switch) for switch in ring.fakes.switches.values()] == [2] * 4


def test_refused_first_network_is_rolled_back(ring: Ring) -> None:
    ring.fakes.switches["west"].limit(max_flows=30)
    before = ring.flows()
    parts = tuple(
        DesiredSwitch(switch=name, flows=tuple(flow_rule(flow=n) for n in range(40)))
        for name in NAMES
    )
    desired = DesiredNetwork(configuration_version=1, switches=parts)
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(desired))
    assert (status, answer["switch"]) == (409, "west")
    assert ring.flows() == before
    assert ring.controller.ask("GET", "/v1/network")[0] == 404


def test_missing_switch_does_not_block_forwarding_after_a_restart(
    ring: Ring, tmp_path: Path
) -> None:
    for link in (ring.links["north", "east"], ring.links["east", "south"]):
        ring.fakes.cut(link)
    ring.fakes.switches["east"].disconnect()
    wait_until(lambda: len(ring.observed_links()) == 2, "two links are removed")
    state = tmp_path / "controller.json"
    wait_until(lambda: len(read_state(state).links) == 2, "the topology is saved")
    ring.controller.kill()
    ring.controller.start()
    wait_until(lambda: ring.settled_except("east"), "the others are settled")
    ring.fakes.move("south", switch="west", port=4)
    ring.broadcast("south")
    wait_until(
        lambda: ring.route("north", "south") == ["north", "west"],
        "the host is found at its new port",
    )


def test_network_that_cannot_be_saved_is_rolled_back(ring: Ring, tmp_path: Path) -> None:
    (tmp_path / "controller.json").unlink()
    (tmp_path / "controller.json").mkdir()
    before = ring.flows()
    desired = network(flow_rule(), switch="north")
    status, answer = ring.controller.ask("PUT", "/v1/network", to_json(desired))
    assert status == 409
    assert "cannot write the state file" in answer["error"]
    assert ring.flows() == before


def test_messages_without_bundles_are_sent_in_order(
    controller: ControllerProcess,
) -> None:
    with FakeNetwork(controller=controller.openflow) as fakes:
        switch = fakes.add_switch("north", datapath_id=1, ports=2, connect=False)
        switch.limit(bundles=False)
        switch.start()
        wait_until(lambda: controller.topology()["switches"][0]["settled"], "the switch is settled")
        first = network(flow_rule(flow=0), flow_rule(flow=1), version=1, switch="north")
        assert controller.put(first)["bundled"] is False
        time.sleep(1.5)  # no further forwarding changes
        switch.clear_received()
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
    ("towards", "problem"),
    [
        ("south", "no link from switch 'north' to 'south' has been discovered"),
        ("east", "switch agent unreachable"),
    ],
)
def test_switch_without_queues_gets_its_rules(
    towards: str, problem: str, framework: str, tmp_path: Path
) -> None:
    desired = network(flow_rule(), switch="north", ports=(shaped_port(2, towards=towards),))
    cut = frozenset({PortRef("north", 1), PortRef("east", 1)})
    state = SavedState(network=desired, cut_links=frozenset({cut}))
    write_state(tmp_path / "controller.json", state)
    controller = ControllerProcess(framework, tmp_path, {"north": 1, "east": 2})
    controller.start()
    try:
        with FakeNetwork(controller=controller.openflow) as fakes:
            switch = fakes.add_switch("north", datapath_id=1, ports=2, connect=False)
            switch.set_port_up(1, up=False)
            switch.start()
            wait_until(lambda: problem in switch_problem(controller), "the problem is reported")
            wait_until(lambda: bool(flow_entries(switch)), "the rules are installed")
            assert not controller.settled()
    finally:
        controller.kill()


def switch_problem(controller: ControllerProcess) -> str:
    return controller.topology()["switches"][0]["trouble"] or ""


def test_frames_of_hosts_create_no_links(ring: Ring) -> None:
    """A host that sends LLDP, or repeats a frame of a switch, is not a neighbour."""
    before = ring.observed_links()
    received = [f for f in ring.fakes.hosts["north"].frames if f[12:14] == b"\x88\xcc"]
    assert received, "switches announce themselves on host ports too"
    changed = bytearray(received[-1])
    changed[-10] ^= 1
    time.sleep(5.0)  # longer than a frame is valid
    log = ring.controller.log_text()
    for forged in (
        bytes(changed),
        received[-1],
        frame("00:00:00:00:00:01", "01:80:c2:00:00:0e", "88cc"),
        b"\0" * 14,
    ):
        ring.fakes.send("south", forged)
    time.sleep(0.5)
    assert ring.observed_links() == before
    assert ring.controller.log_text() == log, "the controller logs nothing"

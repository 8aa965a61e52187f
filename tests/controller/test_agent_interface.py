"""The switch agent's HTTP interface, port keeper and client, with a fake switch host."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from firedex.wire import ClassQueue, ShapedPort, to_json
from firedex_controller.agent.client import AgentClient
from firedex_controller.agent.interface import agent_server
from firedex_controller.agent.observed_tree import (
    Bridge,
    ClassCounts,
    Database,
    ObservedTree,
    OvsPort,
)
from firedex_controller.agent.port_keeper import PortKeeper
from firedex_controller.agent.switch_tools import SendBuffers, bytes_of_packet
from firedex_controller.agent.tree_changes import Command
from firedex_controller.errors import (
    AgentRefused,
    AgentUnreachable,
    CannotShape,
    NoSuchPort,
    QueuesNotApplied,
)
from tests.support.controller_process import FRAMEWORKS

TOKEN = "the-token"  # noqa: S105
PORT = ShapedPort(
    towards="roof",
    bandwidth_bits_per_second=10e6,
    classes=tuple(
        ClassQueue(priority=p, guaranteed_bits_per_second=12e3, limit_packets=60) for p in (8, 0)
    ),
)


class FakeHost:
    """A host with one port, whose commands have no effect, or fail."""

    def __init__(self) -> None:
        self.desired: str | None = None
        self.commands_run: list[Command] = []
        self.refusing = False

    def database(self) -> Database:
        bridge = Bridge(name="br", datapath_id="0" * 15 + "1", userspace=True, ports=("br", "eth1"))
        port = OvsPort(name="eth1", qos=None, desired=self.desired)
        return Database(bridges=(bridge,), ports={"eth1": port}, qos={}, queues={}, version="3.1.0")

    def tree(self, _port: str) -> ObservedTree:
        return ObservedTree()

    def counts(self, _port: str) -> dict[int, ClassCounts]:
        return {1: ClassCounts(packets=5, bytes=500, dropped_packets=2, backlog_packets=1)}

    def mtu(self, _port: str) -> int:
        return 1500

    def run(self, commands: Sequence[Command]) -> None:
        self.commands_run += commands
        if self.refusing:
            raise QueuesNotApplied(" ".join(commands[0]), "no")
        self.desired = to_json(PORT)

    def version(self) -> str:
        return "3.1.0"


class SmallBuffers(SendBuffers):
    def smallest(self) -> int | None:
        return 212_992

    def enlarge(self, needed_bytes: int) -> int | None:  # noqa: ARG002
        return 212_992


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def keeper(host: FakeHost) -> PortKeeper:
    return PortKeeper(host, SmallBuffers())


@pytest.fixture
def url(keeper: PortKeeper) -> Iterator[str]:
    with agent_server(("127.0.0.1", 0), keeper, TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def client(url: str) -> AgentClient:
    return AgentClient(url, token=TOKEN, timeout_seconds=30)


def request(
    url: str, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        all_headers = {"Authorization": f"Bearer {TOKEN}"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        connection.request(method, path, body, all_headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_bridges_are_reported(client: AgentClient) -> None:
    (bridge,) = client.bridges()
    assert (bridge.name, bridge.ports, bridge.datapath) == ("br", ("eth1",), "userspace")
    assert (bridge.priorities, bridge.version) == (16, "3.1.0")


def test_desired_queues_are_stored_on_the_port_first(host: FakeHost, client: AgentClient) -> None:
    with pytest.raises(QueuesNotApplied, match="had no effect"):
        client.shape("eth1", PORT)  # the fake tools have no effect
    store = host.commands_run[0]
    assert store[:6] == ("ovs-vsctl", "--no-wait", "--", "set", "port", "eth1")
    stored = json.loads(json.loads(store[6].partition("=")[2]))
    assert stored["towards"] is None
    assert [row["priority"] for row in stored["classes"]] == [0, 8]


def test_error_contains_the_failed_command_and_its_output(
    host: FakeHost, client: AgentClient
) -> None:
    host.refusing = True
    with pytest.raises(QueuesNotApplied, match=r"ovs-vsctl --no-wait -- set port eth1 .*: no"):
        client.shape("eth1", PORT)


def test_health_lists_a_failing_port_until_it_is_cleared(
    host: FakeHost, keeper: PortKeeper, client: AgentClient
) -> None:
    host.desired = to_json(PORT)
    host.refusing = True
    keeper.repair_all()
    health = client.health()
    assert not health.healthy
    assert [(row.port, row.detail[:9]) for row in health.port_problems] == [("eth1", "ovs-vsctl")]
    host.desired = None
    keeper.repair_all()
    assert client.health().healthy


def test_health_reports_a_small_send_buffer(host: FakeHost, client: AgentClient) -> None:
    host.desired = to_json(PORT)
    health = client.health()
    assert health.send_buffer_needed_bytes == 120 * 2304 > 212_992
    assert "wmem_default" in health.problems[0]


def test_buffer_charge_of_a_full_packet_equals_the_measured_one() -> None:
    assert bytes_of_packet(1500) == 2304


def test_counters_are_reported(host: FakeHost, client: AgentClient) -> None:
    assert client.report("eth1").shaped is None
    host.desired = to_json(PORT)
    (row,) = client.counters("eth1")
    assert (row.port, row.priority, row.packets, row.bytes) == ("eth1", 0, 5, 500)
    assert (row.dropped_packets, row.backlog_packets) == (2, 1)


def test_invalid_stored_queues_are_reported_for_their_port(
    host: FakeHost, keeper: PortKeeper, client: AgentClient
) -> None:
    host.desired = '{"bandwidth": 1}'
    keeper.repair_all()
    assert "external_ids:firedex of port eth1" in client.health().port_problems[0].detail


def test_unknown_port_is_reported(client: AgentClient) -> None:
    with pytest.raises(NoSuchPort, match="'eth9'"):
        client.shape("eth9", PORT)
    with pytest.raises(NoSuchPort, match="'eth9'"):
        client.counters("eth9")
    assert client.clear("eth9") is False


def test_invalid_queues_are_rejected_without_changes(host: FakeHost, client: AgentClient) -> None:
    none = ShapedPort(bandwidth_bits_per_second=10e6, classes=())
    with pytest.raises(CannotShape, match="at least one"):
        client.shape("eth1", none)
    assert host.commands_run == []


@pytest.mark.parametrize("name", ["-force", "a%20b", "a;b", "x" * 16, "..%2f"])
def test_invalid_port_name_returns_400_and_runs_no_command(
    url: str, host: FakeHost, name: str
) -> None:
    for method in ("GET", "DELETE"):
        assert request(url, method, f"/v1/ports/{name}")[0] == 400
    assert request(url, "PUT", f"/v1/ports/{name}", to_json(PORT))[0] == 400
    assert host.commands_run == []


def test_unknown_key_returns_400_with_its_name(url: str, host: FakeHost) -> None:
    body = json.dumps({"bandwidth_bits_per_second": 1e6, "classes": [], "colour": 1})
    status, answer = request(url, "PUT", "/v1/ports/eth1", body)
    assert status == 400
    assert "unknown key 'colour'" in answer["error"]
    assert host.commands_run == []


def test_every_request_needs_the_token(url: str, host: FakeHost) -> None:
    for method, path in (
        ("GET", "/v1/health"),
        ("GET", "/v1/bridges"),
        ("PUT", "/v1/ports/eth1"),
        ("DELETE", "/v1/ports/eth1"),
    ):
        body = to_json(PORT) if method == "PUT" else None
        assert request(url, method, path, body, Authorization="Bearer wrong")[0] == 401
    assert host.commands_run == []


def test_wrong_token_raises_agent_refused(url: str) -> None:
    with pytest.raises(AgentRefused, match="Authorization"):
        AgentClient(url, token="wrong").health()  # noqa: S106


def test_closed_port_raises_agent_unreachable() -> None:
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed_port.getsockname()[1]}"
        with pytest.raises(AgentUnreachable, match=url):
            AgentClient(url).bridges()


def test_silent_agent_raises_agent_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AgentUnreachable, match="timed out"):
            AgentClient(url, timeout_seconds=0.2).bridges()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_client_works_with_both_frameworks(url: str, framework: str) -> None:
    """Ryu runs under eventlet, which replaces sockets and threads of the whole process."""
    code = f"""
import firedex_controller.framework
from firedex_controller.agent.client import AgentClient
print(AgentClient({url!r}, token={TOKEN!r}).bridges()[0].name)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    environment = {**os.environ, "FIREDEX_OPENFLOW": framework}
    completed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert completed.stdout.strip() == "br"

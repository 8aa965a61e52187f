"""The switch agent's HTTP interface and its client, in front of a switch host that is imagined."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from firedex.wire import ClassQueue, ShapedPort, to_json
from firedex_controller.agent.client import AgentClient
from firedex_controller.agent.errors import (
    AgentRefused,
    AgentUnreachable,
    CannotShape,
    NoSuchPort,
    QueuesNotApplied,
)
from firedex_controller.agent.http_interface import LARGEST_BODY_BYTES, AgentServer
from firedex_controller.agent.observed_tree import (
    Bridge,
    ClassCounts,
    Database,
    ObservedTree,
    OvsPort,
)
from firedex_controller.agent.port_keeper import PortKeeper
from firedex_controller.agent.send_buffer import SendBuffers, bytes_of_packet
from firedex_controller.agent.tree_changes import Command

TOKEN = "the token"  # noqa: S105
PORT = ShapedPort(
    towards="roof",
    bandwidth_bits_per_second=10e6,
    classes=tuple(
        ClassQueue(priority=p, guaranteed_bits_per_second=12e3, limit_packets=60) for p in (8, 0)
    ),
)


class ImaginedHost:
    """Has one port; its tools take every command and do nothing, or refuse."""

    def __init__(self) -> None:
        self.desired: str | None = None
        self.ran: list[Command] = []
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
        self.ran += commands
        if self.refusing:
            raise QueuesNotApplied(" ".join(commands[0]), "no")
        self.desired = to_json(PORT)

    def version(self) -> str:
        return "3.1.0"


class NoBuffers(SendBuffers):
    def smallest(self) -> int | None:
        return 212_992

    def enlarge(self, wanted_bytes: int) -> int | None:  # noqa: ARG002
        return 212_992


@pytest.fixture
def host() -> ImaginedHost:
    return ImaginedHost()


@pytest.fixture
def keeper(host: ImaginedHost) -> PortKeeper:
    return PortKeeper(host, NoBuffers())


@pytest.fixture
def url(keeper: PortKeeper) -> Iterator[str]:
    with AgentServer(("127.0.0.1", 0), keeper, TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def client(url: str) -> AgentClient:
    return AgentClient(url, token=TOKEN, timeout_seconds=5)


def ask(
    url: str, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        given = {"Authorization": f"Bearer {TOKEN}"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_bridges(client: AgentClient) -> None:
    (bridge,) = client.bridges()
    assert (bridge.name, bridge.ports, bridge.datapath) == ("br", ("eth1",), "userspace")
    assert (bridge.priorities, bridge.version) == (16, "3.1.0")


def test_what_is_meant_is_kept_on_the_port_first(host: ImaginedHost, client: AgentClient) -> None:
    with pytest.raises(QueuesNotApplied, match="it is as if it had not"):
        client.shape("eth1", PORT)  # the imagined tools do nothing
    keep = host.ran[0]
    assert keep[:6] == ("ovs-vsctl", "--no-wait", "--", "set", "port", "eth1")
    kept = json.loads(json.loads(keep[6].partition("=")[2]))
    assert kept["towards"] is None
    assert [row["priority"] for row in kept["classes"]] == [0, 8]


def test_a_command_that_fails_is_named_with_what_it_said(
    host: ImaginedHost, client: AgentClient
) -> None:
    host.refusing = True
    with pytest.raises(QueuesNotApplied, match=r"ovs-vsctl --no-wait -- set port eth1 .*: no"):
        client.shape("eth1", PORT)


def test_a_half_applied_port_is_in_health_until_it_is_not_meant(
    host: ImaginedHost, keeper: PortKeeper, client: AgentClient
) -> None:
    host.desired = to_json(PORT)
    host.refusing = True
    keeper.look_after_all()
    health = client.health()
    assert not health.healthy
    assert [(row.port, row.detail[:9]) for row in health.troubled_ports] == [("eth1", "ovs-vsctl")]
    host.desired = None
    keeper.look_after_all()
    assert client.health().healthy


def test_a_buffer_that_is_too_small_is_in_health(host: ImaginedHost, client: AgentClient) -> None:
    host.desired = to_json(PORT)
    health = client.health()
    assert health.send_buffer_needed_bytes == 120 * 2304 > 212_992
    assert "wmem_default" in health.problems[0]


def test_a_full_packet_is_charged_as_measured() -> None:
    assert bytes_of_packet(1500) == 2304


def test_counters(host: ImaginedHost, client: AgentClient) -> None:
    assert client.report("eth1").shaped is None
    host.desired = to_json(PORT)
    (row,) = client.counters("eth1")
    assert (row.port, row.priority, row.packets, row.bytes) == ("eth1", 0, 5, 500)
    assert (row.dropped_packets, row.backlog_packets) == (2, 1)


def test_kept_nonsense_is_trouble_of_that_port_only(
    host: ImaginedHost, keeper: PortKeeper, client: AgentClient
) -> None:
    host.desired = '{"bandwidth": 1}'
    keeper.look_after_all()
    assert "external_ids:firedex of port eth1" in client.health().troubled_ports[0].detail


def test_a_port_that_is_not_there(client: AgentClient) -> None:
    with pytest.raises(NoSuchPort, match="'eth9'"):
        client.shape("eth9", PORT)
    with pytest.raises(NoSuchPort, match="'eth9'"):
        client.counters("eth9")
    assert client.clear("eth9") is False


def test_what_no_port_can_have_changes_nothing(host: ImaginedHost, client: AgentClient) -> None:
    none = ShapedPort(bandwidth_bits_per_second=10e6, classes=())
    with pytest.raises(CannotShape, match="at least one"):
        client.shape("eth1", none)
    assert host.ran == []


@pytest.mark.parametrize("name", ["-force", "a%20b", "a;b", "x" * 16, "..%2f"])
def test_names_that_are_not_of_ports_reach_no_tool(url: str, host: ImaginedHost, name: str) -> None:
    for method in ("GET", "DELETE"):
        assert ask(url, method, f"/v1/ports/{name}")[0] == 400
    assert ask(url, "PUT", f"/v1/ports/{name}", to_json(PORT))[0] == 400
    assert host.ran == []


def test_an_unknown_key_is_refused_by_name(url: str, host: ImaginedHost) -> None:
    body = json.dumps({"bandwidth_bits_per_second": 1e6, "classes": [], "colour": 1})
    status, answer = ask(url, "PUT", "/v1/ports/eth1", body)
    assert status == 400
    assert "unknown key 'colour'" in answer["error"]
    assert host.ran == []


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer \xe9"])
def test_without_the_token_nothing_is_told(url: str, host: ImaginedHost, header: str) -> None:
    for method, path in (
        ("GET", "/v1/health"),
        ("GET", "/v1/bridges"),
        ("PUT", "/v1/ports/eth1"),
        ("DELETE", "/v1/ports/eth1"),
    ):
        body = to_json(PORT) if method == "PUT" else None
        status, answer = ask(url, method, path, body, Authorization=header)
        assert (status, list(answer)) == (401, ["error"])
    assert host.ran == []


def test_the_client_says_that_it_was_refused(url: str) -> None:
    with pytest.raises(AgentRefused, match="Authorization"):
        AgentClient(url, token="wrong").health()  # noqa: S106


@pytest.mark.parametrize("length", ["-1", "many", "1e3", "", "+5", "٣"])
def test_a_length_that_is_none_is_400(url: str, length: str) -> None:
    assert raw(url, f"Content-Length: {length}\r\n") == 400


def test_two_lengths_are_400(url: str) -> None:
    assert raw(url, "Content-Length: 2\r\nContent-Length: 3\r\n") == 400


def test_a_body_in_pieces_is_411(url: str) -> None:
    assert raw(url, "Transfer-Encoding: chunked\r\n") == 411


def test_a_body_too_large_is_413_before_it_is_read(url: str) -> None:
    assert raw(url, f"Content-Length: {LARGEST_BODY_BYTES + 1}\r\n") == 413


def raw(url: str, header: str) -> int:
    """The status of a PUT with this header and no body."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        request = f"PUT /v1/ports/eth1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall((request + header + "\r\n").encode())
        return int(connection.recv(4096).split()[1])


def test_other_paths_are_not_there(url: str) -> None:
    for path in ("/", "/v1/ports", "/v1/ports/", "/v1/ports/eth1/x", "/v1/attic"):
        assert ask(url, "GET", path)[0] == 404


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AgentUnreachable, match=url):
            AgentClient(url).bridges()


def test_an_agent_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AgentUnreachable, match="timed out"):
            AgentClient(url, timeout_seconds=0.2).bridges()

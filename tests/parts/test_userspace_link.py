"""The userspace link with real sockets on loopback: order, classes, bandwidth, both transports."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address

import pytest
from free_ports import free_port

from firedex.wire import Buffer, Configuration, Flow, FlowEndpoints
from firedex.wire.workload import Transport
from firedex_emulation.embedded.flow_classes import FlowClasses
from firedex_emulation.embedded.link_paths import PortSettings
from firedex_emulation.embedded.shaped_path import ShapedPort
from firedex_emulation.embedded.userspace_link import WINDOW_BYTES, LinkSides, UserspaceLink

SOURCE, KNOWN, LISTEN = "127.81.0.1", "127.82.0.1", "127.81.0.254"
PATIENCE_SECONDS = 30.0


def usable() -> bool:
    try:
        with socket.socket() as probe:
            probe.bind((SOURCE, 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not usable(), reason="only 127.0.0.1 of loopback is usable here")


def configuration(transport: Transport, classes: dict[int, int]) -> Configuration:
    """A flow for each local port."""
    return Configuration(
        version=1,
        broker="b",
        created_at=datetime.now(UTC),
        reason="test",
        flows=tuple(
            Flow(
                subscriber="s",
                flow=number,
                priority=priority,
                drop_rate=0.0,
                endpoints=FlowEndpoints(
                    transport=transport,
                    subscriber_address=IPv4Address(KNOWN),
                    subscriber_ports=(port, port + 1),
                    gateway_address=IPv4Address("127.0.0.1"),
                    gateway_port=1884,
                ),
            )
            for number, (port, priority) in enumerate(classes.items())
        ),
    )


@dataclass
class Scene:
    link: UserspaceLink
    classes: FlowClasses
    port: ShapedPort
    asked: list[bool] = field(default_factory=list)


@asynccontextmanager
async def linked(gateway: int, bits_per_second: float, packets: int = 1000) -> AsyncIterator[Scene]:
    settings = PortSettings(
        bits_per_second=bits_per_second,
        classes=8,
        buffer=Buffer(kind="per-class-head-drop", packets=packets),
        propagation_seconds=0.0,
    )
    port, classes, asked = ShapedPort(settings), FlowClasses(), list[bool]()
    sides = LinkSides(
        listen=(LISTEN, free_port()),
        gateway=("127.0.0.1", gateway),
        known_as={SOURCE: KNOWN},
        ports={KNOWN: [port]},
    )
    link = UserspaceLink(sides, classes, unknown=lambda: asked.append(True))
    await link.start()
    try:
        yield Scene(link, classes, port, asked)
    finally:
        link.close()
        await asyncio.sleep(0)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scene()

    asyncio.run(bounded())


def datagram_socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind((address, 0))
    return made


def test_datagrams_go_both_ways_and_the_gateway_sees_the_known_address() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        with datagram_socket("127.0.0.1") as gateway, datagram_socket(SOURCE) as client:
            async with linked(gateway.getsockname()[1], 1e9) as place:
                await loop.sock_sendto(client, b"hello", place.link.sides.listen)
                said, peer = await loop.sock_recvfrom(gateway, 100)
                assert said == b"hello"
                assert peer == (KNOWN, client.getsockname()[1])
                await loop.sock_sendto(gateway, b"welcome", peer)
                assert await loop.sock_recvfrom(client, 100) == (
                    b"welcome",
                    place.link.sides.listen,
                )
                assert place.asked == [True]  # it is in no plan yet

    run(scene)


def test_strangers_are_not_let_through() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        with datagram_socket("127.0.0.1") as gateway, datagram_socket("127.0.0.1") as stranger:
            async with linked(gateway.getsockname()[1], 1e9) as place:
                await loop.sock_sendto(stranger, b"hello", place.link.sides.listen)
                reader, writer = await asyncio.open_connection(*place.link.sides.listen)
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
                with pytest.raises(BlockingIOError):
                    gateway.recv(100)

    run(scene)


def test_the_highest_class_goes_first_and_the_oldest_are_dropped() -> None:
    """40 packets of the low class come, 10 can wait; then one of the high class comes."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        with (
            datagram_socket("127.0.0.1") as gateway,
            datagram_socket(SOURCE) as low,
            datagram_socket(SOURCE) as high,
        ):
            # 100 bytes with headers take 0.2 s, until there is no more to see.
            async with linked(gateway.getsockname()[1], 4_000, packets=10) as place:
                peers = {}
                for name, client in (("low", low), ("high", high)):
                    await loop.sock_sendto(client, b"hello", place.link.sides.listen)
                    _, peers[name] = await loop.sock_recvfrom(gateway, 100)
                place.classes.follow(
                    configuration("udp", {peers["low"][1]: 5, peers["high"][1]: 0})
                )
                for number in range(40):
                    gateway.sendto(bytes([number]) * 58, peers["low"])
                while place.port.lost_packets + place.port.sent_packets < 29:
                    await asyncio.sleep(0)
                gateway.sendto(b"!" * 58, peers["high"])
                await loop.sock_recv(high, 100)
                before = place.port.sent_packets
                place.port.set_bandwidth(1e9)
                received = [-1]
                while received[-1] != 39:
                    received.append((await loop.sock_recv(low, 100))[0])
                assert received == sorted(received)
                assert received[-10:] == list(range(30, 40))
                assert place.port.lost_packets > 0
                assert before < place.port.sent_packets  # it has overtaken

    run(scene)


@asynccontextmanager
async def gateway_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    done = asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            done.set()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await done.wait()


def test_a_connection_keeps_its_bytes_in_order_also_when_its_class_changes() -> None:
    size = 300_000
    sent = b"".join(number.to_bytes(4, "big") for number in range(size // 4))

    async def scene() -> None:
        peers: list[tuple[str, int]] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append(writer.get_extra_info("peername"))
            assert await reader.read(100) == b"hello"
            writer.write(sent)
            await writer.drain()

        async with (
            gateway_server(serve) as gateway,
            linked(gateway, 8_000_000) as place,
        ):
            reader, writer = await asyncio.open_connection(
                *place.link.sides.listen, local_addr=(SOURCE, 0)
            )
            port = writer.get_extra_info("sockname")[1]
            writer.write(b"hello")
            received = bytearray()
            while chunk := await reader.read(16_384):
                received += chunk
                priority = len(received) // 40_000 % 3
                place.classes.follow(configuration("tcp", {port: 5 - priority}))
            assert bytes(received) == sent
            assert peers == [(KNOWN, port)]
            assert place.port.lost_packets == 0
            assert place.port.sent_packets >= size // 1448
            writer.close()

    run(scene)


def test_a_slow_link_holds_back_the_gateway() -> None:
    """Far more is offered than passes: what the link holds is bounded by its window."""

    async def scene() -> None:
        stuck = asyncio.Event()
        go_on = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.transport.set_write_buffer_limits(high=1)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            for _ in range(1000):
                writer.write(b"x" * 10_000)
                try:
                    async with asyncio.timeout(0.5):
                        await writer.drain()
                except TimeoutError:
                    break
            stuck.set()
            await go_on.wait()

        async with gateway_server(serve) as gateway, linked(gateway, 8_000) as place:
            _, writer = await asyncio.open_connection(
                *place.link.sides.listen, local_addr=(SOURCE, 0)
            )
            writer.write(b"hello")
            await stuck.wait()
            under_way = [side._gateway._under_way for side in place.link.connections]  # type: ignore[union-attr]
            assert len(under_way) == 1
            assert under_way[0] <= 2 * WINDOW_BYTES
            writer.close()
            go_on.set()

    run(scene)


def test_the_port_is_free_again_as_soon_as_a_client_has_left() -> None:
    """Two ports are used in turn, and sooner than TCP likes."""

    async def scene() -> None:
        greeted = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal greeted
            while data := await reader.read(100):
                greeted += 1
                writer.write(data)

        server = await asyncio.start_server(_until_lost(serve), "127.0.0.1", 0)
        gateway = server.sockets[0].getsockname()[1]
        local = free_port()
        async with server, linked(gateway, 1e9) as place:
            for _ in range(5):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                client.bind((SOURCE, local))
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, place.link.sides.listen)
                await loop.sock_sendall(client, b"hello")
                assert await loop.sock_recv(client, 100) == b"hello"
                client.close()
                while place.link.connections:
                    await asyncio.sleep(0.001)
        assert greeted == 5

    run(scene)


def _until_lost(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    return quietly

"""Test the userspace link with real sockets on loopback, over UDP and TCP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address

import pytest

from firedex.wire import Buffer, Configuration, Flow, FlowEndpoints
from firedex.wire.workload import Transport
from firedex_emulation.embedded.priority_link import PortSettings, ShapedPort
from firedex_emulation.embedded.userspace_link import (
    WINDOW_BYTES,
    FlowClasses,
    LinkSides,
    UserspaceLink,
)
from tests.support.free_ports import free_port

SOURCE, VISIBLE, LISTEN = "127.81.0.1", "127.82.0.1", "127.81.0.254"
TIMEOUT_SECONDS = 60.0


def loopback_range_is_usable() -> bool:
    try:
        with socket.socket() as probe:
            probe.bind((SOURCE, 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not loopback_range_is_usable(), reason="only 127.0.0.1 of loopback is usable here"
)


def configuration(transport: Transport, classes: dict[int, int]) -> Configuration:
    """Return a configuration with one flow for each local port."""
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
                    subscriber_address=IPv4Address(VISIBLE),
                    subscriber_ports=(port, port + 1),
                    gateway_address=IPv4Address("127.0.0.1"),
                    gateway_port=1884,
                ),
            )
            for number, (port, priority) in enumerate(classes.items())
        ),
    )


@dataclass
class LinkUnderTest:
    link: UserspaceLink
    classes: FlowClasses
    port: ShapedPort
    unknown_flow_calls: list[bool] = field(default_factory=list)


@asynccontextmanager
async def running_link(
    gateway: int, bits_per_second: float, packets: int = 1000
) -> AsyncIterator[LinkUnderTest]:
    settings = PortSettings(
        bits_per_second=bits_per_second,
        classes=8,
        buffer=Buffer(kind="per-class-head-drop", packets=packets),
        propagation_seconds=0.0,
    )
    port, classes, unknown_flow_calls = ShapedPort(settings), FlowClasses(), list[bool]()
    sides = LinkSides(
        listen=(LISTEN, free_port()),
        gateway=("127.0.0.1", gateway),
        visible_addresses={SOURCE: VISIBLE},
        ports={VISIBLE: [port]},
    )
    link = UserspaceLink(sides, classes, on_unknown_flow=lambda: unknown_flow_calls.append(True))
    await link.start()
    try:
        yield LinkUnderTest(link, classes, port, unknown_flow_calls)
    finally:
        link.close()
        await asyncio.sleep(0)


def run_with_timeout(check: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await check()

    asyncio.run(bounded())


def datagram_socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind((address, 0))
    return made


def test_datagrams_are_relayed_with_the_translated_address() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        with datagram_socket("127.0.0.1") as gateway, datagram_socket(SOURCE) as client:
            async with running_link(gateway.getsockname()[1], 1e9) as setup:
                await loop.sock_sendto(client, b"hello", setup.link.sides.listen)
                received_data, peer = await loop.sock_recvfrom(gateway, 100)
                assert received_data == b"hello"
                assert peer == (VISIBLE, client.getsockname()[1])
                await loop.sock_sendto(gateway, b"welcome", peer)
                assert await loop.sock_recvfrom(client, 100) == (
                    b"welcome",
                    setup.link.sides.listen,
                )
                assert setup.unknown_flow_calls == [True]  # no configuration contains it yet

    run_with_timeout(check)


def test_unknown_senders_are_rejected() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        with (
            datagram_socket("127.0.0.1") as gateway,
            datagram_socket("127.0.0.1") as unknown_sender,
        ):
            async with running_link(gateway.getsockname()[1], 1e9) as setup:
                await loop.sock_sendto(unknown_sender, b"hello", setup.link.sides.listen)
                reader, writer = await asyncio.open_connection(*setup.link.sides.listen)
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
                with pytest.raises(BlockingIOError):
                    gateway.recv(100)

    run_with_timeout(check)


def test_highest_class_is_sent_first_and_a_full_queue_drops_its_oldest_packets() -> None:
    """Offer 40 packets of the low class to a queue of 10, then one of the high class."""

    async def check() -> None:
        loop = asyncio.get_running_loop()
        with (
            datagram_socket("127.0.0.1") as gateway,
            datagram_socket(SOURCE) as low,
            datagram_socket(SOURCE) as high,
        ):
            # A packet of 100 bytes with headers takes 0.2 s, so packets wait in the queue.
            async with running_link(gateway.getsockname()[1], 4_000, packets=10) as setup:
                peers = {}
                for name, client in (("low", low), ("high", high)):
                    await loop.sock_sendto(client, b"hello", setup.link.sides.listen)
                    _, peers[name] = await loop.sock_recvfrom(gateway, 100)
                setup.classes.update(
                    configuration("udp", {peers["low"][1]: 5, peers["high"][1]: 0})
                )
                for number in range(40):
                    gateway.sendto(bytes([number]) * 58, peers["low"])
                while setup.port.lost_packets + setup.port.sent_packets < 29:
                    await asyncio.sleep(0)
                gateway.sendto(b"!" * 58, peers["high"])
                await loop.sock_recv(high, 100)
                before = setup.port.sent_packets
                setup.port.set_bandwidth(1e9)
                received = [-1]
                while received[-1] != 39:
                    received.append((await loop.sock_recv(low, 100))[0])
                assert received == sorted(received)
                assert received[-10:] == list(range(30, 40))
                assert setup.port.lost_packets > 0
                assert before < setup.port.sent_packets  # the high class has overtaken the low one

    run_with_timeout(check)


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


def test_bytes_stay_in_order_when_the_class_changes() -> None:
    size = 300_000
    sent = b"".join(number.to_bytes(4, "big") for number in range(size // 4))

    async def check() -> None:
        peers: list[tuple[str, int]] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append(writer.get_extra_info("peername"))
            assert await reader.read(100) == b"hello"
            writer.write(sent)
            await writer.drain()

        async with (
            gateway_server(serve) as gateway,
            running_link(gateway, 8_000_000) as setup,
        ):
            reader, writer = await asyncio.open_connection(
                *setup.link.sides.listen, local_addr=(SOURCE, 0)
            )
            port = writer.get_extra_info("sockname")[1]
            writer.write(b"hello")
            received = bytearray()
            while chunk := await reader.read(16_384):
                received += chunk
                priority = len(received) // 40_000 % 3
                setup.classes.update(configuration("tcp", {port: 5 - priority}))
            assert bytes(received) == sent
            assert peers == [(VISIBLE, port)]
            assert setup.port.lost_packets == 0
            assert setup.port.sent_packets >= size // 1448
            writer.close()

    run_with_timeout(check)


def test_slow_link_pauses_reading_from_the_gateway() -> None:
    """Offer more than the link can send: it holds at most one window."""

    async def check() -> None:
        gateway_paused = asyncio.Event()
        resume = asyncio.Event()

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
            gateway_paused.set()
            await resume.wait()

        async with gateway_server(serve) as gateway, running_link(gateway, 8_000) as setup:
            _, writer = await asyncio.open_connection(
                *setup.link.sides.listen, local_addr=(SOURCE, 0)
            )
            writer.write(b"hello")
            await gateway_paused.wait()
            in_flight = [side._gateway._in_flight for side in setup.link.connections]  # type: ignore[union-attr]
            assert len(in_flight) == 1
            assert in_flight[0] <= 2 * WINDOW_BYTES
            writer.close()
            resume.set()

    run_with_timeout(check)


def test_port_can_be_bound_again_after_disconnect() -> None:
    """Reuse a port at once, without the waiting time of TCP."""

    async def check() -> None:
        received_count = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal received_count
            while data := await reader.read(100):
                received_count += 1
                writer.write(data)

        server = await asyncio.start_server(_ignore_connection_loss(serve), "127.0.0.1", 0)
        gateway = server.sockets[0].getsockname()[1]
        local = free_port()
        async with server, running_link(gateway, 1e9) as setup:
            for _ in range(5):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                client.bind((SOURCE, local))
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, setup.link.sides.listen)
                await loop.sock_sendall(client, b"hello")
                assert await loop.sock_recv(client, 100) == b"hello"
                client.close()
                while setup.link.connections:
                    await asyncio.sleep(0.001)
        assert received_count == 5

    run_with_timeout(check)


def _ignore_connection_loss(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve_and_ignore_loss(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    return serve_and_ignore_loss

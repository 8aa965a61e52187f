"""Links between federators on loopback: which connection is kept, and limits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from firedex.federation.frames import PROTOCOL_VERSION, FrameType, encode_json
from firedex.federation.link_connection import MAX_HANDSHAKES, MAX_OBSERVERS
from firedex.federation.links import MAX_HANDSHAKES_PER_ADDRESS, Links, LinkSettings
from tests.support.free_ports import free_port


class Listener:
    """Records what happens to the links."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.refused: list[str] = []

    def link_up(self, neighbour: str, cost: float) -> None:  # noqa: ARG002
        self.events.append(f"{neighbour} up")

    def link_down(self, neighbour: str) -> None:
        self.events.append(f"{neighbour} down")

    def frame_received(self, neighbour: str, kind: int, body: bytes) -> None:  # noqa: ARG002
        raise RuntimeError("a fault in the federator")

    def heartbeat_content(self) -> bytes:
        return b""

    def heartbeat_received(self, neighbour: str, content: bytes) -> None:
        pass

    def query_received(self, query: dict[str, Any], answer: Callable[[Any], None]) -> None:
        answer(query)

    def peer_refused(self, peer: str, reason: str) -> None:
        self.refused.append(peer)
        self.events.append(reason)


def hello(**content: Any) -> bytes:
    versions = [PROTOCOL_VERSION, PROTOCOL_VERSION]
    return encode_json(FrameType.HELLO, {"federation": "test", "protocol": versions, **content})


def run(
    scenario: Callable[[Links, Listener, int], Awaitable[None]],
    *,
    members: frozenset[str] | None = None,
) -> None:
    """Run a scenario with the links of site ``m``."""

    async def main() -> None:
        port, listener = free_port(), Listener()
        settings = LinkSettings(
            site="m", federation="test", listen=("127.0.0.1", port), neighbours={}, costs={},
            lease_seconds=30.0, members=members,
        )  # fmt: skip
        links = Links(settings, listener)
        await links.start()
        try:
            async with asyncio.timeout(30):
                await scenario(links, listener, port)
        finally:
            await links.close()

    asyncio.run(main())


def test_connection_that_is_not_kept_receives_no_hello() -> None:
    """Otherwise its site would consider it a link, and connect again without a wait."""

    async def scenario(links: Links, listener: Listener, port: int) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(hello(site="a", role="peer"))
        while "a" not in links.connections:
            await asyncio.sleep(0.01)
        reader, second = await asyncio.open_connection("127.0.0.1", port)
        second.write(hello(site="a", role="peer"))
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        assert answer == b""
        assert listener.events == ["a up"]
        first.close()
        second.close()

    run(scenario)


def test_number_of_observers_is_limited() -> None:
    async def scenario(links: Links, listener: Listener, port: int) -> None:
        writers = []
        for _ in range(MAX_OBSERVERS + 1):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello(role="observer"))
            writers.append(writer)
        while "too many observers" not in listener.events:
            await asyncio.sleep(0.01)
        assert len(links.observers) == MAX_OBSERVERS
        for writer in writers:
            writer.close()

    run(scenario)


def test_listed_membership_refuses_other_sites_by_name() -> None:
    async def scenario(links: Links, listener: Listener, port: int) -> None:
        for site in ("bus", "port"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello(site=site, role="peer"))
            answer = await reader.read(1000)
            writer.close()
            assert (b"its membership is 'listed'" in answer) == (site == "bus")
        assert "port up" in listener.events
        assert [name.split()[:2] for name in listener.refused] == [["site", "bus"]]
        assert "bus" not in links.connections

    run(scenario, members=frozenset({"m", "port"}))


def test_one_address_cannot_take_all_places_for_handshakes() -> None:
    async def scenario(links: Links, listener: Listener, port: int) -> None:
        silent = [
            await asyncio.open_connection("127.0.0.1", port)
            for _ in range(MAX_HANDSHAKES_PER_ADDRESS + 5)
        ]
        expected = "too many connections without a handshake from 127.0.0.1"
        while listener.events.count(expected) < 5:
            await asyncio.sleep(0.01)
        assert len(links.handshakes) == MAX_HANDSHAKES_PER_ADDRESS < MAX_HANDSHAKES
        other = ("127.0.0.2", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=other)
        writer.write(hello(site="a", role="peer"))
        while "a up" not in listener.events:
            await asyncio.sleep(0.01)
        for _, each in [*silent, (None, writer)]:
            each.close()

    run(scenario)


def test_internal_error_at_a_frame_ends_only_its_link() -> None:
    async def scenario(links: Links, listener: Listener, port: int) -> None:  # noqa: ARG001
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(hello(site="a", role="peer") + encode_json(FrameType.RECORD, {}))
        while "a down" not in listener.events:
            await asyncio.sleep(0.01)
        writer.close()

    run(scenario)

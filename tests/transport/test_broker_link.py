"""Links to a broker that is slow, silent, old or unreachable."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from firedex.transport import broker_link
from firedex.transport.broker_link import BrokerLevel, BrokerLink
from firedex.transport.mqtt.encoding import (
    PacketSplitter,
    PacketType,
    encode_packet,
    variable_header_start,
)
from firedex.transport.mqtt.packets import encode_connect

TIMEOUT_SECONDS = 60.0
ConnackScript = Callable[[int, int], bytes | None]
"""Response to the nth CONNECT at a protocol level; None closes the connection."""
SILENCE = b""
UNSUPPORTED = encode_packet(PacketType.CONNACK, 0, b"\x00\x01")


def connack(level: int) -> bytes:
    return encode_packet(PacketType.CONNACK, 0, b"\x00\x00\x00" if level == 5 else b"\x00\x00")


class Listener:
    """Records the calls of its link."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.accepted = asyncio.Event()
        self.lost = asyncio.Event()
        self.reason, self.refused = "", False

    def connect_packet(self, level: int) -> bytes:
        self.levels.append(level)
        return encode_connect("x", level=level, keep_alive_seconds=60)

    def broker_connected(self) -> None:
        self.accepted.set()

    def packet_received(self, packet: bytes) -> None:
        pass

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:
        self.reason, self.refused = reason, refused
        self.lost.set()


class ScriptedBroker:
    """A broker with scripted responses to CONNECT."""

    def __init__(self, response_to: ConnackScript, *, reads: bool = True) -> None:
        self._answer, self._reads = response_to, reads
        self.connects = 0
        self.pings = self.silences = 0
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = PacketSplitter()
        try:
            while data := await reader.read(4096):
                for each in splitter.feed(data):
                    if each[0] >> 4 == PacketType.PINGREQ:
                        self.pings += 1
                    if each[0] >> 4 != PacketType.CONNECT:
                        continue
                    self.connects += 1
                    response = self._answer(self.connects, each[variable_header_start(each) + 6])
                    if response is None:
                        return
                    self.silences += response == SILENCE
                    writer.write(response)
                    while not self._reads:
                        await asyncio.sleep(TIMEOUT_SECONDS)
        finally:
            writer.close()


def run_link(
    scripted: ScriptedBroker, use_link: Callable[[BrokerLink, Listener], Awaitable[None]]
) -> Listener:
    async def run_with_server() -> Listener:
        server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        listener = Listener()
        link = BrokerLink(
            server.sockets[0].getsockname()[:2], listener, BrokerLevel(), scripted.clock
        )
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await use_link(link, listener)
        finally:
            link.abort()
            server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return listener

    return asyncio.run(run_with_server())


async def wait_for_connack(scripted: ScriptedBroker, link: BrokerLink, listener: Listener) -> None:
    """Wait for CONNACK; the clock advances only while the broker is silent."""
    waited = 0
    while not listener.accepted.is_set():
        await asyncio.sleep(0.005)
        if scripted.silences > waited:
            waited = scripted.silences
            scripted.now += broker_link.PROBE_SECONDS + 0.1
            link.tick(scripted.now)


@pytest.mark.parametrize(
    ("response_to", "levels"),
    [
        pytest.param(lambda _, level: connack(level), [5], id="MQTT 5 supported"),
        pytest.param(
            lambda _, level: (
                connack(4) if level == 4 else encode_packet(PacketType.CONNACK, 0, b"\x00\x01")
            ),
            [5, 4],
            id="MQTT 5 rejected",
        ),
        pytest.param(
            lambda n, level: None if n == 1 else connack(level), [5, 4, 5], id="broker starting"
        ),
        pytest.param(
            lambda _, level: connack(4) if level == 4 else None,
            [5, 4, 5, 4],
            id="closed",
        ),
        pytest.param(
            lambda _, level: connack(4) if level == 4 else SILENCE, [5, 4, 5, 4], id="no response"
        ),
    ],
)
def test_link_finds_the_protocol_level_of_the_broker(
    response_to: ConnackScript, levels: list[int]
) -> None:
    scripted = ScriptedBroker(response_to)

    async def use_link(link: BrokerLink, listener: Listener) -> None:
        await wait_for_connack(scripted, link, listener)
        assert link.level == levels[-1]

    assert run_link(scripted, use_link).levels == levels


def test_link_fails_if_the_broker_closes_each_connection() -> None:
    scripted = ScriptedBroker(lambda *_: None)

    async def use_link(_: BrokerLink, listener: Listener) -> None:
        await listener.lost.wait()

    assert run_link(scripted, use_link).levels == [5, 4]


def test_rejected_connect_is_reported_as_refused() -> None:
    scripted = ScriptedBroker(lambda *_: encode_packet(PacketType.CONNACK, 0, b"\x00\x87\x00"))

    async def use_link(_: BrokerLink, listener: Listener) -> None:
        await listener.lost.wait()

    listener = run_link(scripted, use_link)
    assert (listener.refused, listener.reason) == (
        True,
        "the broker rejected CONNECT with code 0x87",
    )


def test_link_ends_if_the_broker_does_not_respond_to_pingreq() -> None:
    scripted = ScriptedBroker(lambda _, level: connack(level))

    async def use_link(link: BrokerLink, listener: Listener) -> None:
        await listener.accepted.wait()
        scripted.now += broker_link.KEEP_ALIVE_SECONDS
        link.tick(scripted.now)
        while not scripted.pings:
            await asyncio.sleep(0.01)
        assert not listener.lost.is_set()
        scripted.now += broker_link.KEEP_ALIVE_SECONDS
        link.tick(scripted.now)
        assert listener.lost.is_set()

    assert run_link(scripted, use_link).reason == "the broker does not respond to PINGREQ"


def test_link_ends_if_the_broker_does_not_read() -> None:
    scripted = ScriptedBroker(lambda _, level: connack(level), reads=False)

    async def use_link(link: BrokerLink, listener: Listener) -> None:
        await listener.accepted.wait()
        sent = 0
        while not link.congested:
            link.send(bytes(65_536))
            sent += 1
            await asyncio.sleep(0)
        while not listener.lost.is_set():
            link.send(bytes(65_536))
            sent += 1
        assert sent < 1000

    assert "does not read" in run_link(scripted, use_link).reason

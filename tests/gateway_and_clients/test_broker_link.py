"""The gateway's own connections to a broker that is slow, silent, old, or away for a while."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from firedex.gateway import broker_link, broker_packets
from firedex.gateway.broker_link import BrokerLink, KnownLevel
from firedex.gateway.mqtt_packets import PacketCutter, PacketKind, body_start, packet

PATIENCE_SECONDS = 20.0
Answer = Callable[[int, int], bytes | None]
"""Of the broker to the how-manieth CONNECT, at a level; None is to close."""
SILENCE = b""


def yes(level: int) -> bytes:
    return packet(PacketKind.CONNACK, 0, b"\x00\x00\x00" if level == 5 else b"\x00\x00")


class User:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.accepted = asyncio.Event()
        self.lost = asyncio.Event()
        self.why, self.refused = "", False

    def hello(self, level: int) -> bytes:
        self.levels.append(level)
        return broker_packets.connect(
            "x", level=level, clean=True, keep_alive_seconds=60, will=None
        )

    def broker_accepted(self) -> None:
        self.accepted.set()

    def broker_said(self, packet: bytes) -> None:
        pass

    def broker_lost(self, why: str, *, refused: bool) -> None:
        self.why, self.refused = why, refused
        self.lost.set()


class Scripted:
    """A broker that answers CONNECT as it is told and hears no more than its first bytes."""

    def __init__(self, answer: Answer, *, reads: bool = True) -> None:
        self._answer, self._reads = answer, reads
        self.connects = 0
        self.pings = self.silences = 0
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cutter = PacketCutter()
        try:
            while data := await reader.read(4096):
                for each in cutter.cut(data):
                    if each[0] >> 4 == PacketKind.PINGREQ:
                        self.pings += 1
                    if each[0] >> 4 != PacketKind.CONNECT:
                        continue
                    self.connects += 1
                    said = self._answer(self.connects, each[body_start(each) + 6])
                    if said is None:
                        return
                    self.silences += said == SILENCE
                    writer.write(said)
                    while not self._reads:
                        await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            writer.close()


def run(scripted: Scripted, act: Callable[[BrokerLink, User], Awaitable[None]]) -> User:
    async def all_of_it() -> User:
        server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        user = User()
        link = BrokerLink(server.sockets[0].getsockname()[:2], user, KnownLevel(), scripted.clock)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await act(link, user)
        finally:
            link.abort()
            server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return user

    return asyncio.run(all_of_it())


async def until_accepted(scripted: Scripted, link: BrokerLink, user: User) -> None:
    """Time passes while the broker is silent, and at no other time."""
    waited = 0
    while not user.accepted.is_set():
        await asyncio.sleep(0.005)
        if scripted.silences > waited:
            waited = scripted.silences
            scripted.now += broker_link.SILENT_SECONDS + 0.1
            link.tick(scripted.now)


@pytest.mark.parametrize(
    ("answer", "levels"),
    [
        pytest.param(lambda _, level: yes(level), [5], id="it takes MQTT 5"),
        pytest.param(
            lambda _, level: yes(4) if level == 4 else packet(PacketKind.CONNACK, 0, b"\x00\x01"),
            [5, 4],
            id="it says that it does not",
        ),
        pytest.param(
            lambda n, level: None if n == 1 else yes(level), [5, 4, 5], id="it was just starting"
        ),
        pytest.param(lambda _, level: yes(4) if level == 4 else None, [5, 4, 5, 4], id="it closes"),
        pytest.param(
            lambda _, level: yes(4) if level == 4 else SILENCE, [5, 4, 5, 4], id="it says nothing"
        ),
    ],
)
def test_the_level_is_found(answer: Answer, levels: list[int]) -> None:
    scripted = Scripted(answer)

    async def act(link: BrokerLink, user: User) -> None:
        await until_accepted(scripted, link, user)
        assert link.level == levels[-1]

    assert run(scripted, act).levels == levels


def test_a_broker_that_takes_nobody_is_not_asked_for_ever() -> None:
    scripted = Scripted(lambda *_: None)

    async def act(_: BrokerLink, user: User) -> None:
        await user.lost.wait()

    assert run(scripted, act).levels == [5, 4]


def test_a_refusal_is_one() -> None:
    scripted = Scripted(lambda *_: packet(PacketKind.CONNACK, 0, b"\x00\x87\x00"))

    async def act(_: BrokerLink, user: User) -> None:
        await user.lost.wait()

    user = run(scripted, act)
    assert (user.refused, user.why) == (True, "the broker says 0x87")


def test_a_broker_that_answers_no_ping_is_lost() -> None:
    scripted = Scripted(lambda _, level: yes(level))

    async def act(link: BrokerLink, user: User) -> None:
        await user.accepted.wait()
        scripted.now += broker_link.KEEP_ALIVE_SECONDS
        link.tick(scripted.now)
        while not scripted.pings:
            await asyncio.sleep(0.01)
        assert not user.lost.is_set()
        scripted.now += broker_link.KEEP_ALIVE_SECONDS
        link.tick(scripted.now)
        assert user.lost.is_set()

    assert run(scripted, act).why == "the broker does not answer any more"


def test_a_broker_that_reads_nothing_is_waited_for_and_given_up() -> None:
    scripted = Scripted(lambda _, level: yes(level), reads=False)

    async def act(link: BrokerLink, user: User) -> None:
        await user.accepted.wait()
        sent = 0
        while not link.congested:
            link.send(bytes(65_536))
            sent += 1
            await asyncio.sleep(0)
        while not user.lost.is_set():
            link.send(bytes(65_536))
            sent += 1
        assert sent < 1000

    assert "takes nothing" in run(scripted, act).why

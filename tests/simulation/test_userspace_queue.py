"""The embedded run's link beside an obvious port: the same packets, at the same times."""

import numpy as np
import pytest
from obvious_link import Packet, departures

from firedex.wire import Buffer
from firedex_emulation.embedded.priority_link import LinkPacket, PriorityLink

CLASSES = 4
BITS_PER_SECOND = 8000.0
ENDLESS = Buffer(kind="per-class-head-drop", packets=10**6)


def drawn(random: np.random.Generator, count: int) -> list[Packet]:
    """Twice what the link carries, in clumps, no two at the same instant."""
    pauses = np.where(random.random(count) < 0.7, 0.001, 0.2) * random.exponential(1.0, count)
    sizes = random.integers(20, 240, count)
    classes = np.minimum(random.geometric(0.4, count) - 1, CLASSES - 1)
    return [
        Packet(float(at), int(priority), float(size) * 8 / BITS_PER_SECOND)
        for at, priority, size in zip(np.cumsum(pauses), classes, sizes, strict=True)
    ]


@pytest.mark.parametrize("kind", ["shared-push-out", "per-class-head-drop"])
@pytest.mark.parametrize("room", [1, 3, 20, 1000])
@pytest.mark.parametrize("late", [False, True])
def test_it_sends_what_the_obvious_port_sends(kind: str, room: int, late: bool) -> None:
    random = np.random.default_rng([room, late])
    packets = drawn(random, 1500)
    buffer = Buffer(kind=kind, packets=room)  # type: ignore[arg-type]
    link = PriorityLink(bits_per_second=BITS_PER_SECOND, classes=CLASSES, buffer=buffer)
    left: list[float | None] = [None] * len(packets)
    lost = 0
    for number, packet in enumerate(packets):
        made = LinkPacket(packet.priority, round(packet.service * BITS_PER_SECOND / 8), number)
        lost += link.offer(packet.arrival, made) is not None
        if not late or random.random() < 0.01:  # asked at once, or only now and then
            for done_at, sent in link.sent_by(packet.arrival):
                left[int(str(sent.content))] = done_at
    for done_at, sent in link.sent_by(1e9):
        left[int(str(sent.content))] = done_at
    expected = departures(packets, kind=kind, room=room)
    assert [each is None for each in left] == [each is None for each in expected]
    assert [each for each in left if each is not None] == pytest.approx(
        [each for each in expected if each is not None], abs=1e-9
    )
    assert lost == left.count(None)
    assert link.next_done_at is None
    if room <= 20:
        assert lost > 100


def test_what_must_not_be_lost_is_not() -> None:
    link = PriorityLink(
        bits_per_second=8000, classes=2, buffer=Buffer(kind="per-class-head-drop", packets=2)
    )
    for number in range(10):
        assert link.offer(0.0, LinkPacket(1, 100, number, droppable=False)) is None
    refused = LinkPacket(1, 100, "one more")
    assert link.offer(0.0, refused) is refused
    assert [sent.content for _, sent in link.sent_by(100)] == list(range(10))


def test_a_new_bandwidth_holds_from_the_next_packet_on() -> None:
    link = PriorityLink(bits_per_second=8000, classes=1, buffer=ENDLESS)
    for number in range(3):
        link.offer(0.0, LinkPacket(0, 100, number))
    link.set_bandwidth(0.05, 80_000)
    assert [at for at, _ in link.sent_by(10)] == pytest.approx([0.1, 0.11, 0.12])


def test_classes_beyond_the_last_are_the_last() -> None:
    link = PriorityLink(bits_per_second=8000, classes=2, buffer=ENDLESS)
    for priority in (0, 63, 1, 0):
        link.offer(0.0, LinkPacket(priority, 100, priority))
    assert [sent.content for _, sent in link.sent_by(10)] == [0, 0, 63, 1]

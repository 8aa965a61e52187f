"""Test ``PriorityLink`` against a simple reference: the same packets leave at the same times."""

import numpy as np
import pytest

from firedex.wire import Buffer
from firedex_emulation.embedded.priority_link import LinkPacket, PriorityLink
from tests.models.simulation.reference_link import Packet, departures

CLASSES = 4
BITS_PER_SECOND = 8000.0
UNLIMITED = Buffer(kind="per-class-head-drop", packets=10**6)


def random_packets(random: np.random.Generator, count: int) -> list[Packet]:
    """Return bursts of packets with twice the bandwidth of the link, at different times."""
    pauses = np.where(random.random(count) < 0.7, 0.001, 0.2) * random.exponential(1.0, count)
    sizes = random.integers(20, 240, count)
    classes = np.minimum(random.geometric(0.4, count) - 1, CLASSES - 1)
    return [
        Packet(float(at), int(priority), float(size) * 8 / BITS_PER_SECOND)
        for at, priority, size in zip(np.cumsum(pauses), classes, sizes, strict=True)
    ]


@pytest.mark.parametrize("kind", ["shared-push-out", "per-class-head-drop"])
@pytest.mark.parametrize("buffer_packets", [1, 3, 20, 1000])
@pytest.mark.parametrize("ask_rarely", [False, True])
def test_departures_equal_those_of_a_reference_implementation(
    kind: str, buffer_packets: int, ask_rarely: bool
) -> None:
    random = np.random.default_rng([buffer_packets, ask_rarely])
    packets = random_packets(random, 1500)
    buffer = Buffer(kind=kind, packets=buffer_packets)  # type: ignore[arg-type]
    link = PriorityLink(bits_per_second=BITS_PER_SECOND, classes=CLASSES, buffer=buffer)
    departure_times: list[float | None] = [None] * len(packets)
    lost = 0
    for number, packet in enumerate(packets):
        link_packet = LinkPacket(
            packet.priority, round(packet.service * BITS_PER_SECOND / 8), number
        )
        lost += link.offer(packet.arrival, link_packet) is not None
        if not ask_rarely or random.random() < 0.01:  # ask after every packet, or only rarely
            for done_at, sent in link.take_sent(packet.arrival):
                departure_times[int(str(sent.content))] = done_at
    for done_at, sent in link.take_sent(1e9):
        departure_times[int(str(sent.content))] = done_at
    expected = departures(packets, kind=kind, room=buffer_packets)
    assert [each is None for each in departure_times] == [each is None for each in expected]
    assert [each for each in departure_times if each is not None] == pytest.approx(
        [each for each in expected if each is not None], abs=1e-9
    )
    assert lost == departure_times.count(None)
    assert link.next_done_at is None
    if buffer_packets <= 20:
        assert lost > 100


def test_undroppable_packets_are_queued_beyond_the_buffer_size() -> None:
    link = PriorityLink(
        bits_per_second=8000, classes=2, buffer=Buffer(kind="per-class-head-drop", packets=2)
    )
    for number in range(10):
        assert link.offer(0.0, LinkPacket(1, 100, number, droppable=False)) is None
    refused = LinkPacket(1, 100, "one more")
    assert link.offer(0.0, refused) is refused
    assert [sent.content for _, sent in link.take_sent(100)] == list(range(10))


def test_new_bandwidth_applies_to_the_next_packet() -> None:
    link = PriorityLink(bits_per_second=8000, classes=1, buffer=UNLIMITED)
    for number in range(3):
        link.offer(0.0, LinkPacket(0, 100, number))
    link.set_bandwidth(0.05, 80_000)
    assert [at for at, _ in link.take_sent(10)] == pytest.approx([0.1, 0.11, 0.12])


def test_class_number_above_the_last_class_uses_the_last_class() -> None:
    link = PriorityLink(bits_per_second=8000, classes=2, buffer=UNLIMITED)
    for priority in (0, 63, 1, 0):
        link.offer(0.0, LinkPacket(priority, 100, priority))
    assert [sent.content for _, sent in link.take_sent(10)] == [0, 0, 63, 1]

"""The small parts of the federator: echoes, broker log, clock, streams, topology, journal."""

import asyncio
from pathlib import Path

import pytest

from firedex.federation.echoes import EchoFilter
from firedex.federation.event_sender import consecutive_ranges
from firedex.federation.hybrid_clock import MAX_DRIFT_SECONDS, HybridClock
from firedex.federation.interest_sources import BrokerLog, without_share
from firedex.federation.journal import (
    MAX_ROWS,
    JournalError,
    MemoryJournal,
    Operation,
    SqliteJournal,
    merge_operations,
)
from firedex.federation.reliable_streams import IncomingStream, OutgoingStream, PendingEvent
from firedex.federation.topology import SiteRecord, Topology

# -- echoes ----------------------------------------------------------------------------------------


def test_echo_is_recognised_once_for_each_publication() -> None:
    echoes = EchoFilter("client")
    echoes.published(b"t", b"x")
    echoes.published(b"t", b"x")
    assert [echoes.is_echo(b"t", b"x") for _ in range(3)] == [True, True, False]
    assert not echoes.is_echo(b"t", b"y")


def test_sentinel_clears_counts_of_lost_echoes() -> None:
    echoes = EchoFilter("client")
    echoes.published(b"t", b"lost")
    sentinel = echoes.sentinel_due(now=0.0)
    assert sentinel is not None
    echoes.published(b"t", b"new")
    assert echoes.is_echo(sentinel.topic, sentinel.payload)
    assert not echoes.is_echo(b"t", b"lost"), "a real event must not be swallowed"
    assert echoes.is_echo(b"t", b"new")


# -- Mosquitto's log -------------------------------------------------------------------------------


def test_log_lines_of_mosquitto_are_read() -> None:
    log = BrokerLog("firedex-federator-port")
    assert log.read("M/subscribe", "1700000000: sensor-1 1 smoke/#")
    assert log.read("M/subscribe", "1700000000: sensor-2 0 $share/group/smoke/+")
    assert not log.read("M/subscribe", "1700000000: firedex-federator-port 2 own/#")
    assert not log.read("M/subscribe", "1700000000: sensor-1 1 $SYS/#")
    assert log.filters() == {"smoke/#": 1, "smoke/+": 0}
    assert log.read("M/unsubscribe", "1700000001: sensor-2 $share/group/smoke/+")
    assert log.read("N", "1700000002: Client sensor-1 closed its connection.")
    assert log.filters() == {}


def test_filters_of_a_persistent_session_survive_its_connection() -> None:
    log = BrokerLog("own")
    log.read("N", "1: New client connected from 127.0.0.1:4711 as crew (p5, c0, k60).")
    log.read("M/subscribe", "2: crew 1 alarm/#")
    assert not log.read("N", "3: Client crew disconnected.")
    assert log.filters() == {"alarm/#": 1}
    assert log.read("N", "4: New client connected from 127.0.0.1:4712 as crew (p5, c1, k60).")
    assert log.filters() == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a/b", "a/b"), ("$share/g/a/b", "a/b"), ("$share/g", None), ("$SYS/x", None), ("a#", None)],
)
def test_share_prefix_is_removed(name: str, expected: str | None) -> None:
    assert without_share(name) == expected


# -- clock -----------------------------------------------------------------------------------------


def test_stamps_grow_although_the_clock_goes_back() -> None:
    times = iter([100.0, 99.0, 99.0, 101.0])
    clock = HybridClock(lambda: next(times))
    stamps = [clock.now() for _ in range(4)]
    assert stamps == sorted(set(stamps))


def test_clock_follows_other_sites_within_the_drift() -> None:
    clock = HybridClock(lambda: 1000.0)
    ahead = int((1000.0 + 600.0) * 1000) << 16
    clock.observe(ahead)
    assert clock.now() == ahead + 1
    absurd = int((1000.0 + 2 * MAX_DRIFT_SECONDS) * 1000) << 16
    clock.observe(absurd)
    assert clock.now() == ahead + 2


# -- streams ---------------------------------------------------------------------------------------


def test_stream_sends_in_order_and_names_the_event_before() -> None:
    stream = OutgoingStream()
    for number in (1, 2, 3):
        stream.add(PendingEvent((1, number), b"x", 0.0))
    chosen = [stream.next_to_send(0.0) for _ in range(3)]
    assert [(c[0].id, c[1]) for c in chosen if c] == [
        ((1, 1), (0, 0)),
        ((1, 2), (1, 1)),
        ((1, 3), (1, 2)),
    ]
    assert [event.id for event in stream.acknowledge((1, 2), 0.0)] == [(1, 1), (1, 2)]
    stream.rewind()
    again = stream.next_to_send(0.0)
    assert again is not None
    assert (again[0].id, again[1]) == ((1, 3), (1, 2))


def test_unacknowledged_events_are_sent_again_with_back_off() -> None:
    stream = OutgoingStream()
    stream.add(PendingEvent((1, 1), b"x", 0.0))
    stream.next_to_send(0.0)
    assert not stream.retry_is_due(0.9)
    assert stream.retry_is_due(1.1)
    stream.next_to_send(1.1)
    assert not stream.retry_is_due(3.0)
    assert stream.retry_is_due(3.2)


def test_incoming_stream_accepts_each_event_once_and_after_its_predecessor() -> None:
    stream = IncomingStream()
    assert stream.receive((1, 1), (0, 0)).accept
    stream.begin((1, 1))
    assert not stream.receive((1, 1), (0, 0)).accept
    gap = stream.receive((1, 3), (1, 2))
    assert (gap.accept, gap.resend) == (False, True)
    stream.begin((1, 2))
    assert not stream.finish((1, 2)), "the event before it is not delivered yet"
    assert stream.finish((1, 1))
    assert stream.delivered == (1, 2)


def test_event_begun_by_an_earlier_run_does_not_hide_the_events_before_it() -> None:
    """A QoS 2 publication is restored; the QoS 1 event before it must still be delivered."""
    stream = IncomingStream(delivered=(1, 1))
    stream.restore((1, 3), finished=False)
    assert not stream.finish((1, 3))
    assert stream.receive((1, 2), (0, 0)).accept
    stream.begin((1, 2))
    assert stream.resume((1, 3)), "it is finished, so it is not published a second time"
    assert stream.finish((1, 2))
    assert stream.finish((1, 3))
    assert stream.delivered == (1, 3)


# -- topology --------------------------------------------------------------------------------------


def record(site: str, version: int = 1, **links: float) -> SiteRecord:
    return SiteRecord(site=site, epoch=1, version=version, links=links)


def test_path_with_the_lowest_cost_is_chosen() -> None:
    topology = Topology("a")
    topology.add(record("a", b=1.0, c=5.0))
    topology.add(record("b", a=1.0, c=1.0))
    topology.add(record("c", a=5.0, b=1.0))
    assert topology.next_hop("c") == "b"
    assert topology.cost("c") == 2.0


def test_link_counts_only_if_both_ends_report_it() -> None:
    topology = Topology("a")
    topology.add(record("a", b=1.0))
    topology.add(record("b"))
    assert topology.next_hop("b") is None
    assert topology.add(record("b", version=2, a=1.0))
    assert topology.next_hop("b") == "b"
    assert not topology.add(record("b", version=1)), "an older record is ignored"


# -- journal ---------------------------------------------------------------------------------------


def test_journal_keeps_what_was_committed(tmp_path: Path) -> None:
    async def write() -> None:
        loop = asyncio.get_running_loop()
        journal = SqliteJournal(tmp_path / "journal.sqlite", loop.call_soon_threadsafe)
        done = asyncio.Event()
        journal.submit(
            [
                ("INSERT INTO events VALUES (1, 7, 5.0, x'00')", ()),
                ("INSERT INTO destinations VALUES ('fire', 1, 7, 2)", ()),
                ("INSERT INTO delivered VALUES ('bus', 3, 4)", ()),
            ],
            done.set,
        )
        await asyncio.wait_for(done.wait(), 30)
        journal.close()
        again = SqliteJournal(tmp_path / "journal.sqlite", loop.call_soon_threadsafe)
        state = again.load()
        assert [(event.id, dict(event.destinations)) for event in state.events] == [
            ((1, 7), {"fire": 2})
        ]
        assert state.delivered == {"bus": (3, 4)}
        again.close()

    asyncio.run(write())


def test_second_federator_with_the_same_journal_is_refused(tmp_path: Path) -> None:
    first = SqliteJournal(tmp_path / "journal.sqlite", lambda call: call())
    try:
        with pytest.raises(JournalError, match="locked"):
            SqliteJournal(tmp_path / "journal.sqlite", lambda call: call())
    finally:
        first.close()


def test_merged_operations_have_the_same_effect() -> None:
    operations: list[Operation] = []
    for number in range(3 * MAX_ROWS):
        event = (7, number, 0.0, b"content")
        operations += [
            ("INSERT INTO events VALUES (?, ?, ?, ?)", event),
            ("INSERT INTO destinations VALUES (?, ?, ?, ?)", ("a", 7, number, number % 3)),
            ("INSERT OR REPLACE INTO delivered VALUES (?, ?, ?)", ("b", 7, number)),
            ("INSERT OR REPLACE INTO outgoing VALUES (?, ?, ?, ?, 0, ?)",
             (number % 50, "b", 7, number, b"packet")),
        ]  # fmt: skip
        if number % 40 == 39:
            operations += [
                ("DELETE FROM events WHERE epoch = ? AND number = ?", (7, number - 3)),
                ("UPDATE outgoing SET released = 1 WHERE packet_id = ?", (number % 50,)),
                ("INSERT INTO events VALUES (?, ?, ?, ?)", (7, number - 3, 1.0, b"again")),
            ]
    merged = list(merge_operations(operations))
    one_by_one, together = MemoryJournal(), MemoryJournal()
    one_by_one.submit(operations)
    together.submit(merged)
    assert one_by_one.load() == together.load()
    assert len(merged) < len(operations) / 5


def test_consecutive_numbers_form_one_range() -> None:
    assert consecutive_ranges([(1, 4), (1, 5), (1, 7), (2, 8), (2, 9)]) == [
        (1, 4, 5),
        (1, 7, 7),
        (2, 8, 9),
    ]
    assert consecutive_ranges([]) == []

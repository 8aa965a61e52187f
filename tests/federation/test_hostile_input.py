"""Content that a hostile or broken site sends: others are not harmed."""

import asyncio
import json
from pathlib import Path

import pytest

from firedex.federation.events import Event, check_publishable, encode_event
from firedex.federation.frames import (
    Destination,
    FrameSplitter,
    FrameType,
    MalformedFrame,
    RoutedFrame,
    encode_frame,
    encode_json,
    encode_message,
    encode_routed,
)
from firedex.federation.journal import SqliteJournal
from firedex.federation.node import NodeLimits
from tests.support.memory_federation import MemoryFederation

LINE = [("a", "b"), ("b", "c")]


def deliver(network: MemoryFederation, site: str, frame: bytes, neighbour: str = "b") -> None:
    """Let a site receive a frame from a neighbour, and the others what follows from it."""
    for kind, body in FrameSplitter(1 << 30).feed(frame):
        network.node(site).frame_received(neighbour, kind, body)
    network.settle()


def message(source: str, destination: str, content: object) -> bytes:
    return encode_routed(encode_message(source, [destination], content))


def event_frame(event: Event, destination: str, *, reliable: bool = True) -> bytes:
    rest = encode_event(event)
    return encode_routed(
        RoutedFrame(FrameType.EVENT, (Destination(destination),), 5, 0, reliable, rest)
    )


@pytest.mark.parametrize(
    "rest",
    [b"", b"\x01a", b"\x01a{", b"\x01c" + json.dumps({"kind": "ack", "last": 1}).encode(),
     b'\x01c{"kind":"ack","last":[1e999,1]}', b'\x01c{"kind":"interest"}', b"\x02\xff\xff{}"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [FrameType.MESSAGE, FrameType.EVENT])
def test_relay_is_not_disconnected_for_the_content_of_another_site(
    kind: FrameType, rest: bytes
) -> None:
    network = MemoryFederation(LINE)
    frame = encode_routed(RoutedFrame(kind, (Destination("a"),), 5, 0, False, rest))
    deliver(network, "a", frame)
    assert network.node("a").counters.malformed == 1


def test_numbers_that_the_journal_cannot_store_are_refused() -> None:
    for number in (2**63, 2**64 - 1):
        for identity, stamp in (((number, 1), 1), ((1, number), 1), ((1, 1), number)):
            event = Event(origin="a", id=identity, stamp=stamp, topic=b"t", payload=b"")
            with pytest.raises(MalformedFrame):
                check_publishable(event)


@pytest.mark.parametrize(
    "sql", ["INSERT INTO events VALUES (1, 1, 1.0, x'00')", "INSERT INTO meta VALUES ('n', ?)"]
)
def test_journal_continues_after_an_operation_that_it_cannot_execute(
    tmp_path: Path, sql: str
) -> None:
    async def write() -> list[str]:
        loop = asyncio.get_running_loop()
        journal = SqliteJournal(tmp_path / "journal.sqlite", loop.call_soon_threadsafe)
        called: list[str] = []
        done = asyncio.Event()
        values = (2**64,) if "?" in sql else ()
        journal.submit([(sql, values)], lambda: called.append("first"))
        journal.submit([(sql, values)], lambda: called.append("second"))
        journal.submit([], lambda: 1 / 0)  # type: ignore[arg-type]
        journal.submit([], done.set)
        await asyncio.wait_for(done.wait(), 30)
        journal.close()
        return called

    assert asyncio.run(write()) == (["first"] if "?" not in sql else [])


def test_forged_record_of_a_site_does_not_stop_it() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    for epoch in (2**53, 2**53 - 1, network.node("a").epoch + 1000):
        forged = {"site": "a", "epoch": epoch, "version": 9, "links": {}}
        deliver(network, "c", encode_json(FrameType.RECORD, forged))
        deliver(network, "a", encode_json(FrameType.RECORD, forged))
        network.pass_time(3)
    network.broker("a").client_publishes("alarm/1", "x", qos=1)
    network.pass_time(3)
    assert network.delivered("c") == [b"x"]
    network.kill("a")
    network.restart("a")
    network.pass_time(3)
    assert network.node("a").reachable().keys() == {"b", "c"}


def test_two_federators_with_one_name_do_not_raise_their_epochs_without_end() -> None:
    network = MemoryFederation([("a", "b")])
    start = network.node("a").epoch
    for _ in range(100):
        forged = {"site": "a", "epoch": network.node("a").epoch + 1, "version": 1, "links": {}}
        deliver(network, "a", encode_json(FrameType.RECORD, forged))
    assert network.node("a").epoch <= start + 2


@pytest.mark.parametrize("lead", [1, 10**9])
@pytest.mark.parametrize("reliable", [True, False])
def test_forged_event_of_a_later_epoch_does_not_hide_real_ones(lead: int, reliable: bool) -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    forged = Event(
        origin="a", id=(network.node("a").epoch + lead, 1), stamp=1, topic=b"alarm/1",
        payload=b"forged", qos=int(reliable),
    )  # fmt: skip
    deliver(network, "c", event_frame(forged, "c", reliable=reliable))
    network.broker("a").client_publishes("alarm/1", "real", qos=int(reliable))
    network.pass_time(3)
    assert network.delivered("c") == [b"real"]


def test_event_with_the_name_of_the_receiving_site_is_dropped() -> None:
    network = MemoryFederation(LINE)
    forged = Event(origin="c", id=(1, 1), stamp=1, topic=b"t", payload=b"forged", qos=1)
    deliver(network, "c", event_frame(forged, "c"))
    assert network.delivered("c") == []


def test_interest_of_unknown_sites_is_ignored() -> None:
    network = MemoryFederation(LINE)
    for source in ("nobody", "a"):
        content = {"kind": "interest-all", "epoch": 1, "version": 1, "filters": {"x/#": 1}}
        deliver(network, "a", message(source, "a", content))
    assert not any(network.node("a").interest.remote.filters.values())


def test_withdrawing_unknown_filters_does_not_extend_the_limit() -> None:
    network = MemoryFederation(LINE, limits=NodeLimits(filters_per_site=10))
    network.want("c", "alarm/#")
    network.settle()
    epoch = network.node("c").epoch
    for version in range(2, 7):
        content = {
            "kind": "interest", "epoch": epoch, "version": version,
            "announce": {f"flood/{version}/{number}": 0 for number in range(9)},
            "withdraw": [f"\ud800{number}" for number in range(50)],
        }  # fmt: skip
        deliver(network, "a", message("c", "a", content))
    assert len(network.node("a").interest.remote.filters["c"]) <= 10


@pytest.mark.parametrize(("epoch_lead", "version"), [(10**9, 1), (0, 10**6)])
def test_forged_interest_is_replaced_by_the_real_one(epoch_lead: int, version: int) -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    content = {
        "kind": "interest-all", "epoch": network.node("c").epoch + epoch_lead,
        "version": version, "filters": {},
    }  # fmt: skip
    deliver(network, "a", message("c", "a", content))
    network.pass_time(3)
    assert network.node("a").interest.remote.filters["c"] == {"alarm/#": 2}


def test_long_frame_in_small_parts_is_not_copied_with_each_part() -> None:
    frame = encode_frame(FrameType.EVENT, bytes(2_000_000))
    splitter = FrameSplitter(4_000_000)
    parts = [frame[at : at + 50] for at in range(0, len(frame), 50)]
    found = [len(body) for part in parts for _, body in splitter.feed(part)]
    assert found == [2_000_000]


@pytest.mark.parametrize(
    "topic", [b"a/#", b"+", b"a\0b", b"\xff", b"$SYS/x", b"firedex/federation/x"]
)
@pytest.mark.parametrize("reliable", [True, False])
def test_event_on_an_invalid_topic_is_not_published(topic: bytes, reliable: bool) -> None:
    network = MemoryFederation(LINE)
    epoch = network.node("a").epoch
    forged = Event(origin="a", id=(epoch, 1), stamp=1, topic=topic, payload=b"x", qos=1)
    deliver(network, "c", event_frame(forged, "c", reliable=reliable))
    assert network.delivered("c") == []
    assert network.node("c").counters.malformed == 1


@pytest.mark.parametrize(
    "properties",
    [b"\x26\x00\x01a\x00\x01b\x26\x00\x01a\x00\x01c", b"\x01\x01\x03\x00\x04text\x09\x00\x01\xff"],
)
def test_valid_properties_are_accepted(properties: bytes) -> None:
    event = Event(origin="a", id=(1, 1), stamp=1, topic=b"t", payload=b"", properties=properties)
    check_publishable(event)


@pytest.mark.parametrize(
    "properties",
    [b"\xff", b"\x26", b"\x26\x00\x01a\x00\x09b", b"\x26\x00\x01\xff\x00\x01b", b"\x01\x02",
     b"\x01", b"\x03\x00\x01a\x03\x00\x01b", b"\x08\x00\x01#", b"\x11\x00\x00\x00\x01",
     b"\x02\x00\x00\x00\x01"],
)  # fmt: skip
def test_event_that_would_end_the_broker_session_is_refused(properties: bytes) -> None:
    event = Event(origin="a", id=(1, 1), stamp=1, topic=b"t", payload=b"", properties=properties)
    with pytest.raises(MalformedFrame):
        check_publishable(event)


def test_stamp_in_the_future_does_not_keep_a_retained_value_for_ever() -> None:
    network = MemoryFederation(LINE)
    for site in "abc":
        network.want(site, "door/#")
    network.settle()
    forged = Event(
        origin="a", id=(network.node("a").epoch, 500), stamp=2**62, topic=b"door/1",
        payload=b"stuck", qos=1, retain=True,
    )  # fmt: skip
    deliver(network, "c", event_frame(forged, "c"))
    assert network.broker("c").retained == {b"door/1": b"stuck"}
    network.now += 2 * 3600.0
    network.broker("b").client_publishes("door/1", "closed", retain=True, qos=1)
    network.pass_time(3)
    assert network.broker("c").retained == {b"door/1": b"closed"}

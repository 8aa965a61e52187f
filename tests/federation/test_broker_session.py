"""Subscriptions and acknowledgements of the broker session, with a link in memory."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from firedex.federation import broker_session
from firedex.federation.broker_interface import DropCause
from firedex.federation.broker_publications import MAX_ATTEMPTS
from firedex.federation.broker_session import BrokerSession, BrokerSettings
from firedex.federation.events import Event, Publication
from firedex.federation.frames import EventId
from firedex.federation.interest import InterestChange
from firedex.federation.journal import Operation
from firedex.transport.mqtt.encoding import (
    MAX_PACKET_BYTES,
    PacketType,
    encode_packet,
    encode_text,
    encode_variable_integer,
)
from firedex.transport.mqtt.packets import encode_acknowledgement
from tests.support.session_packets import suback, unsuback
from tests.support.waiting_journal import WaitingJournal

SETTINGS = BrokerSettings(address=("127.0.0.1", 1), client_id="federator")


class MemoryLink:
    """A link that keeps what is sent."""

    def __init__(
        self,
        *,
        session_present: bool = False,
        level: int = 5,
        maximum_packet_bytes: int = MAX_PACKET_BYTES,
    ) -> None:
        self.level, self.session_present = level, session_present
        self.receive_maximum, self.congested = 20, False
        self.maximum_packet_bytes = maximum_packet_bytes
        self.sent: list[bytes] = []

    def send(self, packet: bytes) -> None:
        self.sent.append(packet)

    def tick(self, now: float) -> None:
        pass

    def requests(self) -> list[tuple[str, int, int]]:
        """Return the filter, packet identifier and subscription identifier of each SUBSCRIBE."""
        found = []
        for packet in self.sent:
            if packet[0] >> 4 == PacketType.SUBSCRIBE:
                at = 5 if self.level == 5 else 4
                identifier = shift = 0
                if self.level == 5:
                    at += 1
                    while True:
                        identifier |= (packet[at] & 0x7F) << shift
                        shift += 7
                        at += 1
                        if packet[at - 1] < 0x80:
                            break
                length = int.from_bytes(packet[at : at + 2], "big")
                name = packet[at + 2 : at + 2 + length].decode()
                found.append((name, int.from_bytes(packet[2:4], "big"), identifier))
        return found

    def acknowledgements(self) -> list[tuple[int, int]]:
        kinds = (PacketType.PUBACK, PacketType.PUBREC)
        return [
            (packet[0] >> 4, int.from_bytes(packet[2:4], "big"))
            for packet in self.sent
            if packet[0] >> 4 in kinds
        ]


class MemoryReader:
    """Reads no retained messages, but records what would be read."""

    def __init__(self, *_: Any) -> None:
        self.read_filters: list[tuple[str, bool]] = []

    def tick(self) -> None:
        pass

    def read(self, name: str, *, written_meanwhile: bool) -> None:
        self.read_filters.append((name, written_meanwhile))


class Session:
    """A broker session whose events are committed to a journal."""

    def __init__(self, journal: WaitingJournal | None = None) -> None:
        self.journal = journal or WaitingJournal()
        self.received: list[Publication] = []
        self.dropped: list[tuple[Event, DropCause]] = []
        self.ended: list[tuple[bytes, bool]] = []
        self.now = 0.0
        self.session = BrokerSession(
            SETTINGS, self.journal, self.journal.load(), clock=lambda: self.now
        )
        self.session._listener = self

    def connect(self, wanted: dict[str, int], **options: Any) -> MemoryLink:
        link = MemoryLink(**options)
        self.session._wanted = dict(wanted)
        self.session._link = cast("Any", link)
        self.session.broker_connected()
        return link

    def grant(self, link: MemoryLink, *, refused: Sequence[str] = ()) -> dict[str, int]:
        """Answer all requests; return the identifier of each filter."""
        identifiers = {}
        requests = link.requests()
        link.sent.clear()
        for name, number, identifier in requests:
            code = 0x87 if name in refused else 2
            self.session.packet_received(suback(number, [code], level=link.level))
            identifiers[name] = identifier
        return identifiers

    def receive(
        self, topic: str, identifiers: Sequence[int] = (), *, qos: int = 1, number: int = 1,
        retain: bool = False, level: int = 5,
    ) -> None:  # fmt: skip
        body = encode_text(topic.encode())
        body += number.to_bytes(2, "big") if qos else b""
        if level == 5:
            properties = b"".join(b"\x0b" + encode_variable_integer(one) for one in identifiers)
            body += encode_variable_integer(len(properties)) + properties
        flags = qos << 1 | retain
        self.session.packet_received(encode_packet(PacketType.PUBLISH, flags, body + b"x"))

    def publish(self, payload: bytes, qos: int) -> None:
        """Publish an event and record how it ends."""
        event = Event(
            origin="port", id=(1, len(payload)), stamp=1, topic=b"t", payload=payload, qos=qos
        )
        assert self.session.publish(event, lambda accepted: self.ended.append((payload, accepted)))

    # -- SessionListener -----------------------------------------------------------------------

    def publication_received(
        self,
        publication: Publication,
        committed: Callable[[], None] | None,
        operations: Sequence[Operation] = (),
    ) -> None:
        self.received.append(publication)
        self.journal.submit(operations, committed)

    def publication_dropped(self, event: Event, cause: DropCause, detail: str) -> None:
        assert detail
        self.dropped.append((event, cause))

    def retained_found(self, publication: Publication, *, written_meanwhile: bool) -> None:
        pass

    def publication_completed(self, origin: str, identity: EventId) -> None:
        pass

    def broker_connected(self) -> None:
        pass

    def broker_ready(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_session, "RetainedReader", MemoryReader)


def test_events_queued_for_an_earlier_run_are_not_taken_for_extra_copies() -> None:
    """The broker keeps the subscription identifiers of the session over a restart."""
    first = Session()
    link = first.connect({"b/#": 1})
    identifiers = first.grant(link)
    first.session.set_subscriptions(
        {"b/#": 1, "a/#": 1}, InterestChange(announce={"a/#": 1}, withdraw=())
    )
    identifiers |= first.grant(link)
    second = Session(first.journal)
    second.connect({"a/#": 1, "b/#": 1}, session_present=True)
    second.receive("a/1", [identifiers["a/#"]])
    second.receive("b/1", [identifiers["b/#"]])
    assert [publication.topic for publication in second.received] == [b"a/1", b"b/1"]


def test_refused_filter_does_not_hide_events_of_another_filter() -> None:
    for refused, granted in (("#", "smoke/#"), ("smoke/#", "#")):
        session = Session()
        identifiers = session.grant(session.connect({"#": 1, "smoke/#": 1}), refused=[refused])
        session.now += 60.0
        session.receive("smoke/1", [identifiers[granted]])
        assert len(session.received) == 1


def test_copy_with_the_highest_qos_is_passed_on() -> None:
    for names in (("#", "alarm/#"), ("alarm/+", "+/1")):
        session = Session()
        low, high = names
        identifiers = session.grant(session.connect({low: 0, high: 2}))
        session.now += 60.0
        session.receive("alarm/1", [identifiers[low]], qos=0)
        session.receive("alarm/1", [identifiers[high]], qos=2)
        assert [publication.qos for publication in session.received] == [2]


def test_chosen_copy_changes_with_the_subscriptions() -> None:
    session = Session()
    link = session.connect({"#": 0})
    identifiers = session.grant(link)
    session.now += 60.0
    session.receive("alarm/1", [identifiers["#"]], qos=0)
    session.session.set_subscriptions(
        {"#": 0, "alarm/#": 1}, InterestChange(announce={"alarm/#": 1}, withdraw=())
    )
    identifiers |= session.grant(link)
    session.receive("alarm/1", [identifiers["#"]], qos=0)
    session.receive("alarm/1", [identifiers["alarm/#"]], qos=1)
    assert [publication.qos for publication in session.received] == [0, 1]


def test_event_of_a_withdrawn_filter_is_passed_on_if_another_filter_wants_it() -> None:
    """The broker queued the event before it knew the narrow filter."""
    session = Session()
    link = session.connect({"smoke/#": 1})
    identifiers = session.grant(link)
    session.session.set_subscriptions(
        {"smoke/1": 1}, InterestChange(announce={"smoke/1": 1}, withdraw=("smoke/#",))
    )
    session.receive("smoke/1", [identifiers["smoke/#"]], number=1)
    number = next(
        int.from_bytes(packet[2:4], "big")
        for packet in link.sent
        if packet[0] >> 4 == PacketType.UNSUBSCRIBE
    )
    session.grant(link)
    session.session.packet_received(unsuback(number, [0]))
    session.receive("smoke/1", [identifiers["smoke/#"]], number=2)
    assert len(session.received) == 2


def test_request_that_was_lost_with_the_connection_is_sent_again() -> None:
    session = Session()
    session.connect({"smoke/#": 1})  # the connection ends before the broker has read it
    link = session.connect({"smoke/#": 1}, session_present=True)
    assert [name for name, _, _ in link.requests()] == ["smoke/#"]


@pytest.mark.long
def test_more_filters_than_packet_identifiers_are_subscribed() -> None:
    session = Session()
    link = session.connect({f"flood/{number}": 1 for number in range(70_000)})
    names: set[str] = set()
    while granted := session.grant(link):
        names |= granted.keys()
    assert len(names) == 70_000


def test_repeated_qos_2_event_is_not_acknowledged_before_the_first_is_committed() -> None:
    session = Session()
    session.grant(session.connect({"#": 2}))
    session.journal.waits = True
    session.receive("alarm/1", qos=2, number=9)
    link = session.connect({"#": 2}, session_present=True)
    session.receive("alarm/1", qos=2, number=9)
    assert link.acknowledgements() == []
    session.journal.commit()
    assert link.acknowledgements() == [(PacketType.PUBREC, 9)]
    assert len(session.received) == 1


def test_commit_of_an_old_session_acknowledges_nothing_in_a_new_one() -> None:
    session = Session()
    session.grant(session.connect({"#": 1}))
    session.journal.waits = True
    session.receive("alarm/1", number=1)
    link = session.connect({"#": 1}, session_present=False)
    session.journal.commit()
    assert link.acknowledgements() == []


def test_stored_message_of_an_old_broker_is_not_a_new_write() -> None:
    session = Session()
    link = session.connect({"door/#": 1}, level=4)
    session.grant(link)
    session.receive("door/1", number=3, retain=True, level=4)
    assert session.received == []
    assert link.sent == [encode_acknowledgement(PacketType.PUBACK, 3)]


# -- publications that the broker does not accept --------------------------------------------------


def _published(link: MemoryLink) -> list[tuple[int, bytes]]:
    """Return the packet identifier and the payload of each PUBLISH of QoS 1 or 2."""
    return [
        (int.from_bytes(packet[5:7], "big"), packet[8:])
        for packet in link.sent
        if packet[0] >> 4 == PacketType.PUBLISH and packet[0] & 0x06
    ]


def _acknowledge(session: Session, number: int, code: int, *, qos: int = 1) -> None:
    kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
    body = number.to_bytes(2, "big") + bytes((code,))
    session.session.packet_received(encode_packet(kind, 0, body))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_event_larger_than_the_broker_accepts_is_dropped_and_blocks_nothing(qos: int) -> None:
    session = Session()
    link = session.connect({}, maximum_packet_bytes=100)
    session.publish(b"x" * 200, qos)
    session.publish(b"small", qos)
    assert [(event.payload, cause) for event, cause in session.dropped] == [
        (b"x" * 200, DropCause.TOO_LARGE)
    ]
    assert session.ended[0] == (b"x" * 200, False)
    assert max(len(packet) for packet in link.sent) <= 100
    assert any(packet.endswith(b"small") for packet in link.sent)


def test_waiting_event_is_dropped_if_the_broker_accepts_less_after_a_restart() -> None:
    session = Session()
    session.connect({})
    session.publish(b"x" * 200, 2)
    link = session.connect({}, maximum_packet_bytes=100, session_present=True)
    assert session.ended == [(b"x" * 200, False)]
    assert _published(link) == []


@pytest.mark.parametrize("qos", [1, 2])
def test_event_over_a_quota_of_the_broker_is_sent_again_in_order(qos: int) -> None:
    session = Session()
    link = session.connect({})
    session.publish(b"1", qos)
    session.publish(b"22", qos)
    for number, _ in reversed(_published(link)):
        _acknowledge(session, number, 0x97, qos=qos)
    session.publish(b"333", qos)
    assert len(_published(link)) == 2, "nothing is sent while the broker is over its quota"
    link.sent.clear()
    session.session.tick()
    assert [payload for _, payload in _published(link)] == [b"1", b"22", b"333"]
    assert session.ended == []
    assert all(not packet[0] & 0x08 for packet in link.sent), "the broker has not accepted them"
    if qos == 1:
        for number, _ in _published(link):
            _acknowledge(session, number, 0)
        assert session.ended == [(b"1", True), (b"22", True), (b"333", True)]


def test_event_that_stays_over_the_quota_is_dropped_and_counted() -> None:
    session = Session()
    link = session.connect({})
    session.publish(b"1", 1)
    attempts = 0
    while not session.ended:
        attempts += 1
        (number, _), *_ = _published(link)
        link.sent.clear()
        _acknowledge(session, number, 0x97)
        session.session.tick()
    assert attempts == MAX_ATTEMPTS
    assert session.ended == [(b"1", False)]
    assert [cause for _, cause in session.dropped] == [DropCause.REFUSED]


def test_refused_event_is_not_reported_as_accepted() -> None:
    session = Session()
    link = session.connect({})
    session.publish(b"1", 1)
    _acknowledge(session, _published(link)[0][0], 0x87)
    assert session.ended == [(b"1", False)]
    assert [cause for _, cause in session.dropped] == [DropCause.REFUSED]

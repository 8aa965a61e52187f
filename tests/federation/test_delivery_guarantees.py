"""QoS 1 and 2 when a federator is killed, a journal is lost, or the broker is slow."""

from collections.abc import Callable, Mapping

from firedex.federation.broker_publications import BrokerPublications, PacketIds
from firedex.federation.events import Event, encode_event, read_publication
from firedex.federation.frames import (
    Destination,
    EventId,
    FrameSplitter,
    FrameType,
    RoutedFrame,
    encode_routed,
)
from firedex.federation.interest import InterestChange
from firedex.federation.interest_exchange import SOURCES_SECONDS
from firedex.federation.journal import MemoryJournal
from firedex.federation.node import FederationNode
from firedex.federation.topology import SiteRecord
from firedex.transport.mqtt.encoding import MAX_PACKET_BYTES, PacketType
from tests.support.memory_federation import MemoryFederation

LINE = [("a", "b"), ("b", "c")]


class SlowBroker:
    """A broker that accepts a few packets at once and acknowledges when it is told to."""

    def __init__(self, journal: MemoryJournal, receive_maximum: int) -> None:
        self.sent: list[bytes] = []
        self.stored: list[bytes] = []
        self.is_ready = True
        self._receive_maximum = receive_maximum
        self.publications = BrokerPublications(
            journal, PacketIds(), published=lambda _event: None, dropped=lambda *_: None
        )

    def connect(self, *, session_present: bool) -> None:
        self.publications.connected(
            self.sent.append,
            level=5,
            receive_maximum=self._receive_maximum,
            maximum_packet_bytes=MAX_PACKET_BYTES,
            session_present=session_present,
        )

    def set_subscriptions(self, filters: Mapping[str, int], change: InterestChange) -> None:
        pass

    def publish(self, event: Event, done: Callable[[bool], None] | None) -> bool:
        if event.qos:
            self.publications.add(event, done)
        return True

    def acknowledge_all(self) -> None:
        """Acknowledge everything that was sent, and what is sent because of that."""
        while self.sent:
            packet = self.sent.pop(0)
            kind = packet[0] >> 4
            if kind == PacketType.PUBREL:
                self.publications.complete(int.from_bytes(packet[2:4], "big"), 0)
                continue
            publication = read_publication(packet, level=5)
            self.stored.append(publication.payload)
            if publication.qos == 1:
                self.publications.complete(publication.packet_id, 0)
            else:
                self.publications.receive_pubrec(publication.packet_id, 0)

    def payloads(self) -> list[bytes]:
        return [
            read_publication(packet, level=5).payload
            for packet in self.sent
            if packet[0] >> 4 == PacketType.PUBLISH
        ]


class ReceivingSite:
    """A site whose federator receives numbered events of one origin and can be restarted."""

    def __init__(self, receive_maximum: int) -> None:
        self._receive_maximum = receive_maximum
        self.journal = MemoryJournal()
        self.start(session_present=False)

    def start(self, *, session_present: bool = True) -> None:
        self.broker = SlowBroker(self.journal, self._receive_maximum)
        self.node = FederationNode(
            "here", neighbours=self, broker=self.broker, journal=self.journal
        )
        self.node.membership.topology.add(SiteRecord(site="there", epoch=7, version=1, links={}))
        self.broker.publications.restore(
            self.journal.load().outgoing, self.node.publication_completed
        )
        self.broker.connect(session_present=session_present)

    def send(self, neighbour: str, frame: bytes, *, droppable: bool = False) -> bool:  # noqa: ARG002
        return True

    def receive(self, number: int, qos: int, previous: int) -> None:
        identity: EventId = (7, number)
        event = Event(
            origin="there", id=identity, stamp=1, topic=b"t", payload=b"%d" % number, qos=qos
        )
        before: EventId = (7, previous) if previous else (0, 0)
        frame = RoutedFrame(
            FrameType.EVENT, (Destination("here", before),), 5, 0, True, encode_event(event)
        )
        ((kind, body),) = FrameSplitter(10_000).feed(encode_routed(frame))
        self.node.frame_received("there", kind, body)

    def delivered(self) -> EventId:
        return self.journal.load().delivered.get("there", (0, 0))


def test_qos_1_events_before_a_prepared_qos_2_event_survive_a_crash() -> None:
    """The QoS 2 event is in the journal; the QoS 1 events before it were only in memory."""
    site = ReceivingSite(receive_maximum=1)
    for number, qos in enumerate([1, 1, 2], start=1):
        site.receive(number, qos, number - 1)
    assert site.broker.payloads() == [b"1"]
    site.start()  # killed before the broker acknowledged anything
    for number, qos in enumerate([1, 1, 2], start=1):
        site.receive(number, qos, number - 1)
    site.broker.acknowledge_all()
    assert sorted(site.broker.stored) == [b"1", b"2", b"3"]
    assert site.delivered() == (7, 3)


def test_qos_2_event_that_finished_early_is_not_published_again_after_a_crash() -> None:
    site = ReceivingSite(receive_maximum=10)
    site.receive(1, 1, 0)
    site.receive(2, 2, 1)
    first, second = site.broker.sent
    assert read_publication(second, level=5).payload == b"2"
    number = read_publication(second, level=5).packet_id
    site.broker.publications.receive_pubrec(number, 0)
    site.broker.publications.complete(number, 0)
    assert site.delivered() == (0, 0), "the event before it is not acknowledged"
    assert read_publication(first, level=5).payload == b"1"
    site.start()
    site.receive(1, 1, 0)
    site.receive(2, 2, 1)
    assert site.broker.payloads() == [b"1"]
    site.broker.acknowledge_all()
    assert site.delivered() == (7, 2)
    assert site.journal.load().finished == []
    assert site.journal.load().outgoing == []


def test_restart_does_not_exceed_the_receive_maximum_of_the_broker() -> None:
    """A broker refuses the packets above it, or ends the session, again at every reconnection."""
    site = ReceivingSite(receive_maximum=3)
    for number in range(1, 11):
        site.receive(number, 2, number - 1)
    site.start()
    assert site.broker.payloads() == [b"1", b"2", b"3"]
    assert all(packet[0] & 0x08 for packet in site.broker.sent), "these may be repetitions"
    for number in range(1, 11):
        site.receive(number, 2, number - 1)
    site.broker.acknowledge_all()
    assert site.delivered() == (7, 10)
    assert site.journal.load().outgoing == []


def test_destination_that_lost_its_journal_receives_new_events() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.broker("a").client_publishes("alarm/1", "before", qos=1)
    network.settle()
    network.kill("c")
    network.sites["c"].journal = MemoryJournal()
    network.settle()
    network.restart("c", {"alarm/#": 2})
    network.settle()
    network.broker("a").client_publishes("alarm/1", "after", qos=1)
    network.pass_time(10)
    assert network.delivered("c") == [b"before", b"after"]
    assert network.node("a").sender.unacknowledged == 0


def test_unavailable_broker_does_not_request_copies_that_it_cannot_accept() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.broker("c").is_ready = False
    for number in range(20):
        network.broker("a").client_publishes("alarm/1", f"{number}", qos=1)
    network.settle()
    before = network.frames_sent["b", "c"]
    for _ in range(10):
        network.broker("a").client_publishes("alarm/1", "more", qos=1)
        network.now += 0.1
        network.settle()
    assert network.frames_sent["b", "c"] == before + 10
    network.broker("c").is_ready = True
    network.pass_time(10)
    assert len(network.delivered("c")) == 30


def test_restarted_site_that_does_not_know_its_interest_yet_loses_no_event() -> None:
    """Its neighbours request its interest at once; until it is known they keep what they know."""
    network = MemoryFederation([("a", "c")])
    network.want("a", "alarm/#")
    network.settle()
    network.kill("a")
    network.restart("a")
    network.settle()
    network.node("a").interest.send_all(["c"])  # as after a request of c
    network.pass_time(1)
    network.broker("c").client_publishes("alarm/1", "smoke", qos=1)
    network.settle()
    network.want("a", "alarm/#")
    network.pass_time(2)
    assert network.delivered("a") == [b"smoke"]


def test_interest_is_announced_when_all_sources_have_reported() -> None:
    network = MemoryFederation([("a", "c")])
    network.node("a").interest.await_sources(["gateway", "service"])
    network.node("a").set_local_interest("file", {"static/#": 1})
    network.node("a").set_local_interest("gateway", {"alarm/#": 2})
    network.settle()
    assert "a" not in network.node("c").interest.remote.filters
    network.node("a").set_local_interest("service", {})
    network.settle()
    expected = {"static/#": 1, "alarm/#": 2}
    assert network.node("c").interest.remote.filters["a"] == expected


def test_source_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    network = MemoryFederation([("a", "c")])
    network.node("a").interest.await_sources(["gateway"])
    network.node("a").set_local_interest("file", {"static/#": 1})
    network.pass_time(SOURCES_SECONDS + 1)
    assert network.node("c").interest.remote.filters["a"] == {"static/#": 1}


def test_site_that_wants_nothing_any_more_says_so_after_a_restart() -> None:
    network = MemoryFederation([("a", "c")])
    network.want("a", "alarm/#")
    network.settle()
    network.kill("a")
    network.restart("a", interest={})
    network.pass_time(2)
    assert network.node("c").interest.remote.filters["a"] == {}

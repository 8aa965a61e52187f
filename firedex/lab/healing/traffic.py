"""Events between the sites of a federation, and the time of each arrival.

One process publishes and receives in one loop, so all times are of one clock (`time.monotonic`).
It keeps one connection to each broker for publishing and one for receiving.
"""

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from firedex.lab.benchmarks.federation_sites import RunningFederation
from firedex.lab.benchmarks.measured_parts import event_packet
from firedex.transport.mqtt.encoding import PacketSplitter, PacketType
from firedex.transport.mqtt.packets import encode_subscribe, read_publish
from firedex.transport.mqtt.version import MQTT_5

__all__ = ["EVENTS", "INTEREST", "RETAINED", "Arrival", "RetainedReaders", "Traffic"]

EVENTS = "healing/events"
RETAINED = "healing/retained"
INTEREST = (f"{EVENTS}/#", f"{RETAINED}/#")
"""Filters that every site must want."""
END = "healing-local/end"
"""No site wants this topic, so it does not leave the site."""
LONGEST_WAIT_SECONDS = 0.05
PACKET_IDS = 65_535
_SENT = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class Arrival:
    """When an event arrived at a subscriber, and when it was published."""

    at: float
    sent_at: float


class Traffic:
    """The clients of a run: a publisher and a subscriber at every site."""

    def __init__(self, federation: RunningFederation) -> None:
        self._federation = federation
        self._stack = ExitStack()
        self._selector = selectors.DefaultSelector()
        self._sources: dict[str, socket.socket] = {}
        self._packet_id = 0
        self.arrivals: dict[tuple[str, str], list[Arrival]] = {}

    def __enter__(self) -> Self:
        self._stack.callback(self._selector.close)
        try:
            for site in self._federation.sites:
                sink = self._federation.client(site, "healing-sink", f"{EVENTS}/#")
                raw = self._stack.enter_context(sink)
                self._selector.register(raw, selectors.EVENT_READ, (site, PacketSplitter()))
                source = self._federation.client(site, "healing-source")
                self._sources[site] = self._stack.enter_context(source)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def retain(self, site: str, name: str, payload: bytes) -> None:
        """Publish a retained message at a site; an empty payload deletes it."""
        self._packet_id = self._packet_id % PACKET_IDS + 1
        packet = event_packet(
            f"{RETAINED}/{name}", payload, qos=1, packet_id=self._packet_id, retain=True
        )
        self._sources[site].sendall(packet)

    def run(
        self,
        publishers: Sequence[str],
        *,
        interval_seconds: float,
        until: Callable[[float], bool],
        at_most_seconds: float,
        actions: Iterable[tuple[float, Callable[[], None]]] = (),
    ) -> bool:
        """Publish at each of ``publishers`` in every interval until the condition holds.

        ``until`` is called with the time since the start, after each interval. ``actions`` are
        called at their times. Return whether the condition held in time.
        """
        packets = {site: f"{EVENTS}/{site}" for site in publishers}
        waiting = sorted(actions, key=lambda action: action[0])
        begin = due = time.monotonic()
        while True:
            now = time.monotonic()
            if waiting and now >= begin + waiting[0][0]:
                waiting.pop(0)[1]()
                continue
            if now >= due:
                for site, topic in packets.items():
                    self._sources[site].sendall(event_packet(topic, _SENT.pack(now)))
                # After a stall of the machine, continue from now: no burst of missed events.
                due = max(due + interval_seconds, now)
                if not waiting and until(now - begin):
                    return True
                if now - begin > at_most_seconds:
                    return False
            self._receive(min(due - time.monotonic(), LONGEST_WAIT_SECONDS))

    def _receive(self, timeout_seconds: float) -> None:
        for key, _ in self._selector.select(max(timeout_seconds, 0.0)):
            site, splitter = key.data
            data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            if not data:
                raise RuntimeError(f"the broker of {site} closed the connection")
            at = time.monotonic()
            for packet in splitter.feed(data):
                if packet[0] >> 4 == PacketType.PUBLISH:
                    self._record(site, packet, at)

    def _record(self, site: str, packet: bytes, at: float) -> None:
        event = read_publish(packet, level=MQTT_5)
        source = event.topic.decode()[len(EVENTS) + 1 :]
        sent_at = _SENT.unpack(event.payload)[0]
        self.arrivals.setdefault((source, site), []).append(Arrival(at, sent_at))

    def arrived_since(self, pairs: Iterable[tuple[str, str]], moment: float) -> bool:
        """Return whether each pair has an event that was published after ``moment``."""
        return all(
            (found := self.arrivals.get(pair)) is not None and found[-1].sent_at > moment
            for pair in pairs
        )

    def first_arrival_since(self, pair: tuple[str, str], moment: float) -> float | None:
        """Return when the first event arrived that was published after ``moment``."""
        return next((a.at for a in self.arrivals.get(pair, ()) if a.sent_at > moment), None)

    def forget(self) -> None:
        """Forget all arrivals."""
        self.arrivals.clear()


class RetainedReaders:
    """One connection to each broker, to read its retained messages repeatedly."""

    def __init__(self, federation: RunningFederation) -> None:
        self._federation = federation
        self._stack = ExitStack()
        self._clients: dict[str, tuple[socket.socket, PacketSplitter]] = {}

    def __enter__(self) -> Self:
        try:
            for site in self._federation.sites:
                client = self._federation.client(site, "healing-reader", END)
                self._clients[site] = (self._stack.enter_context(client), PacketSplitter())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self) -> dict[str, dict[str, bytes]]:
        """Return the retained messages of each broker.

        A broker sends all retained messages at each SUBSCRIBE, before what is published next.
        """
        packets = encode_subscribe(2, f"{RETAINED}/#".encode(), 0, level=MQTT_5)
        packets += event_packet(END, b"end")
        for client, _ in self._clients.values():
            client.sendall(packets)
        return {site: self._read_one(site) for site in self._clients}

    def _read_one(self, site: str) -> dict[str, bytes]:
        client, splitter = self._clients[site]
        found: dict[str, bytes] = {}
        ended = False
        while not ended:
            data = client.recv(1 << 18)
            if not data:
                raise RuntimeError(f"the broker of {site} closed the connection")
            for packet in splitter.feed(data):
                if packet[0] >> 4 != PacketType.PUBLISH:
                    continue
                event = read_publish(packet, level=MQTT_5)
                topic = event.topic.decode()
                ended = ended or topic == END
                if event.retain and topic != END:
                    found[topic[len(RETAINED) + 1 :]] = event.payload
        return found

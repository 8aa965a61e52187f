"""Measuring events that cross brokers: delay, rate, time until served, and gaps.

One process publishes and receives over plain sockets in one loop that waits in ``select``, so all
times are of one clock (`time.monotonic`).
"""

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from firedex.lab.benchmarks.measured_parts import event_packet, open_mqtt_socket
from firedex.transport.mqtt.encoding import PacketSplitter, PacketType
from firedex.transport.mqtt.packets import encode_subscribe, encode_unsubscribe
from firedex.transport.mqtt.version import MQTT_5

__all__ = [
    "RATE_TOPIC",
    "TOPIC",
    "arrival_times",
    "delays",
    "events_per_second",
    "longest_gap",
    "quantile",
    "seconds_until_served",
]

TOPIC = "bench/events"
RATE_TOPIC = "rate/events"
PAYLOAD_BYTES = 100
PATIENCE_SECONDS = 15.0
PACKET_IDS = 65_535
WARM_UP_EVENTS = 300
CHUNK_EVENTS = 50
PROBE_SECONDS = 0.001
PAUSE_SECONDS = 0.02
_STAMP = struct.Struct(">d")


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that is at least as large as ``fraction`` of all values."""
    ordered = sorted(values)
    rank = -int(-fraction * len(ordered) // 1)  # rounded up
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """Return the longest time without an arrival between ``begin`` and ``end``."""
    within = [moment for moment in times if begin < moment < end]
    edges = [begin, *within, end]
    return max(later - earlier for earlier, later in pairwise(edges))


class _Sink:
    """A subscriber: splits what it receives into packets."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw, self._splitter = raw, PacketSplitter()

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self.raw.fileno()

    def events(self) -> Iterator[bytes]:
        """Read what has arrived and yield each PUBLISH packet."""
        data = self.raw.recv(1 << 18)
        if not data:
            raise RuntimeError("a broker closed the connection")
        for packet in self._splitter.feed(data):
            if packet[0] >> 4 == PacketType.PUBLISH:
                yield packet


@contextmanager
def _open_sinks(ports: Mapping[str, int], topic: str = TOPIC) -> Iterator[dict[str, _Sink]]:
    with ExitStack() as stack:
        yield {
            name: _Sink(stack.enter_context(open_mqtt_socket(port, f"sink-{name}", topic, qos=0)))
            for name, port in ports.items()
        }


def delays(
    publisher_port: int, ports: Mapping[str, int], *, events: int, interval_seconds: float
) -> dict[str, list[float]]:
    """Return the delay of each QoS 0 event at each subscriber, in seconds.

    The events carry the time at which they were sent. All of them must arrive.
    """
    found: dict[str, list[float]] = {name: [] for name in ports}
    total = events + WARM_UP_EVENTS
    with _open_sinks(ports) as sinks, open_mqtt_socket(publisher_port, "source") as source:
        names = {sink: name for name, sink in sinks.items()}
        sent, due = 0, time.monotonic()
        deadline = due + total * interval_seconds + PATIENCE_SECONDS
        while min(len(values) for values in found.values()) < total:
            now = time.monotonic()
            if now > deadline:
                raise RuntimeError(
                    f"not all of {total} events arrived: "
                    + ", ".join(f"{name} {len(values)}" for name, values in found.items())
                )
            if sent < total and now >= due:
                source.sendall(event_packet(TOPIC, _STAMP.pack(time.monotonic())))
                sent, due = sent + 1, due + interval_seconds
            timeout = max(0.0, due - time.monotonic()) if sent < total else 0.1
            for sink in select.select(list(names), [], [], timeout)[0]:
                for packet in sink.events():
                    arrival = time.monotonic()
                    found[names[sink]].append(arrival - _STAMP.unpack(packet[-8:])[0])
    return {name: values[WARM_UP_EVENTS:] for name, values in found.items()}


def events_per_second(
    publisher_port: int, subscriber_port: int, *, qos: int, events: int, window: int
) -> float:
    """Return the rate at which events of 100 bytes cross, with back-pressure.

    At most ``window`` events are under way, so that no queue overflows and none is dropped. The
    subscriber compares the whole byte stream: a lost or reordered event is an error. It subscribes
    at QoS 0; up to its broker the events are of QoS ``qos``.
    """
    payloads = [number.to_bytes(PAYLOAD_BYTES, "big") for number in range(events)]
    packets = [
        event_packet(RATE_TOPIC, payload, qos=qos, packet_id=number % PACKET_IDS + 1 if qos else 0)
        for number, payload in enumerate(payloads)
    ]
    expected = b"".join(event_packet(RATE_TOPIC, payload) for payload in payloads)
    size = len(expected) // events
    received = bytearray()
    with (
        _open_sinks({"end": subscriber_port}, RATE_TOPIC) as sinks,
        open_mqtt_socket(publisher_port, "source") as source,
    ):
        sink = sinks["end"].raw
        begin = heard = time.monotonic()
        sent = 0
        while len(received) < len(expected):
            if sent < events and sent - len(received) // size < window:
                source.sendall(b"".join(packets[sent : sent + CHUNK_EVENTS]))
                sent = min(sent + CHUNK_EVENTS, events)
            is_open = sent < events and sent - len(received) // size < window
            ready = select.select([sink, source], [], [], 0.0 if is_open else 0.1)[0]
            if source in ready:
                source.recv(1 << 18)  # acknowledgements
            if sink in ready:
                received += sink.recv(1 << 18)
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE_SECONDS:
                raise RuntimeError(f"{len(received) // size} of {events} events arrived")
        seconds = time.monotonic() - begin
    if received != expected:
        raise RuntimeError("events were changed, repeated or reordered")
    return events / seconds


def seconds_until_served(
    publisher_port: int, subscriber_port: int, *, label: str, repeats: int
) -> list[float]:
    """Return the times from SUBSCRIBE to the first event, while events are published each ms."""
    times: list[float] = []
    with (
        open_mqtt_socket(subscriber_port, f"new-{label}") as raw,
        open_mqtt_socket(publisher_port, "source") as source,
    ):
        sink = _Sink(raw)
        for number in range(repeats):
            topic = f"new/{label}/{number}"
            name, packet = topic.encode(), event_packet(topic, b"probe")
            packet_id = number % PACKET_IDS + 1
            begin = due = time.monotonic()
            raw.sendall(encode_subscribe(packet_id, name, 0, level=MQTT_5))
            served = False
            while not served:
                now = time.monotonic()
                if now - begin > PATIENCE_SECONDS:
                    raise RuntimeError(f"the subscription to {topic} is not served")
                if now >= due:
                    source.sendall(packet)
                    due = now + PROBE_SECONDS
                timeout = max(0.0, due - time.monotonic())
                if select.select([sink], [], [], timeout)[0]:
                    served = any(name in event for event in list(sink.events()))
            times.append(time.monotonic() - begin)
            raw.sendall(encode_unsubscribe(packet_id, name, level=MQTT_5))
            while select.select([sink], [], [], PAUSE_SECONDS)[0]:
                list(sink.events())
    return times


def arrival_times(
    publisher_port: int,
    ports: Mapping[str, int],
    *,
    interval_seconds: float,
    seconds: float,
    at_seconds: float,
    action: Callable[[], None],
) -> tuple[dict[str, list[float]], float]:
    """Publish for ``seconds`` and call ``action`` in between.

    Return the arrival times at each subscriber and the time of the action.
    """
    found: dict[str, list[float]] = {name: [] for name in ports}
    with _open_sinks(ports) as sinks, open_mqtt_socket(publisher_port, "source") as source:
        names = {sink: name for name, sink in sinks.items()}
        begin = due = time.monotonic()
        acted: float | None = None
        while (now := time.monotonic()) < begin + seconds:
            if now >= due:
                source.sendall(event_packet(TOPIC, _STAMP.pack(now)))
                due += interval_seconds
            if acted is None and now >= begin + at_seconds:
                acted = now
                action()
            timeout = max(0.0, due - time.monotonic())
            for sink in select.select(list(names), [], [], timeout)[0]:
                arrival = time.monotonic()
                found[names[sink]] += [arrival for _ in sink.events()]
    return found, begin if acted is None else acted

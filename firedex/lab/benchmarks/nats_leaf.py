"""The same measurements between two NATS servers, of which the second is a leaf node of the first.

NATS clients speak the plain text protocol of NATS over sockets. Only where ``nats-server`` is
installed; NATS has no delivery guarantee without JetStream, so there is no figure for QoS 1.
"""

import select
import shutil
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from firedex.lab.benchmarks.federation_probes import PAYLOAD_BYTES, WARM_UP_EVENTS, quantile
from firedex.lab.benchmarks.measured_parts import free_port
from firedex.system.processes import ChildProcess

__all__ = ["NatsFigures", "measure_nats", "nats_is_installed"]

SUBJECT = "bench.events"
PATIENCE_SECONDS = 15.0
WINDOW_EVENTS, CHUNK_EVENTS = 1000, 50
PING = b"PING\r\n"
"""The server sends it a few seconds after a client has connected."""
_STAMP = struct.Struct(">d")
_HUB = "listen: 127.0.0.1:{client}\nleafnodes {{ listen: 127.0.0.1:{leaf} }}\n"
_LEAF = (
    'listen: 127.0.0.1:{client}\nleafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{leaf}" }}] }}\n'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsFigures:
    """Added delay of the hop in seconds (median and 99th percentile), and events per second."""

    added_median_seconds: float
    added_p99_seconds: float
    events_per_second: float


def nats_is_installed() -> bool:
    """Return whether ``nats-server`` is on the path."""
    return shutil.which("nats-server") is not None


def measure_nats(folder: Path, *, delay_events: int, rate_events: int) -> NatsFigures:
    """Measure one hop from the first server to its leaf node."""
    with _running_servers(folder) as (first, second):
        at_first = _delays(first, first, delay_events)
        at_second = _delays(first, second, delay_events)
        rate = _events_per_second(first, second, rate_events)
    return NatsFigures(
        added_median_seconds=quantile(at_second, 0.5) - quantile(at_first, 0.5),
        added_p99_seconds=quantile(at_second, 0.99) - quantile(at_first, 0.99),
        events_per_second=rate,
    )


@contextmanager
def _running_servers(folder: Path) -> Iterator[tuple[int, int]]:
    """Run both servers until events cross; yield their ports."""
    first, second, leaf = free_port(), free_port(), free_port()
    servers: list[ChildProcess] = []
    try:
        for name, template, client in (("hub", _HUB, first), ("leaf", _LEAF, second)):
            file = folder / f"nats-{name}.conf"
            file.write_text(template.format(client=client, leaf=leaf))
            command = [shutil.which("nats-server") or "nats-server", "-c", str(file)]
            servers.append(ChildProcess(command, folder / f"nats-{name}.log"))
            _wait_for_server(servers[-1], client)
        _wait_until_crossing(first, second)
        yield first, second
    finally:
        for server in servers:
            server.kill()


def _wait_for_server(server: ChildProcess, port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        if server.exit_code() is not None:
            raise RuntimeError(f"nats-server ended: {server.end_of_log()}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError("nats-server does not listen") from None
            time.sleep(0.02)
        else:
            return


def _wait_until_crossing(first: int, second: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with _client(first) as source, _client(second, SUBJECT) as sink:
        while not select.select([sink], [], [], 0.05)[0]:
            source.sendall(_event(b"probe"))
            if time.monotonic() > deadline:
                raise RuntimeError("no event reaches the leaf node")


@contextmanager
def _client(port: int, subject: str | None = None) -> Iterator[socket.socket]:
    """Connect to a server, and subscribe; the server has processed both when this returns."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.sendall(b'CONNECT {"verbose":false}\r\n')
        if subject is not None:
            raw.sendall(f"SUB {subject} 1\r\n".encode())
        raw.sendall(b"PING\r\n")
        received = b""
        while b"PONG\r\n" not in received:
            received += raw.recv(4096)
        yield raw


def _event(payload: bytes) -> bytes:
    return f"PUB {SUBJECT} {len(payload)}\r\n".encode() + payload + b"\r\n"


def _message(payload: bytes) -> bytes:
    return f"MSG {SUBJECT} 1 {len(payload)}\r\n".encode() + payload + b"\r\n"


def _delays(publisher_port: int, subscriber_port: int, events: int) -> Sequence[float]:
    """Return the delays of 1,000 events a second."""
    size = len(_message(_STAMP.pack(0.0)))
    found: list[float] = []
    received = b""
    with _client(subscriber_port, SUBJECT) as sink, _client(publisher_port) as source:
        total, sent, due = events + WARM_UP_EVENTS, 0, time.monotonic()
        deadline = due + total * 0.001 + PATIENCE_SECONDS
        while len(found) < total:
            now = time.monotonic()
            if now > deadline:
                raise RuntimeError(f"{len(found)} of {total} events arrived over NATS")
            if sent < total and now >= due:
                source.sendall(_event(_STAMP.pack(time.monotonic())))
                sent, due = sent + 1, due + 0.001
            timeout = max(0.0, due - time.monotonic()) if sent < total else 0.1
            if select.select([sink], [], [], timeout)[0]:
                received += sink.recv(1 << 18)
                arrival = time.monotonic()
                received = received.replace(PING, b"")  # between messages; payloads are times
                while len(received) >= size:
                    message, received = received[:size], received[size:]
                    found.append(arrival - _STAMP.unpack(message[-10:-2])[0])
    return found[WARM_UP_EVENTS:]


def _events_per_second(publisher_port: int, subscriber_port: int, events: int) -> float:
    """Return the rate at which events of 100 bytes cross, at most 1,000 of them under way."""
    payload = bytes(PAYLOAD_BYTES)
    chunk, size = _event(payload) * CHUNK_EVENTS, len(_message(payload))
    events -= events % CHUNK_EVENTS
    received = sent = 0
    with _client(subscriber_port, SUBJECT) as sink, _client(publisher_port) as source:
        begin = heard = time.monotonic()
        while received < events * size:
            is_open = sent < events and sent - received // size < WINDOW_EVENTS
            if is_open:
                source.sendall(chunk)
                sent += CHUNK_EVENTS
            if select.select([sink], [], [], 0.0 if is_open else 0.1)[0]:
                received += len(sink.recv(1 << 18))
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE_SECONDS:
                raise RuntimeError(f"{received // size} of {events} events arrived over NATS")
        return events / (time.monotonic() - begin)

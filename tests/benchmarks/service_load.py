"""The configuration service under load, with real sockets, SQLite and a fake controller.

1000 event streams are open while 1000 subscribers register 20 subscriptions each, in one request
per subscriber, spread over ten seconds. Service, controller and load are separate processes.
"""

import asyncio
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report

__all__ = ["serve_load"]

SUBSCRIBERS = 1_000
SUBSCRIPTIONS = 20
STREAMS = 1_000
BURST_SECONDS = 9.0
FLOORS, SENSORS = 20, ("smoke", "heat", "vitals", "doors", "water", "air", "video", "crew")
READS = 2_000
READERS = 8
TIMEOUT_SECONDS = 60.0
MEGABYTE = 1e6
SITE = """\
name: tower
transport: tcp
topics: []
network:
  switches:
    - {id: lan, managed: false, bandwidth_bits_per_second: 10000000000}
    - {id: core, managed: true, bandwidth_bits_per_second: 20000000}
  broker: {id: edge}
"""
CONTROLLER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
log = open(sys.argv[1], "a", buffering=1)
kept = {}
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        plain = json.loads(body)
        kept["network"] = body
        rules = sum(len(switch["flows"]) for switch in plain["switches"])
        who = {flow["subscriber"] for switch in plain["switches"] for flow in switch["flows"]}
        log.write(f"{time.time()} {plain['configuration_version']} {rules} {len(who)}\\n")
        self.respond(200, {"configuration_version": plain["configuration_version"], "seconds": 0.0,
                          "switches": []})
    def do_GET(self):
        if self.path == "/v1/network" and "network" in kept:
            self.respond(200, json.loads(kept["network"]))
        elif self.path == "/v1/topology":
            self.respond(200, {})
        elif self.path == "/v1/capabilities":
            self.respond(200, [])
        else:
            self.respond(404, {"error": "none"})
    def respond(self, status, plain):
        body = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def percentile(values: list[float], level: float) -> float:
    """Return the value below which a fraction ``level`` of the values is."""
    ordered = sorted(values)
    return ordered[min(int(level * len(ordered)), len(ordered) - 1)]


@dataclass
class _BurstResult:
    seconds: list[float]
    statuses: list[int]
    last_answer: float
    burst_seconds: float
    streams_open: int
    streams_notified: int


def serve_load(report: Report) -> BenchmarkResult:
    """Measure a burst of registrations: response times, activation, memory and reads."""
    _allow_many_files()
    with tempfile.TemporaryDirectory(prefix="firedex-bench-") as name:
        folder = Path(name)
        report("serve: starting controller and service")
        with _controller(folder) as controller, _service(folder, controller) as (port, process):
            _put(port, "/v1/publishers/sensors?wait_seconds=30", _publisher())
            report(f"serve: {STREAMS} streams, {SUBSCRIBERS} registrations in ten seconds")
            measured = asyncio.run(_burst(port))
            active_at = _wait_for_activation(folder / "pushes", process)
            memory = _resident_bytes(process.pid)
            report(f"serve: {READS} reads")
            reads = asyncio.run(_reads_per_second(port))
    activation_delay = max(active_at - measured.last_answer, 0.0)
    rejected = sum(status not in (200, 202) for status in measured.statuses)
    return BenchmarkResult(
        name="serve",
        comparisons=(
            Comparison(
                what=f"{SUBSCRIBERS} subscribers registering {SUBSCRIPTIONS} subscriptions each in "
                f"one request, within {measured.burst_seconds:.1f} s, {measured.streams_open} "
                "event streams open; rejected requests (plus 1, so that the ratio is defined)",
                left="rejected requests, + 1",
                left_value=rejected + 1.0,
                right="0 rejected, + 1",
                right_value=1.0,
                unit="requests",
                at_most=1.0,
            ),
            Comparison(
                what="95th percentile of response times; each response is durable (median "
                f"{percentile(measured.seconds, 0.5) * 1e3:.0f} ms, slowest "
                f"{max(measured.seconds) * 1e3:.0f} ms)",
                left="p95",
                left_value=percentile(measured.seconds, 0.95),
                right="limit",
                right_value=0.25,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="time from the last response until the fake controller has its rules",
                left="after the burst",
                left_value=activation_delay,
                right="limit",
                right_value=1.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what=f"event streams without a notification of a new version "
                f"({measured.streams_notified} of {STREAMS} were notified)",
                left="not notified, + 1",
                left_value=STREAMS - measured.streams_notified + 1.0,
                right="0 not notified, + 1",
                right_value=1.0,
                unit="streams",
                at_most=1.0,
            ),
            Comparison(
                what="memory of service and planner together, after the burst",
                left="resident",
                left_value=memory / MEGABYTE,
                right="limit",
                right_value=1_000.0,
                unit="MB",
                at_most=1.0,
            ),
            Comparison(
                what=f"reads of a subscriber's configuration over {READERS} connections; "
                "at least 100 reads per second are required",
                left="time per read",
                left_value=1.0 / reads,
                right="limit",
                right_value=0.01,
                unit="s",
                at_most=1.0,
            ),
        ),
    )


def _allow_many_files() -> None:
    """Raise the limit of open files, because every stream is an open socket."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- registrations ---------------------------------------------------------------------------------


def _topics() -> list[str]:
    return [f"floor{floor}/{sensor}" for floor in range(FLOORS) for sensor in SENSORS]


def _publisher() -> dict[str, Any]:
    return {
        "publisher": {
            "id": "sensors",
            "switch": "lan",
            "publications": [{"topic": name, "rate_per_second": 2.0} for name in _topics()],
        },
        "topics": [{"name": name, "event_bytes": 100} for name in _topics()],
    }


def _subscriber(number: int) -> dict[str, Any]:
    generator = random.Random(number)  # noqa: S311  # not used for security
    filters = [f"floor{generator.randrange(FLOORS)}/#", f"+/{generator.choice(SENSORS)}"]
    filters += generator.sample(_topics(), SUBSCRIPTIONS - len(filters))
    return {
        "subscriber": {
            "id": f"s{number}",
            "switch": "core",
            "subscriptions": [
                {"filter": name, "utility": {"kind": "log", "weight": generator.uniform(0.1, 10)}}
                for name in filters
            ],
        },
        "address": f"10.1.{number // 250}.{number % 250 + 1}",
    }


# -- processes -------------------------------------------------------------------------------------


@contextmanager
def _controller(folder: Path) -> Iterator[int]:
    with subprocess.Popen(  # a program of this project
        [sys.executable, "-c", CONTROLLER, str(folder / "pushes")],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield int(process.stdout.readline())  # type: ignore[union-attr]
        finally:
            process.terminate()


@contextmanager
def _service(folder: Path, controller: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (folder / "site.yaml").write_text(SITE, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    program = "from firedex.service.commands.serve import serve; serve()"
    with subprocess.Popen(  # a program of this project
        [sys.executable, "-c", program, str(folder / "site.yaml"), "--open"]
        + ["--listen", f"127.0.0.1:{port}", "--state", str(folder / "state.sqlite")]
        + ["--controller", f"http://127.0.0.1:{controller}"]
    ) as process:
        try:
            until = time.monotonic() + TIMEOUT_SECONDS
            while not _ready(port):
                if time.monotonic() > until or process.poll() is not None:
                    raise RuntimeError("the service did not start")
                time.sleep(0.05)
            yield port, process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_SECONDS)


def _ready(port: int) -> bool:
    try:
        status, _ = _send_request(port, b"GET /v1/ready HTTP/1.0\r\n\r\n")
    except OSError:
        return False
    return status == 200


def _send_request(port: int, request: bytes) -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(request)
        response = b""
        while part := connection.recv(65_536):
            response += part
    return int(response.split(b" ", 2)[1]), response


def _put(port: int, path: str, body: dict[str, Any]) -> None:
    status, response = _send_request(port, _request("PUT", path, body, "close"))
    if status != 200:
        raise RuntimeError(response.decode())


def _request(method: str, path: str, body: dict[str, Any] | None, connection: str) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: service\r\nConnection: {connection}\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"\r\n" + text


def _resident_bytes(pid: int) -> float:
    """Return the resident memory of a process and its children in bytes."""
    total = 0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += (task / "children").read_text(encoding="utf-8").split()
    for process in {str(pid), *children}:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1])
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return float(total)


def _wait_for_activation(log: Path, process: subprocess.Popen[bytes]) -> float:
    """Return the time at which the controller first had the rules of all subscribers."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            at, _, _, subscribers = line.split()
            if int(subscribers) == SUBSCRIBERS:
                return float(at)
        time.sleep(0.02)
    raise RuntimeError("the controller did not get the rules of all subscribers")


# -- load ------------------------------------------------------------------------------------------


async def _burst(port: int) -> _BurstResult:
    notified: set[int] = set()
    streams = [asyncio.create_task(_stream(port, number, notified)) for number in range(STREAMS)]
    open_streams = await _wait_for_streams(port)
    requests = [
        _request("PUT", f"/v1/subscribers/s{n}", _subscriber(n), "close")
        for n in range(SUBSCRIBERS)
    ]
    notified_before = set(notified)
    notified.clear()
    seconds: list[float] = []
    statuses: list[int] = []
    start = time.time()

    async def register(number: int) -> None:
        await asyncio.sleep(BURST_SECONDS * number / SUBSCRIBERS)
        at = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(requests[number])
        response = await reader.read()
        seconds.append(time.perf_counter() - at)
        statuses.append(int(response.split(b" ", 2)[1]))
        writer.close()

    await asyncio.gather(*(register(number) for number in range(SUBSCRIBERS)))
    last = time.time()
    await asyncio.sleep(2.0)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    return _BurstResult(
        seconds=seconds,
        statuses=statuses,
        last_answer=last,
        burst_seconds=last - start,
        streams_open=open_streams,
        streams_notified=len(notified & notified_before),
    )


async def _stream(port: int, number: int, notified: set[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request("GET", f"/v1/events?subscriber=s{number}", None, "keep-alive"))
    try:
        while line := await reader.readline():
            if line.startswith(b"event: configuration"):
                notified.add(number)
    finally:
        writer.close()


async def _wait_for_streams(port: int) -> int:
    """Wait until all streams are open, and return their number."""
    open_streams = 0
    for _ in range(200):
        await asyncio.sleep(0.1)
        _, response = await asyncio.to_thread(
            _send_request, port, b"GET /v1/status HTTP/1.0\r\n\r\n"
        )
        open_streams = json.loads(response.split(b"\r\n\r\n", 1)[1])["event_streams"]
        if open_streams == STREAMS:
            break
    return open_streams


async def _reads_per_second(port: int) -> float:
    """Return the number of reads per second."""

    async def read_from(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(first, READS, READERS):
            path = f"/v1/subscribers/s{number % SUBSCRIBERS}/configuration"
            writer.write(_request("GET", path, None, "keep-alive"))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(read_from(first) for first in range(READERS)))
    return READS / (time.perf_counter() - start)

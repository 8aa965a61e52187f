"""Throughput of the subscriber library with eight flows, compared with paho on one connection.

Both receive the same stamped events of eight topics from Mosquitto as fast as they can, each in a
separate process. Rates are events per second of CPU time of the receiving process. The two sides
run in turns, and the best rate of each side counts.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firedex.lab.benchmarks.measured_parts import Part, running_broker, send_events
from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.transport.event_stamp import EventStamp, new_origin
from firedex.transport.mqtt.packets import PublishPacket, encode_publish
from firedex.transport.mqtt.version import MQTT_5

__all__ = ["library_throughput"]

FLOWS = 8
EVENTS = 16_000
TURNS = 6
PAYLOAD_BYTES = 100
MAX_RATIO = 1 / 0.95


def library_throughput(report: Report) -> BenchmarkResult:
    """Run the benchmark."""
    best = {"bare": 0.0, "library": 0.0}
    with running_broker() as broker:
        for turn in range(TURNS):
            for side in best:
                report(f"{side}, turn {turn + 1} of {TURNS}")
                best[side] = max(best[side], _rate(side, broker))
    return BenchmarkResult(
        name="clients",
        comparisons=(
            Comparison(
                what=f"{EVENTS} stamped events of {PAYLOAD_BYTES} bytes, MQTT 5",
                left="paho, one connection",
                left_value=best["bare"],
                right=f"FireDeX library, {FLOWS} flows",
                right_value=best["library"],
                unit="events/s",
                at_most=MAX_RATIO,
            ),
        ),
    )


def _rate(side: str, broker: Part) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # a program of this project
            [
                sys.executable,
                "-m",
                "firedex.lab.benchmarks.receiving_process",
                side,
                str(broker.port),
                str(FLOWS),
                str(EVENTS),
                folder,
            ],
            stdout=subprocess.PIPE,
        ) as reader,
    ):
        until = time.monotonic() + 20
        while not (Path(folder) / "ready").exists():
            if reader.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the receiving process did not start within 20 s")
            time.sleep(0.02)
        send_events(broker.port, _packets(), _packet(0, b"", EVENTS + 1, new_origin(), qos=1))
        printed, _ = reader.communicate(timeout=120)
        result = json.loads(printed)
        if result["events"] < EVENTS:
            raise RuntimeError(f"{result['events']} of {EVENTS} events were received")
        return float(EVENTS / result["processor_seconds"])


def _packets() -> list[bytes]:
    origins = [new_origin() for _ in range(FLOWS)]
    payload = bytes(PAYLOAD_BYTES)
    return [_packet(n % FLOWS, payload, n // FLOWS + 1, origins[n % FLOWS]) for n in range(EVENTS)]


def _packet(topic: int, payload: bytes, sequence: int, origin: bytes, qos: int = 0) -> bytes:
    stamp = EventStamp(origin=origin, sequence=sequence, published_at_nanoseconds=time.time_ns())
    key, value = stamp.to_property()
    event = PublishPacket(
        topic=f"bench/{topic}".encode(),
        payload=payload,
        qos=qos,
        packet_id=1 if qos else 0,
        user_properties=((key.encode(), value.encode()),),
    )
    return encode_publish(event, level=MQTT_5)

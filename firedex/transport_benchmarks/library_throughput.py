"""The subscriber library with eight flows beside bare paho with one connection.

Both take the same stamped events of eight topics straight from Mosquitto, in a process of their own
each time, as fast as they can. Rates are events per second of that process's processor time on the
reading side; turns alternate, and the best of each side counts.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.event_stamp import EventStamp, new_origin
from firedex.gateway import broker_packets
from firedex.gateway.broker_packets import BrokerEvent
from firedex.transport_benchmarks.measured_parts import FIVE, Part, running_broker, send_events

__all__ = ["library_throughput"]

FLOWS = 8
EVENTS = 16_000
TURNS = 6
PAYLOAD_BYTES = 100
AT_MOST = 1 / 0.9


def library_throughput(report: Report) -> BenchmarkResult:
    """Run it."""
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
                left="bare paho, one connection",
                left_value=best["bare"],
                right=f"the library, {FLOWS} flows",
                right_value=best["library"],
                unit="events/s",
                at_most=AT_MOST,
            ),
        ),
    )


def _rate(side: str, broker: Part) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603  # our own program, arguments as a list
            [
                sys.executable,
                "-m",
                "firedex.transport_benchmarks.reading_side",
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
                raise RuntimeError("the reading side does not start")
            time.sleep(0.02)
        send_events(broker.port, _packets(), _packet(0, b"", EVENTS + 1, new_origin(), qos=1))
        printed, _ = reader.communicate(timeout=120)
        found = json.loads(printed)
        if found["events"] < EVENTS:
            raise RuntimeError(f"{found['events']} of {EVENTS} events came")
        return float(EVENTS / found["processor_seconds"])


def _packets() -> list[bytes]:
    origins = [new_origin() for _ in range(FLOWS)]
    payload = bytes(PAYLOAD_BYTES)
    return [_packet(n % FLOWS, payload, n // FLOWS + 1, origins[n % FLOWS]) for n in range(EVENTS)]


def _packet(topic: int, payload: bytes, sequence: int, origin: bytes, qos: int = 0) -> bytes:
    stamp = EventStamp(origin=origin, sequence=sequence, published_at_nanoseconds=time.time_ns())
    key, value = stamp.to_property()
    event = BrokerEvent(
        topic=f"bench/{topic}".encode(),
        payload=payload,
        qos=qos,
        retain=False,
        dup=False,
        message_id=1 if qos else 0,
        user_properties=((key.encode(), value.encode()),),
    )
    return broker_packets.publish(event, level=FIVE)

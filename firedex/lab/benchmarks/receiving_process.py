"""A process that receives events with paho or with the library, and prints its CPU time."""

import json
import sys
import threading
import time
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from firedex.wire import Configuration, Flow, FlowEndpoints, LogUtility, to_json
from firedex_clients import Event, Subscriber

__all__: list[str] = []

UNUSED_SERVICE_URL = "http://127.0.0.1:1"
TIMEOUT_SECONDS = 100.0


class _EventCounter:
    """Counts events, and measures the CPU time from the first to the last one."""

    def __init__(self, events: int) -> None:
        self.events, self._expected = 0, events
        self._first = self._last = 0.0
        self.done = threading.Event()

    def add(self) -> None:
        self.events += 1
        if self.events == 1:
            self._first = time.process_time()
        elif self.events == self._expected:
            self._last = time.process_time()
            self.done.set()

    @property
    def processor_seconds(self) -> float:
        return self._last - self._first


def receive_with_paho(port: int, flows: int, count: _EventCounter, ready: Path) -> None:
    """Receive all topics on one paho connection, as the documentation of paho describes."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    granted = threading.Semaphore(0)

    def on_message(_client: Any, _data: Any, _message: mqtt.MQTTMessage) -> None:
        count.add()

    client.on_message = on_message

    def on_connect(*_: Any) -> None:
        for n in range(flows):
            client.subscribe(f"bench/{n}")

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: granted.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    for _ in range(flows):
        granted.acquire()
    ready.touch()
    count.done.wait(TIMEOUT_SECONDS)
    client.disconnect()
    client.loop_stop()


def receive_with_library(port: int, flows: int, count: _EventCounter, ready: Path) -> None:
    """Receive each topic on its own flow, with a plan from a file."""
    plan = Configuration(
        version=1,
        broker="b",
        created_at=datetime.now(UTC),
        reason="bench",
        flows=tuple(
            Flow(
                subscriber="bench",
                flow=n,
                priority=n,
                drop_rate=0.0,
                filters=(f"bench/{n}",),
                endpoints=FlowEndpoints(
                    transport="tcp",
                    subscriber_address=IPv4Address("127.0.0.1"),
                    subscriber_ports=(41_000 + 2 * n, 41_001 + 2 * n),
                    gateway_address=IPv4Address("127.0.0.1"),
                    gateway_port=port,
                ),
            )
            for n in range(flows)
        ),
    )
    file = ready.parent / "plan.json"
    file.write_text(to_json(plan))
    subscriber_client = Subscriber(
        UNUSED_SERVICE_URL, id="bench", switch="core", address="127.0.0.1", plan_file=file
    )

    def on_event(_event: Event) -> None:
        count.add()

    for n in range(flows):
        subscriber_client.subscribe(f"bench/{n}", utility=LogUtility(weight=1.0), on_event=on_event)
    with subscriber_client:
        ready.touch()
        count.done.wait(TIMEOUT_SECONDS)


def main(side: str, port: str, flows: str, events: str, folder: str) -> None:
    """Receive the events and print the CPU time."""
    count = _EventCounter(int(events))
    receive = {"bare": receive_with_paho, "library": receive_with_library}[side]
    receive(int(port), int(flows), count, Path(folder) / "ready")
    print(json.dumps({"events": count.events, "processor_seconds": count.processor_seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs on a publisher's host: registers, waits for the start, publishes for a while, counts."""

import json
import sys
import time
from pathlib import Path

import numpy as np

from firedex.scenario_file import read_scenario
from firedex.wire import Publisher as PublisherValue
from firedex.wire import PublisherRegistration, Scenario, Topic
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES, STAMP_BYTES, wire_bytes
from firedex_clients import Publisher
from firedex_clients.service_client import ServiceClient
from firedex_emulation.idle_network import probed_topic, seconds_between_probes
from firedex_emulation.party_orders import PartyOrders
from firedex_emulation.timeline_effects import publication_times

__all__: list[str] = []

POLL_SECONDS = 0.02
PROBES = 100
PROBING_SECONDS = 3.0
"""Events sent one by one on the idle network, to see what hosts and switch take by themselves."""


def main(orders: PartyOrders) -> None:
    """Publish what the scenario says of a publisher; files in the run's folder say when."""
    scenario = read_scenario(orders.scenario)
    publisher = next(p for p in scenario.publishers if p.id == orders.name)
    mine = {publication.topic for publication in publisher.publications}
    topics = {topic.name: topic for topic in scenario.topics if topic.name in mine}
    ServiceClient(orders.service).register_publisher(
        PublisherRegistration(publisher=publisher, topics=tuple(topics.values()))
    )
    # Each publisher has a stream of its own: what one sends does not depend on who else there is.
    number = [p.id for p in scenario.publishers].index(orders.name)
    generator = np.random.default_rng([orders.seed, number])
    when, what = publication_times(publisher, scenario.timeline, orders.seconds, generator)
    run = Path(orders.run_folder)
    with Publisher(
        orders.broker, orders.broker_port, id=orders.name, version=orders.mqtt_version
    ) as client:
        (run / f"{orders.name}.ready").touch()
        _wait_for(run / "calibrate")
        if orders.probes:
            _probe(client, scenario, publisher)
        (run / f"{orders.name}.calibrated").touch()
        _wait_for(run / "go")
        names = [publication.topic for publication in publisher.publications]
        payloads = [_payloads(scenario, topics[name], generator) for name in names]
        start = float((run / "go").read_text())
        sent: list[tuple[str, str, float]] = []
        for after, index in zip(when.tolist(), what.tolist(), strict=True):
            wait = start + after - time.time()
            if wait > 0:
                time.sleep(wait)
            sizes = payloads[index]
            at = time.time()
            event = client.publish(names[index], sizes[len(sent) % len(sizes)])
            sent.append((event, names[index], at))
        time.sleep(max(start + orders.seconds - time.time(), 0.2))
    unfinished = run / f"{orders.name}.sent.unfinished"
    unfinished.write_text(json.dumps(sent))
    unfinished.rename(run / f"{orders.name}.sent.json")


def _payloads(scenario: Scenario, topic: Topic, generator: np.random.Generator) -> list[bytes]:
    """Payloads to take in turn: one, or many whose sizes on the wire are exponential."""
    if topic.size_distribution == "fixed":
        return [b"x" * topic.event_bytes]
    transport = scenario.transport
    headers = wire_bytes(payload_bytes=0, transport=transport, topic=topic.name, stamped=True)
    largest = LARGEST_UDP_PAYLOAD_BYTES - STAMP_BYTES["udp"] if transport == "udp" else 1 << 20
    drawn = generator.exponential(topic.event_bytes + headers, 997) - headers
    return [b"x" * int(size) for size in np.clip(drawn, 0, largest)]


def _probe(client: Publisher, scenario: Scenario, publisher: PublisherValue) -> None:
    topic = probed_topic(scenario, publisher)
    if topic is None:
        return
    payload = b"x" * topic.event_bytes
    pause = seconds_between_probes(scenario, topic)
    for _ in range(min(PROBES, int(PROBING_SECONDS / pause))):
        client.publish(topic.name, payload)
        time.sleep(pause)


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(PartyOrders.from_argument(sys.argv[1]))

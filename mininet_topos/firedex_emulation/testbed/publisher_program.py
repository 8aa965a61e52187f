"""Program on a publisher's host: registers, waits for the start signal, and publishes."""

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from firedex.scenario import read_scenario
from firedex.system.files import write_atomically
from firedex.transport.http import HttpTarget
from firedex.transport.service_client import NotActivated, ServiceClient
from firedex.wire import Publisher as PublisherValue
from firedex.wire import PublisherRegistration, Scenario, Topic
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES, STAMP_BYTES, wire_bytes
from firedex_clients import Publisher
from firedex_emulation.measurement.host_time import probed_topic, seconds_between_probes
from firedex_emulation.testbed.interface import HostSettings
from firedex_emulation.testbed.timeline import publication_times

__all__: list[str] = []

POLL_SECONDS = 0.02
PROBES = 100
PROBING_SECONDS = 3.0
"""Probe events on the idle network measure the delay that hosts and switches add."""


async def _register(url: str, registration: PublisherRegistration) -> None:
    async with ServiceClient(HttpTarget(url=url)) as service:
        await service.register_publisher(registration)


def main(settings: HostSettings) -> None:
    """Publish the topics of one publisher; files in the run folder give the start signals."""
    scenario = read_scenario(settings.scenario)
    publisher = next(p for p in scenario.publishers if p.id == settings.name)
    own_topics = {publication.topic for publication in publisher.publications}
    topics = {topic.name: topic for topic in scenario.topics if topic.name in own_topics}
    registration = PublisherRegistration(publisher=publisher, topics=tuple(topics.values()))
    # The registration is stored even if its configuration is not active yet; the experiment
    # waits for that before the traffic starts.
    with suppress(NotActivated):
        asyncio.run(_register(settings.service, registration))
    # Each publisher has its own random stream, so its events do not depend on other publishers.
    number = [p.id for p in scenario.publishers].index(settings.name)
    generator = np.random.default_rng([settings.seed, number])
    times, indexes = publication_times(publisher, scenario.timeline, settings.seconds, generator)
    run = Path(settings.run_folder)
    with Publisher(
        settings.broker, settings.broker_port, id=settings.name, version=settings.mqtt_version
    ) as client:
        (run / f"{settings.name}.ready").touch()
        _wait_for(run / "calibrate")
        if settings.probes:
            _probe(client, scenario, publisher)
        (run / f"{settings.name}.calibrated").touch()
        _wait_for(run / "go")
        names = [publication.topic for publication in publisher.publications]
        payloads = [_payloads(scenario, topics[name], generator) for name in names]
        start = float((run / "go").read_text())
        sent: list[tuple[str, str, float]] = []
        for offset, index in zip(times.tolist(), indexes.tolist(), strict=True):
            wait = start + offset - time.time()
            if wait > 0:
                time.sleep(wait)
            sizes = payloads[index]
            at = time.time()
            event = client.publish(names[index], sizes[len(sent) % len(sizes)])
            sent.append((event, names[index], at))
        time.sleep(max(start + settings.seconds - time.time(), 0.2))
    write_atomically(run / f"{settings.name}.sent.json", json.dumps(sent))


def _payloads(scenario: Scenario, topic: Topic, generator: np.random.Generator) -> list[bytes]:
    """Return payloads to use in turn: one, or many with exponential sizes on the wire."""
    if topic.size_distribution == "fixed":
        return [b"x" * topic.event_bytes]
    transport = scenario.transport
    headers = wire_bytes(payload_bytes=0, transport=transport, topic=topic.name, stamped=True)
    largest = MAX_UDP_PAYLOAD_BYTES - STAMP_BYTES["udp"] if transport == "udp" else 1 << 20
    payload_sizes = generator.exponential(topic.event_bytes + headers, 997) - headers
    return [b"x" * int(size) for size in np.clip(payload_sizes, 0, largest)]


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
    main(HostSettings.from_argument(sys.argv[1]))

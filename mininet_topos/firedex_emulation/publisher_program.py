"""Runs on a publisher's host: registers, waits for the start, publishes for a while, counts."""

import json
import sys
import time
from pathlib import Path

import numpy as np

from firedex.scenario_file import read_scenario
from firedex.wire import Publisher as PublisherValue
from firedex.wire import PublisherRegistration, Scenario
from firedex_clients import Publisher
from firedex_clients.service_client import ServiceClient

__all__: list[str] = []

POLL_SECONDS = 0.02
HEADERS_AT_MOST_BYTES = 200
PROBES = 100
PROBE_SECONDS = 0.012
PROBING_SECONDS = 3.0
"""Events sent one by one on the idle network, to see what hosts and switch take by themselves."""


def main(
    scenario_path: str, name: str, service: str, broker: str, seconds: str, seed: str, run: str
) -> None:
    """Publish what the scenario says of ``name``; files in ``run`` say when, and when done."""
    scenario = read_scenario(scenario_path)
    publisher = next(p for p in scenario.publishers if p.id == name)
    mine = {publication.topic for publication in publisher.publications}
    topics = tuple(topic for topic in scenario.topics if topic.name in mine)
    ServiceClient(service).register_publisher(
        PublisherRegistration(publisher=publisher, topics=topics)
    )
    when, what = _schedule(publisher, float(seconds), np.random.default_rng(int(seed)))
    payload = {topic.name: b"x" * topic.event_bytes for topic in topics}
    names = [publication.topic for publication in publisher.publications]
    with Publisher(broker, id=name) as client:
        (Path(run) / f"{name}.ready").touch()
        _wait_for(Path(run) / "calibrate")
        pause = _probe_pause(scenario, len(payload[names[0]]))
        for _ in range(min(PROBES, int(PROBING_SECONDS / pause))):
            client.publish(names[0], payload[names[0]])
            time.sleep(pause)
        (Path(run) / f"{name}.calibrated").touch()
        _wait_for(Path(run) / "go")
        start = time.time()
        sent = []
        for after, index in zip(when, what, strict=True):
            wait = start + after - time.time()
            if wait > 0:
                time.sleep(wait)
            at = time.time()
            event = client.publish(names[index], payload[names[index]])
            sent.append([event, names[index], at])
        time.sleep(0.2)
    unfinished = Path(run) / f"{name}.sent.unfinished"
    unfinished.write_text(json.dumps(sent))
    unfinished.rename(Path(run) / f"{name}.sent.json")


def _probe_pause(scenario: Scenario, payload_bytes: int) -> float:
    """Long enough between probes that each finds the slowest link idle again."""
    slowest = min(switch.bandwidth_bits_per_second for switch in scenario.network.switches)
    copies = len(scenario.subscribers)
    batch_seconds = copies * (payload_bytes + HEADERS_AT_MOST_BYTES) * 8 / slowest
    return max(PROBE_SECONDS, 2 * batch_seconds)


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_SECONDS)


def _schedule(
    publisher: PublisherValue, seconds: float, generator: np.random.Generator
) -> tuple[list[float], list[int]]:
    """Times and publications in order: Poisson or periodic, as the scenario says."""
    times: list[np.ndarray] = [np.array([])]
    kinds: list[np.ndarray] = [np.array([], dtype=np.int64)]
    for index, publication in enumerate(publisher.publications):
        rate = publication.rate_per_second
        if rate <= 0:
            continue
        if publication.arrivals == "periodic":
            found = np.arange(generator.uniform(0, 1 / rate), seconds, 1 / rate)
        else:
            found = np.sort(generator.uniform(0, seconds, generator.poisson(rate * seconds)))
        times.append(found)
        kinds.append(np.full(len(found), index))
    when, what = np.concatenate(times), np.concatenate(kinds)
    order = np.argsort(when, kind="stable")
    return when[order].tolist(), what[order].tolist()


if __name__ == "__main__":
    main(*sys.argv[1:])

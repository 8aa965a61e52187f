"""Rounds of random failures of real federators under load: nothing acknowledged is lost."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.support.failing_federation import FailingFederation
from tests.support.real_federation import Collector, connected_client
from tests.support.waiting import wait_until

TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]
EVENTS_PER_ROUND = 10
MAX_UNDER_WAY = 15
BROKER_ROUNDS = 30
Clients = dict[str, paho.Client]


class Load:
    """Numbered events from one site to all others; the broker acknowledges each of them."""

    def __init__(self, client: paho.Client, site: str) -> None:
        self._client, self.topic = client, f"alarm/{site}"
        self.sent: dict[int, list[str]] = {1: [], 2: []}
        self._numbers, self._acknowledged_numbers = set[int](), set[int]()
        client.on_publish = self._acknowledged

    def publish(self, qos: int) -> None:
        """Publish an event, unless the client is disconnected.

        If more events are under way than paho sends at once, paho does not keep their order.
        """
        wait_until(
            lambda: self._under_way() < MAX_UNDER_WAY or not self._client.is_connected(),
            f"{self.topic}: events are acknowledged",
        )
        if self._client.is_connected():
            payload = f"{qos} {len(self.sent[qos])}"
            self._numbers.add(self._client.publish(self.topic, payload, qos).mid)
            self.sent[qos].append(payload)

    def sent_events(self) -> set[str]:
        return {*self.sent[1], *self.sent[2]}

    def _acknowledged(self, _client: paho.Client, _data: object, number: int, *_: object) -> None:
        self._acknowledged_numbers.add(number)

    def _under_way(self) -> int:
        return len(self._numbers - self._acknowledged_numbers)

    def wait_until_acknowledged(self) -> None:
        wait_until(lambda: self._under_way() == 0, f"{self.topic}: all are acknowledged", 120)


def first_copies(payloads: list[str]) -> list[str]:
    """Return the payloads without repetitions, which QoS 1 allows."""
    return list(dict.fromkeys(payloads))


def check_delivery(source: Collector, found: Collector, topic: str, qos: int, path: str) -> None:
    """Wait until all events of one QoS have arrived; they are in order, and those of QoS 2 once.

    ``source`` is a subscriber of the broker at which they were published: a publisher that lost its
    connection may publish an event twice, and the federation delivers what the broker delivers.
    """
    expected = of_qos(source, topic, qos)
    wait_for_all(found, topic, qos, expected, path)
    arrived = of_qos(found, topic, qos)
    if qos == 2:
        assert arrived == expected, path
    else:
        assert first_copies(arrived) == first_copies(expected), path


def wait_for_all(
    collector: Collector, topic: str, qos: int, expected: list[str], path: str
) -> None:
    """Wait until a subscriber has all of these events; name those that it has not."""

    def missing() -> list[str]:
        return sorted(set(expected) - set(of_qos(collector, topic, qos)))

    deadline = time.monotonic() + 60
    while missing() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert missing() == [], path


def of_qos(collector: Collector, topic: str, qos: int) -> list[str]:
    return [entry for entry in collector.payloads(topic) if entry[0] == str(qos)]


Failure = tuple[Callable[[], None], Callable[[], None]]
"""What fails, and what repairs it."""


def random_failure(federation: FailingFederation, generator: random.Random) -> Failure:
    """Choose a federator, a gateway or a link that fails, and how."""
    site = generator.choice(federation.sites)
    one, other = generator.choice(federation.links)
    silently = generator.random() < 0.5
    return generator.choice(
        [
            (lambda: federation.kill(site), lambda: federation.restart(site)),
            (lambda: federation.suspend(site), lambda: federation.resume(site)),
            (lambda: federation.kill_gateway(site), lambda: federation.start_gateway(site)),
            (
                lambda: federation.cut_link(one, other, silently=silently),
                lambda: federation.restore_link(one, other),
            ),
        ]
    )


@contextmanager
def clients_of_gateways(federation: FailingFederation, name: str) -> Iterator[Clients]:
    """Connect a client with a persistent session to the gateway of every site."""
    with ExitStack() as stack:
        yield {
            site: stack.enter_context(
                connected_client(
                    federation.gateway_ports[site],
                    client_id=f"{name}-{site}",
                    clean=False,
                    protocol=paho.MQTTv311,
                )
            )
            for site in federation.sites
        }


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_no_acknowledged_event_is_lost(tmp_path: Path, rounds: int) -> None:
    generator = random.Random(rounds)  # noqa: S311
    with (
        FailingFederation(tmp_path, TRIANGLE, lease_seconds=1.0) as federation,
        clients_of_gateways(federation, "publisher") as publishers,
        clients_of_gateways(federation, "subscriber") as subscribers,
        connected_client(federation.broker_ports["a"]) as observer_a,
        connected_client(federation.broker_ports["c"]) as observer_c,
    ):
        at_source = {"a": Collector(observer_a, "alarm/a"), "c": Collector(observer_c, "alarm/c")}
        received = {site: Collector(each, "alarm/#") for site, each in subscribers.items()}
        for site in federation.sites:
            federation.wait_for_interest(site, "alarm/#")
        loads = {site: Load(publishers[site], site) for site in at_source}
        for _ in range(rounds):
            fail, repair = random_failure(federation, generator)
            for step in range(2 * EVENTS_PER_ROUND):
                if step == EVENTS_PER_ROUND:
                    fail()
                loads[generator.choice("ac")].publish(generator.choice([1, 2]))
            repair()
        for source, load in loads.items():
            load.wait_until_acknowledged()
            for qos in (1, 2):
                wait_for_all(at_source[source], load.topic, qos, load.sent[qos], "at the source")
                for site in set(federation.sites) - {source}:
                    check_delivery(
                        at_source[source], received[site], load.topic, qos, f"{source} to {site}"
                    )
        wait_until(federation.journals_are_empty, "journals are empty", poll_seconds=0.1)


@pytest.mark.long
def test_killed_brokers_lose_no_more_than_a_broker_alone(tmp_path: Path) -> None:
    """A broker that is killed loses what it has not saved, with or without a federation.

    The subscriber at the site of a publisher shows what the broker alone loses. Brokers save their
    state once a second; every round waits for that, so that a kill affects one round.
    """
    generator = random.Random(7)  # noqa: S311
    with (
        FailingFederation(tmp_path, TRIANGLE, lease_seconds=1.0) as federation,
        clients_of_gateways(federation, "publisher") as publishers,
        clients_of_gateways(federation, "subscriber") as subscribers,
    ):
        received = {site: Collector(each, "alarm/#") for site, each in subscribers.items()}
        for site in federation.sites:
            federation.wait_for_interest(site, "alarm/#")
        loads = {site: Load(publishers[site], site) for site in federation.sites}
        for _ in range(BROKER_ROUNDS):
            wait_until_saved(federation)
            killed = generator.choice(federation.sites)
            for step in range(EVENTS_PER_ROUND):
                if step == EVENTS_PER_ROUND // 2:
                    federation.brokers[killed].kill()
                for load in loads.values():
                    load.publish(generator.choice([1, 2]))
            federation.start_broker(killed)
            for client in (*publishers.values(), *subscribers.values()):
                wait_until(client.is_connected, "all clients are connected again")
            for load in loads.values():
                load.wait_until_acknowledged()
        for load in loads.values():
            load.publish(2)
            for collector in received.values():
                wait_until(partial(has_last, load, collector), "the last event")
        lost = {
            (source, site): len(load.sent_events() - set(each.payloads(load.topic)))
            for source, load in loads.items()
            for site, each in received.items()
        }
        print(f"events lost from site to site after {BROKER_ROUNDS} kills of brokers: {lost}")
        alone = max(lost[site, site] for site in federation.sites)
        assert max(lost.values()) <= alone + EVENTS_PER_ROUND


def has_last(load: Load, collector: Collector) -> bool:
    """Return whether the last event of QoS 2 has arrived."""
    return load.sent[2][-1] in collector.payloads(load.topic)


def wait_until_saved(federation: FailingFederation) -> None:
    """Wait until every broker has saved its state."""
    files = [federation.folder / f"{site}-broker" / "mosquitto.db" for site in federation.sites]

    def saved_at() -> list[float]:
        return [path.stat().st_mtime if path.exists() else 0.0 for path in files]

    before = saved_at()
    wait_until(lambda: all(map(float.__gt__, saved_at(), before)), "the brokers have saved")

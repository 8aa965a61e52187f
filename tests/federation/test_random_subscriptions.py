"""Ten thousand random subscriptions of MQTT clients at six sites with real brokers."""

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from firedex.wire.mqtt_names import matches
from tests.support.memory_federation import random_mesh
from tests.support.real_federation import RealFederation, connected_client
from tests.support.waiting import wait_until

CHANGES = 10_000
CLIENTS_PER_SITE = 3
BATCH = 100
"""Acknowledgements are awaited after each batch, so that brokers need no long queues."""
NAMES = "abcdef"
TOPICS = [f"{x}/{y}/{z}" for x in NAMES for y in NAMES for z in NAMES] + ["a/b", "b/c", "c/d"]
WILDCARD_PROBABILITY = 0.04
"""Rare, so that most topics are wanted by few sites and with different QoS."""


class RandomClient:
    """A client that subscribes, unsubscribes and sometimes connects anew, and knows the result."""

    def __init__(self, port: int, client_id: str, generator: random.Random) -> None:
        self._port, self._client_id, self._random = port, client_id, generator
        self.filters: dict[str, int] = {}
        self._stack = ExitStack()
        self._client: paho.Client | None = None
        self._sent = self._acknowledged = 0
        self._connect()

    def _connect(self) -> None:
        self._client = self._stack.enter_context(
            connected_client(self._port, client_id=self._client_id)
        )
        self._client.on_subscribe = self._client.on_unsubscribe = self._count

    def _count(self, *_: Any) -> None:
        self._acknowledged += 1

    def change(self) -> None:
        """Add or remove a random filter; one time in two hundred, begin a new session."""
        assert self._client is not None
        action = self._random.random()
        if action < 0.005:
            self.wait()
            self.close()
            self.filters = {}
            self._connect()
        elif action < 0.45 and self.filters:
            name = self._random.choice(list(self.filters))
            del self.filters[name]
            self._sent += 1
            self._client.unsubscribe(name)
        else:
            name = self._random_filter()
            self.filters[name] = self._random.randint(0, 2)
            self._sent += 1
            self._client.subscribe(name, self.filters[name])

    def _random_filter(self) -> str:
        levels = [self._random.choice(NAMES)]
        for _ in range(2):
            is_wildcard = self._random.random() < WILDCARD_PROBABILITY
            levels.append("+" if is_wildcard else self._random.choice(NAMES))
        if self._random.random() < WILDCARD_PROBABILITY:
            levels[-1] = "#"
        return "/".join(levels)

    def wait(self) -> None:
        """Wait until the broker has acknowledged everything."""
        wait_until(
            lambda: self._acknowledged == self._sent, f"{self._client_id} has all acknowledgements"
        )

    def close(self) -> None:
        self._stack.close()


def highest_qos(filters: dict[str, int], topic: str) -> int | None:
    return max((qos for name, qos in filters.items() if matches(name, topic)), default=None)


@pytest.mark.long
def test_interest_tables_equal_an_oracle_after_ten_thousand_changes(tmp_path: Path) -> None:
    generator = random.Random(19)  # noqa: S311
    with RealFederation(tmp_path, random_mesh(6, seed=4), broker_log=True) as federation:
        clients = {
            site: [
                RandomClient(federation.broker_ports[site], f"{site}-{number}", generator)
                for number in range(CLIENTS_PER_SITE)
            ]
            for site in federation.sites
        }
        everyone = [client for group in clients.values() for client in group]
        try:
            for step in range(CHANGES):
                generator.choice(everyone).change()
                if step % BATCH == 0:
                    for client in everyone:
                        client.wait()
            for client in everyone:
                client.wait()
            expected = {
                site: [
                    max(
                        (qos for client in group
                         if (qos := highest_qos(client.filters, topic)) is not None),
                        default=None,
                    )
                    for topic in TOPICS
                ]
                for site, group in clients.items()
            }  # fmt: skip

            for wanted in expected.values():
                assert set(wanted) == {None, 0, 1, 2}, "the test must tell all cases apart"

            def differences() -> list[tuple[str, str]]:
                """Return pairs of sites: the first does not know what the second wants."""
                found = []
                for here in federation.sites:
                    tables = federation.status(here)["interest"]["remote"]
                    found += [
                        (here, site)
                        for site in federation.sites
                        if site != here
                        and [highest_qos(tables.get(site, {}), t) for t in TOPICS] != expected[site]
                    ]
                return found

            wait_until(
                lambda: not differences(), "all tables equal the oracle", 120, poll_seconds=1.0
            )
        finally:
            for client in everyone:
                client.close()

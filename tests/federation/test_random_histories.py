"""Random histories of whole federations in memory, compared with what must come out."""

import random

import pytest

from firedex.wire.mqtt_names import matches
from tests.support.memory_federation import MemoryFederation, random_mesh

LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        *((seed, 300) for seed in range(3)),
        *(pytest.param(seed, 300, marks=LONG) for seed in range(3, 20)),
        pytest.param(20, 10_000, marks=LONG),
    ],
)
def test_interest_tables_equal_an_oracle_after_random_changes(seed: int, changes: int) -> None:
    generator = random.Random(seed)  # noqa: S311
    network = MemoryFederation(random_mesh(8, seed), seed=seed)
    wanted: dict[str, dict[str, int]] = {site: {} for site in network.sites}
    levels = ["a", "b", "c", "+"]
    for _ in range(changes):
        site = generator.choice(list(network.sites))
        name = "/".join(generator.choice(levels) for _ in range(generator.randint(1, 3)))
        name += generator.choice(["", "", "/#"])
        if generator.random() < 0.4 and wanted[site]:
            del wanted[site][generator.choice(list(wanted[site]))]
        else:
            wanted[site][name] = generator.randint(0, 2)
        network.node(site).set_local_interest("file", wanted[site])
        network.deliver_some(generator.randint(0, 6))
        if generator.random() < 0.05:
            one, other = sorted(generator.choice(sorted(map(sorted, network.links))))
            if (one, other) in network.under_way:
                network.cut(one, other)
            else:
                network.connect(one, other)
    for one, other in sorted(map(sorted, network.links)):
        network.connect(one, other)
    network.pass_time(3)
    topics = [f"{x}/{y}/{z}" for x in "abc" for y in "abc" for z in "abc"] + ["a", "b/c", "c/a"]
    for here in network.sites:
        for topic in topics:
            expected = {
                site: max(qos for name, qos in filters.items() if matches(name, topic))
                for site, filters in wanted.items()
                if site != here and any(matches(name, topic) for name in filters)
            }
            found = dict(network.node(here).interest.remote.destinations(topic.encode()))
            assert found == expected, (here, topic)


class RandomHistory:
    """Publishes at random sites while sites are killed and links are cut."""

    INTEREST = {"alarm/#": 2}  # noqa: RUF012

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.network = MemoryFederation(random_mesh(6, seed), seed=seed, loss=0.1)
        self.sent: dict[str, list[bytes]] = {site: [] for site in self.network.sites}
        self.killed: set[str] = set()
        for site in self.network.sites:
            self.network.node(site).set_local_interest("file", self.INTEREST)
        self.network.settle()

    def step(self, number: int) -> None:
        site = self.random.choice(list(self.network.sites))
        action = self.random.random()
        if action < 0.7 and site not in self.killed:
            self.publish(site, f"{site} {number}")
        elif action < 0.75 and site not in self.killed and len(self.killed) < 2:
            self.network.kill(site)
            self.killed.add(site)
        elif action < 0.85 and self.killed:
            self.network.restart(self.killed.pop(), self.INTEREST)
        elif action < 0.95:
            self.cut_or_connect()
        self.network.deliver_some(self.random.randint(0, 12))
        self.network.now += 0.05
        for entry in self.network.sites.values():
            if entry.node is not None:
                entry.node.tick()

    def publish(self, site: str, payload: str) -> None:
        self.network.broker(site).client_publishes(f"alarm/{site}", payload, qos=2)
        self.sent[site].append(payload.encode())

    def cut_or_connect(self) -> None:
        one, other = self.random.choice(sorted(map(sorted, self.network.links)))
        if (one, other) in self.network.under_way:
            self.network.cut(one, other)
        elif not {one, other} & self.killed:
            self.network.connect(one, other)

    def repair(self) -> None:
        while self.killed:
            self.network.restart(self.killed.pop(), self.INTEREST)
        for one, other in sorted(map(sorted, self.network.links)):
            self.network.connect(one, other)
        self.network.pass_time(30)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=LONG) for n in range(3, 40))])
def test_no_reliable_event_is_lost_or_repeated_under_random_failures(seed: int) -> None:
    """QoS 2 arrives once and in order, and the journals end empty."""
    history = RandomHistory(seed)
    for number in range(400):
        history.step(number)
    history.repair()
    network = history.network
    for site in network.sites:
        for origin in network.sites:
            if origin != site:
                topic = f"alarm/{origin}".encode()
                found = [p for name, p, _ in network.broker(site).delivered if name == topic]
                assert found == history.sent[origin], (origin, site)
    pending = {site: network.node(site).sender.unacknowledged for site in network.sites}
    assert pending == dict.fromkeys(network.sites, 0)

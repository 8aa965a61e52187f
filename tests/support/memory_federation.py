"""Federators in memory: links are queues, brokers are dictionaries, time is a number.

Frames are delivered one after the other by `MemoryFederation.settle`, in a seeded random order of
the links, so that every test is fast and repeatable.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from firedex.federation.events import Event, Publication
from firedex.federation.frames import FrameSplitter
from firedex.federation.interest import FilterTree, InterestChange
from firedex.federation.journal import MemoryJournal
from firedex.federation.node import FederationNode, NodeLimits

MAX_STEPS = 1_000_000
Delivery = tuple[bytes, bytes, int]


class MemoryBroker:
    """A broker with one subscriber that wants everything, and the federator's subscriptions."""

    def __init__(self) -> None:
        self.is_ready = True
        self.node: FederationNode | None = None
        self.delivered: list[Delivery] = []
        self.retained: dict[bytes, bytes] = {}
        self._filters: FilterTree[int] = FilterTree()

    def set_subscriptions(self, filters: Mapping[str, int], change: InterestChange) -> None:
        for name, qos in change.announce.items():
            if self._filters.get(name) is None:
                self._filters.set(name, qos)
                self._replay(name)
            self._filters.set(name, qos)
        for name in change.withdraw:
            if name not in filters:
                self._filters.remove(name)

    def _replay(self, name: str) -> None:
        found: FilterTree[int] = FilterTree()
        found.set(name, 0)
        for topic, payload in list(self.retained.items()):
            if any(True for _ in found.matching(topic.decode())) and self.node is not None:
                self.node.retained_found(
                    Publication(topic=topic, payload=payload, retain=True), written_meanwhile=True
                )

    def publish(self, event: Event, done: Callable[[bool], None] | None) -> bool:
        if not self.is_ready:
            return False
        if not event.topic.startswith(b"firedex/"):
            self.delivered.append((event.topic, event.payload, event.qos))
            self._keep(event.topic, event.payload, retain=event.retain)
        if done is not None:
            done(True)
        return True

    def _keep(self, topic: bytes, payload: bytes, *, retain: bool) -> None:
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)

    def client_publishes(
        self, topic: str, payload: str, *, qos: int = 0, retain: bool = False
    ) -> None:
        """Publish as a client of this site would; the federator receives it if it subscribed."""
        name, content = topic.encode(), payload.encode()
        self._keep(name, content, retain=retain)
        wanted = max((granted for _, granted in self._filters.matching(topic)), default=None)
        if wanted is not None and self.node is not None:
            self.node.publication_received(
                Publication(topic=name, payload=content, qos=min(qos, wanted), retain=retain),
                lambda: None,
            )


@dataclass
class _Site:
    broker: MemoryBroker
    journal: MemoryJournal
    node: FederationNode | None = None


@dataclass
class _Link:
    """The frames under way from one site to another."""

    frames: deque[bytes] = field(default_factory=deque)


class _Neighbours:
    def __init__(self, network: "MemoryFederation", site: str) -> None:
        self._network, self._site = network, site

    def send(self, neighbour: str, frame: bytes, *, droppable: bool = False) -> bool:
        link = self._network.under_way.get((self._site, neighbour))
        if link is None:
            return False
        if droppable and self._network.drops_next():
            return False
        link.frames.append(frame)
        return True


class MemoryFederation:
    """A federation of nodes; ``links`` are pairs of site names."""

    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        *,
        seed: int = 1,
        limits: NodeLimits | None = None,
        loss: float = 0.0,
    ) -> None:
        self.now = 1000.0
        self.random = random.Random(seed)  # noqa: S311
        self.limits, self.loss = limits, loss
        self.clock_offsets: dict[str, float] = {}
        """How far the clock of a site is ahead, in seconds."""
        self.links = {frozenset(pair) for pair in links}
        self.sites: dict[str, _Site] = {}
        self.under_way: dict[tuple[str, str], _Link] = {}
        self.frames_sent: dict[tuple[str, str], int] = {}
        for name in sorted({site for pair in self.links for site in pair}):
            self.sites[name] = _Site(MemoryBroker(), MemoryJournal())
            self.start(name)
        for one, other in sorted(tuple(sorted(pair)) for pair in self.links):
            self.connect(one, other)
        self.settle()

    def drops_next(self) -> bool:
        """Return whether the next droppable frame is dropped."""
        return self.random.random() < self.loss

    # -- sites and links ---------------------------------------------------------------------------

    def node(self, site: str) -> FederationNode:
        node = self.sites[site].node
        assert node is not None
        return node

    def broker(self, site: str) -> MemoryBroker:
        return self.sites[site].broker

    def start(self, name: str) -> None:
        """Start the federator of a site with what its journal holds."""
        site = self.sites[name]
        site.node = FederationNode(
            name,
            neighbours=_Neighbours(self, name),
            broker=site.broker,
            journal=site.journal,
            monotonic=lambda: self.now,
            wall=lambda: self.now + self.clock_offsets.get(name, 0.0),
            limits=self.limits,
        )
        site.broker.node = site.node
        site.broker._filters = FilterTree()
        for filter_name, qos in site.node.interest.subscriptions.items():
            site.broker._filters.set(filter_name, qos)

    def kill(self, name: str) -> None:
        """End the federator of a site; its frames under way are lost."""
        for pair in [pair for pair in self.links if name in pair]:
            one, other = sorted(pair)
            self._cut(one, other, silent_at=name)
        self.sites[name].node = self.sites[name].broker.node = None

    def restart(self, name: str, interest: Mapping[str, int] | None = None) -> None:
        """Start a killed federator again, and connect it."""
        self.now += 1.0
        self.start(name)
        if interest is not None:
            self.node(name).set_local_interest("file", interest)
        for pair in self.links:
            if name in pair:
                one, other = sorted(pair)
                if self.sites[one].node is not None and self.sites[other].node is not None:
                    self.connect(one, other)

    def connect(self, one: str, other: str) -> None:
        """Bring a link up."""
        if (one, other) not in self.under_way:
            self.under_way[one, other], self.under_way[other, one] = _Link(), _Link()
            self.node(one).link_up(other)
            self.node(other).link_up(one)

    def cut(self, one: str, other: str) -> None:
        """Take a link down; frames under way are lost."""
        self._cut(*sorted((one, other)))

    def _cut(self, one: str, other: str, silent_at: str | None = None) -> None:
        if self.under_way.pop((one, other), None) is None:
            return
        self.under_way.pop((other, one))
        for site, neighbour in ((one, other), (other, one)):
            node = self.sites[site].node
            if site != silent_at and node is not None:
                node.link_down(neighbour)

    # -- time --------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Deliver frames until none is under way."""
        for _ in range(MAX_STEPS):
            busy = [pair for pair, link in self.under_way.items() if link.frames]
            if not busy:
                return
            self._deliver(self.random.choice(busy))
        raise AssertionError("frames circulate for ever")

    def deliver_some(self, count: int) -> None:
        """Deliver a few frames, so that a failure can happen while others are under way."""
        for _ in range(count):
            busy = [pair for pair, link in self.under_way.items() if link.frames]
            if busy:
                self._deliver(self.random.choice(busy))

    def _deliver(self, pair: tuple[str, str]) -> None:
        frame = self.under_way[pair].frames.popleft()
        self.frames_sent[pair] = self.frames_sent.get(pair, 0) + 1
        for kind, body in FrameSplitter(1 << 30).feed(frame):
            node = self.sites[pair[1]].node
            if node is not None:
                node.frame_received(pair[0], kind, body)

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass, with ticks and heartbeats."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            for name, site in self.sites.items():
                if site.node is not None:
                    site.node.tick()
                    for source, target in list(self.under_way):
                        other = self.sites[target].node
                        if source == name and other is not None:
                            other.membership.receive_digest(name, site.node.membership.digest())
            self.settle()

    # -- what tests look at ------------------------------------------------------------------------

    def want(self, site: str, *filters: str, qos: int = 2) -> None:
        """Set what the clients of a site want."""
        self.node(site).set_local_interest("file", dict.fromkeys(filters, qos))

    def delivered(self, site: str) -> list[bytes]:
        """Return the payloads that were delivered at a site."""
        return [payload for _, payload, _ in self.broker(site).delivered]


def ring(count: int) -> list[tuple[str, str]]:
    """Return the links of a ring of ``count`` sites, named s0, s1 and so on."""
    return [(f"s{i}", f"s{(i + 1) % count}") for i in range(count)]


def full_mesh(count: int) -> list[tuple[str, str]]:
    """Return the links of a full mesh of sites."""
    return [(f"s{i}", f"s{j}") for i in range(count) for j in range(i)]


def random_mesh(count: int, seed: int) -> list[tuple[str, str]]:
    """Return the links of a connected random mesh with about two links for each site."""
    generator = random.Random(seed)  # noqa: S311
    links = {(f"s{generator.randrange(i)}", f"s{i}") for i in range(1, count)}
    while len(links) < 2 * count:
        one, other = sorted(generator.sample(range(count), 2))
        links.add((f"s{one}", f"s{other}"))
    return sorted(links)

"""The flows of the active configuration: lookup by endpoint, drop rates and event counts."""

from dataclasses import dataclass, field

from firedex.wire import Configuration, Flow
from firedex.wire.service_api import MAX_TOPICS_PER_REPORT
from firedex.wire.workload import Transport

__all__ = [
    "MAX_QOS",
    "EventTotals",
    "FlowCounts",
    "FlowTable",
    "ManagedFlow",
    "TopicCounts",
    "max_qos",
]

Endpoint = tuple[str, str, int]
MAX_QOS = 2


# -- counts ----------------------------------------------------------------------------------------


class TopicCounts:
    """Events of one topic within a report window; plain attributes because it is updated often."""

    __slots__ = ("delivered", "offered", "payload_bytes")

    def __init__(self) -> None:
        self.offered = 0
        self.delivered = 0
        self.payload_bytes = 0


@dataclass(slots=True)
class EventTotals:
    """Events since the start: offered, delivered, and lost by cause."""

    offered: int = 0
    delivered: int = 0
    dropped: int = 0
    shed: int = 0
    refused: int = 0

    def add(self, other: "EventTotals") -> None:
        """Add the counts of ``other``."""
        self.offered += other.offered
        self.delivered += other.delivered
        self.dropped += other.dropped
        self.shed += other.shed
        self.refused += other.refused


class FlowCounts:
    """The counts of one flow: totals since the start, and by topic since the last report.

    A report has a limited number of topics; events of further topics count in the totals only.
    """

    def __init__(self) -> None:
        self.totals = EventTotals()
        self._topics: dict[bytes, TopicCounts] = {}
        self._overflow = TopicCounts()

    def topic(self, name: bytes) -> TopicCounts:
        """Return the counts of a topic in the current window."""
        counts = self._topics.get(name)
        if counts is None:
            if len(self._topics) >= MAX_TOPICS_PER_REPORT:
                return self._overflow
            counts = self._topics[name] = TopicCounts()
        return counts

    def take_counts(self) -> dict[bytes, TopicCounts]:
        """Return the counts by topic, and start the next window."""
        taken, self._topics = self._topics, {}
        return taken


# -- flows -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ManagedFlow:
    """A flow of the configuration; drop rate and QoS may change while connections are open."""

    subscriber: str
    number: int
    drop_rate: float
    qos: int = 0
    counts: FlowCounts = field(default_factory=FlowCounts)


class FlowTable:
    """The flows of the active configuration; connections without a flow are unmanaged.

    ``generation`` increases with each `apply`, so that connections know when to look up their flow
    again. ``retired`` has the totals of flows that no longer exist.
    """

    def __init__(self) -> None:
        self._by_endpoint: dict[Endpoint, ManagedFlow] = {}
        self._by_name: dict[tuple[str, int], ManagedFlow] = {}
        self.retired = EventTotals()
        self.version = 0
        self.generation = 0

    def apply(self, configuration: Configuration) -> None:
        """Replace all flows; open connections use the new drop rates at once."""
        by_name: dict[tuple[str, int], ManagedFlow] = {}
        by_endpoint: dict[Endpoint, ManagedFlow] = {}
        for flow in configuration.flows:
            if flow.endpoints is None:
                continue
            name = (flow.subscriber, flow.flow)
            managed = self._by_name.get(name) or ManagedFlow(*name, 0.0)
            managed.drop_rate, managed.qos = _gateway_drop_rate(flow), flow.qos
            by_name[name] = managed
            for port in flow.endpoints.subscriber_ports:
                address = str(flow.endpoints.subscriber_address)
                by_endpoint[flow.endpoints.transport, address, port] = managed
        for name, removed in self._by_name.items():
            if name not in by_name:
                self.retired.add(removed.counts.totals)
        self._by_name, self._by_endpoint = by_name, by_endpoint
        self.version = configuration.version
        self.generation += 1

    def flows(self) -> tuple[ManagedFlow, ...]:
        """Return all flows."""
        return tuple(self._by_name.values())

    def lookup(self, transport: Transport, address: str, port: int) -> ManagedFlow | None:
        """Return the flow of a connection, or None if it is unmanaged."""
        return self._by_endpoint.get((transport, address, port))


def max_qos(flow: ManagedFlow | None) -> int:
    """Return the highest QoS that a connection may subscribe with: the planned one, if managed."""
    return MAX_QOS if flow is None else flow.qos


def _gateway_drop_rate(flow: Flow) -> float:
    return flow.drop_rate if flow.enforced_at == "gateway" else 0.0

"""Which flow a connection belongs to, by its endpoints, and what is counted of each flow."""

from dataclasses import dataclass, field

from firedex.gateway.event_counts import FlowCounts, Totals
from firedex.wire import Configuration, Flow
from firedex.wire.workload import Transport

__all__ = ["HIGHEST_QOS", "FlowTable", "ManagedFlow", "highest_qos"]

Endpoint = tuple[str, str, int]
HIGHEST_QOS = 2
"""That MQTT has."""


@dataclass(slots=True, eq=False)
class ManagedFlow:
    """A flow that the service knows; drop rate and QoS change while connections are open."""

    subscriber: str
    number: int
    drop_rate: float
    qos: int = 0
    counts: FlowCounts = field(default_factory=FlowCounts)


class FlowTable:
    """The flows of the configuration in force; unknown connections are unmanaged."""

    def __init__(self) -> None:
        self._by_endpoint: dict[Endpoint, ManagedFlow] = {}
        self._by_name: dict[tuple[str, int], ManagedFlow] = {}
        self.retired = Totals()
        self.version = 0
        self.generation = 0

    def follow(self, configuration: Configuration) -> None:
        """Take a configuration over; open connections feel it at once."""
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
        for name, gone in self._by_name.items():
            if name not in by_name:
                self.retired.add(gone.counts.totals)
        self._by_name, self._by_endpoint = by_name, by_endpoint
        self.version = configuration.version
        self.generation += 1

    def flows(self) -> tuple[ManagedFlow, ...]:
        """Every flow that is known now."""
        return tuple(self._by_name.values())

    def lookup(self, transport: Transport, address: str, port: int) -> ManagedFlow | None:
        """The flow of a connection; None if it is unmanaged."""
        return self._by_endpoint.get((transport, address, port))

    def drop_rate(self, address: str, port: int, transport: Transport = "tcp") -> float:
        """Ω of the connection's flow where the gateway enforces it, else 0."""
        flow = self.lookup(transport, address, port)
        return 0.0 if flow is None else flow.drop_rate


def highest_qos(flow: ManagedFlow | None) -> int:
    """At which a connection may subscribe: as planned; whatever it likes where it is unmanaged."""
    return HIGHEST_QOS if flow is None else flow.qos


def _gateway_drop_rate(flow: Flow) -> float:
    return flow.drop_rate if flow.enforced_at == "gateway" else 0.0

"""Which flow a connection belongs to, by its endpoints, and the flow's drop rate."""

from firedex.wire import Configuration, Flow

__all__ = ["FlowTable"]


class FlowTable:
    """The flows of the configuration in force; unknown connections are unmanaged."""

    def __init__(self) -> None:
        self._flows: dict[tuple[str, int], Flow] = {}
        self.version = 0

    def follow(self, configuration: Configuration) -> None:
        """Take a configuration over; open connections feel it at once."""
        self._flows = {
            (str(flow.endpoints.subscriber_address), port): flow
            for flow in configuration.flows
            if flow.endpoints is not None
            for port in flow.endpoints.subscriber_ports
        }
        self.version = configuration.version

    def drop_rate(self, address: str, port: int) -> float:
        """Ω of the connection's flow where the gateway enforces it, else 0."""
        flow = self._flows.get((address, port))
        return flow.drop_rate if flow is not None and flow.enforced_at == "gateway" else 0.0

"""Which class a flow has, by its endpoints: what a switch is told by rules."""

from firedex.wire import Configuration
from firedex.wire.workload import Transport

__all__ = ["FlowClasses"]

LOWEST_CLASS = 63


class FlowClasses:
    """The classes of the configuration in force; what is not in it has the lowest."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, str, int], int] = {}

    def follow(self, configuration: Configuration) -> None:
        """From now on."""
        self._classes = {
            (ends.transport, str(ends.subscriber_address), port): flow.priority
            for flow in configuration.flows
            if (ends := flow.endpoints) is not None
            for port in ends.subscriber_ports
        }

    def knows(self, transport: Transport, address: str, port: int) -> bool:
        """Whether it is in the configuration."""
        return (transport, address, port) in self._classes

    def class_of(self, transport: Transport, address: str, port: int) -> int:
        """0 is the highest."""
        return self._classes.get((transport, address, port), LOWEST_CLASS)

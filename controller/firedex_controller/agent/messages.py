"""The responses of the switch agent. Its requests carry ``firedex.wire.ShapedPort``."""

from typing import Annotated, Literal

from pydantic import Field

from firedex.wire import QueueCounters, ShapedPort
from firedex.wire.values import Count, Flag, NonNegative, PositiveCount, value

__all__ = ["AgentHealth", "BridgeReport", "PortChange", "PortProblem", "PortReport"]

PortName = Annotated[str, Field(strict=True, min_length=1, max_length=64)]


@value
class BridgeReport:
    """A bridge of the switch host; ``priorities`` is the maximum number of classes of a port."""

    name: PortName
    datapath_id: Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{16}$")]
    datapath: Literal["userspace", "kernel"]
    ports: tuple[PortName, ...] = ()
    priorities: PositiveCount
    version: str


@value
class PortChange:
    """The result of a request; ``changed`` is false if the port already had the queues."""

    port: PortName
    changed: Flag
    seconds: NonNegative


@value
class PortReport:
    """The desired queues of a port, and the counters of its classes, highest class first."""

    shaped: ShapedPort | None
    queues: tuple[QueueCounters, ...] = ()


@value
class PortProblem:
    """A port that does not have its desired queues; the agent retries."""

    port: PortName
    detail: str


@value
class AgentHealth:
    """Whether every port has its desired queues.

    ``send_buffer_bytes`` is the size of Open vSwitch's send buffer, which all queues share (None if
    it has sent nothing yet, or does not send through a socket); ``send_buffer_needed_bytes`` is
    what full queues need. Both include the kernel's overhead for a packet.
    """

    healthy: Flag
    shaped_ports: Count
    send_buffer_bytes: Count | None
    send_buffer_needed_bytes: Count
    problems: tuple[str, ...] = ()
    port_problems: tuple[PortProblem, ...] = ()

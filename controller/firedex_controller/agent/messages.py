"""What the switch agent answers. What it is asked is ``firedex.wire.ShapedPort``."""

from typing import Annotated, Literal

from pydantic import Field

from firedex.wire import QueueCounters, ShapedPort
from firedex.wire.values import Count, Flag, NonNegative, PositiveCount, value

__all__ = ["AgentHealth", "BridgeReport", "PortChange", "PortReport", "PortTrouble"]

PortName = Annotated[str, Field(strict=True, min_length=1, max_length=64)]


@value
class BridgeReport:
    """A bridge of the switch host. ``priorities``: how many classes a port of it may have."""

    name: PortName
    datapath_id: Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{16}$")]
    datapath: Literal["userspace", "kernel"]
    ports: tuple[PortName, ...] = ()
    priorities: PositiveCount
    version: str


@value
class PortChange:
    """What became of a request. An unchanged port was not touched."""

    port: PortName
    changed: Flag
    seconds: NonNegative


@value
class PortReport:
    """How a port is meant to be shaped, and its classes' counters, highest class first."""

    shaped: ShapedPort | None
    queues: tuple[QueueCounters, ...] = ()


@value
class PortTrouble:
    """A port that is not as it is meant to be; the agent goes on trying."""

    port: PortName
    detail: str


@value
class AgentHealth:
    """Whether every port is as it is meant to be. Byte counts are the kernel's, overhead included.

    ``send_buffer_bytes`` is what Open vSwitch may have queued on all ports together (none: it has
    sent nothing yet, or does not send through a socket), ``send_buffer_needed_bytes`` what full
    queues take.
    """

    healthy: Flag
    shaped_ports: Count
    send_buffer_bytes: Count | None
    send_buffer_needed_bytes: Count
    problems: tuple[str, ...] = ()
    troubled_ports: tuple[PortTrouble, ...] = ()

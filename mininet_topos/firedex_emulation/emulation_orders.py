"""What is to be run, wherever that is. Needs nothing of Mininet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firedex.wire import Scenario, Transport
from firedex_emulation.ways import as_run

__all__ = ["EMBEDDED_LABEL", "EmulationOrders"]

EMBEDDED_LABEL = "embedded parts on loopback: no real switch was involved"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationOrders:
    """A scenario in several ways, with the same traffic each time.

    ``embedded``: without real switches, by parts on loopback.
    """

    scenario: Scenario
    ways: Sequence[str]
    framework: str
    seconds: float
    seed: int
    folder: Path | None = None
    topology: str | None = None
    transport: Transport | None = None
    embedded: bool = False

    @property
    def where(self) -> str:
        """What it runs on, in words."""
        if self.embedded:
            return f"{EMBEDDED_LABEL} (aMQTT, a userspace link)"
        return "Open vSwitch (user space) in Mininet, with Mosquitto"

    def as_run(self, way: str) -> Scenario:
        """The scenario as it is run in one of the ways."""
        return as_run(self.scenario, way, self.transport, plain_links=self.embedded)

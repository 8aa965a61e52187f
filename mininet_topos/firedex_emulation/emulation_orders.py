"""What is to be run, wherever that is. Needs nothing of Mininet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        """The scenario as it is run in one of the ways, without what its timeline has later."""
        within = tuple(e for e in self.scenario.timeline if e.at_seconds < self.seconds)
        scenario = replace(self.scenario, timeline=within)
        return as_run(scenario, way, self.transport, plain_links=self.embedded)

    def not_reached(self) -> tuple[str, ...]:
        """What of the timeline is later than the run is long, in words."""
        return tuple(
            f"not reached: {event.kind} at {event.at_seconds:g} s"
            for event in self.scenario.timeline
            if event.at_seconds >= self.seconds
        )

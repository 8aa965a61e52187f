"""The settings of an emulation: one scenario, run in several modes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from firedex.wire import Scenario, Transport
from firedex_emulation.testbed.modes import scenario_for_mode

__all__ = ["EMBEDDED_LABEL", "EmulationSettings"]

EMBEDDED_LABEL = "embedded mode on loopback, without real switches"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationSettings:
    """A scenario to run in several modes, with the same traffic in each.

    ``embedded``: run on loopback, without real switches.
    """

    scenario: Scenario
    modes: Sequence[str]
    framework: str
    seconds: float
    seed: int
    folder: Path | None = None
    topology: str | None = None
    transport: Transport | None = None
    embedded: bool = False

    @property
    def where(self) -> str:
        """Description of the testbed for the report."""
        if self.embedded:
            return f"{EMBEDDED_LABEL} (aMQTT, a userspace link)"
        return "Open vSwitch (user space) in Mininet, with Mosquitto"

    def scenario_for_mode(self, mode: str) -> Scenario:
        """Return the scenario for one mode, without timeline events after the end of the run."""
        within = tuple(e for e in self.scenario.timeline if e.at_seconds < self.seconds)
        scenario = replace(self.scenario, timeline=within)
        return scenario_for_mode(scenario, mode, self.transport, plain_links=self.embedded)

    def skipped_events(self) -> tuple[str, ...]:
        """Return a note for each timeline event after the end of the run."""
        return tuple(
            f"timeline event after the end of the run: {event.kind} at {event.at_seconds:g} s"
            for event in self.scenario.timeline
            if event.at_seconds >= self.seconds
        )

"""Where a run takes place: what the choreography asks of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from firedex.service_access import ServiceAccess
from firedex.wire import Scenario
from firedex_emulation.party_orders import PartyOrders

__all__ = ["PATIENCE_SECONDS", "Performance", "Stage"]

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """What is run, and how."""

    scenario: Scenario
    way: str
    seconds: float
    seed: int
    records: Path


class Stage(Protocol):
    """Where a run takes place."""

    @property
    def run_folder(self) -> Path:
        """Where cues and parties' files are."""

    @property
    def service(self) -> ServiceAccess:
        """The service, as reached from here."""

    def orders(self, performance: Performance, name: str) -> PartyOrders:
        """What a party must know."""

    def start_party(self, name: str, command: Sequence[str]) -> None:
        """Start a program on a party's host."""

    def wait_for_file(self, name: str, suffix: str, seconds: float = PATIENCE_SECONDS) -> Path:
        """Wait for a party's file; raise if the party, or a part, fails."""

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Cut a link, or restore it."""

    def kill(self, part: str, down_seconds: float) -> None:
        """Kill a part at once, and have it started again after a while, beside what goes on."""

    def wait_for_parts(self) -> None:
        """Wait until all that were killed run again; raise if one does not."""

    def link_facts(self) -> Mapping[str, Sequence[str]]:
        """The queues as they are set up, read back: by switch, a line for each class."""

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the stage itself."""

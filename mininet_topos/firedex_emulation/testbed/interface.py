"""The interface between an experiment and a testbed, and the settings of both.

The program on each emulated host imports this module, so it must load quickly: it imports neither
Mininet nor the planner.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from firedex.transport.http import HttpClient
from firedex.wire import Scenario

__all__ = [
    "TIMEOUT_SECONDS",
    "ExperimentSettings",
    "HostSettings",
    "Testbed",
]

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """Settings of one experiment: one scenario in one mode."""

    scenario: Scenario
    mode: str
    seconds: float
    seed: int
    records: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Settings of the program on one publisher's or subscriber's host.

    ``probes``: send probe events before the traffic. ``source_address`` and ``gateway`` are set
    where the testbed translates addresses.
    """

    scenario: str
    name: str
    run_folder: str
    service: str
    broker: str
    mode: str
    seconds: float
    seed: int
    records: str = ""
    address: str = "127.0.0.1"
    probes: bool = False
    broker_port: int = 1883
    mqtt_version: str = "5"
    source_address: str | None = None
    gateway: str | None = None

    def to_argument(self) -> str:
        """Return the settings as one command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "HostSettings":
        """Return the settings that ``to_argument`` encoded."""
        return cls(**json.loads(text))


class Testbed(Protocol):
    """Where an experiment runs: a site with all its parts, and hosts for programs."""

    @property
    def run_folder(self) -> Path:
        """Folder of signal files and of the files of the hosts' programs."""

    @property
    def service(self) -> HttpClient:
        """Client of the configuration service."""

    def host_settings(self, experiment: ExperimentSettings, name: str) -> HostSettings:
        """Return the settings of the program on the host of ``name``."""

    def start_program(self, name: str, command: Sequence[str]) -> None:
        """Start a program on the host of publisher or subscriber ``name``."""

    def wait_for_file(self, name: str, suffix: str, seconds: float = TIMEOUT_SECONDS) -> Path:
        """Wait for the file ``name.suffix``; raise PartFailed if a process fails."""

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Disconnect the link between two switches, or restore it."""

    def kill(self, part: str, down_seconds: float) -> None:
        """Kill a part and start it again after ``down_seconds``, without waiting for it."""

    def wait_for_parts(self) -> None:
        """Wait until all killed parts run again; raise if one does not."""

    def link_facts(self) -> Mapping[str, Sequence[str]]:
        """Return the queues as read back from each switch, one line for each class."""

    def notes(self) -> tuple[str, ...]:
        """Return the problems of the testbed itself."""

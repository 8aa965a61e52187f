"""The failure cases of the thesis on MQTT federation, measured with real brokers and federators.

All sites are on loopback, so no root is needed. Links have no delay there: with delays, the time to
spread a change grows by the propagation along the path, a few milliseconds for each hop.
"""

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from firedex.lab.benchmarks.result import machine
from firedex.lab.healing.failures import choose_failure
from firedex.lab.healing.rounds import (
    LEASE_SECONDS,
    ColdStart,
    FailureKind,
    HealingRound,
    MergeRound,
    Sites,
    failure_round,
    merge_round,
    running_sites,
)
from firedex.lab.reproduction.thesis import CASES, FailureCase
from firedex_emulation.site_networks.catalog import SITE_NETWORKS

__all__ = [
    "KINDS",
    "CaseResult",
    "FederationResult",
    "NetworkResult",
    "ReproductionSettings",
    "reproduce_federation",
]

KINDS: tuple[FailureKind, ...] = ("killed", "stopped")
PUBLISHERS = 3
IDLE_SECONDS = 3.0
MOST_SITES_WITH_SHORT_LEASE = 25
LONG_LEASE_SECONDS = 2.0
"""Fifty federators that start on two cores are late for longer than 0.5 s. With the short lease
they would consider each other lost, and the resulting work would keep them late."""
Progress = Callable[[str, int, int], None]
"""Called with what is measured, the number of steps done and that of all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionSettings:
    """What to measure; ``failed`` replaces the cases of the thesis by one number of sites."""

    sites: tuple[int, ...] = (6, 15, 25)
    rounds: int = 3
    failed: int | None = None
    seed: int = 0

    def cases(self, sites: int) -> tuple[FailureCase, ...]:
        """Return the cases of a network."""
        known = tuple(case for case in CASES if case.sites == sites)
        if self.failed is None:
            return known
        matching = tuple(case for case in known if case.failed == self.failed)
        return matching or (FailureCase(sites=sites, failed=self.failed),)

    @staticmethod
    def lease_seconds(sites: int) -> float:
        """Return the lease of the federators of a network."""
        return LEASE_SECONDS if sites <= MOST_SITES_WITH_SHORT_LEASE else LONG_LEASE_SECONDS

    @property
    def steps(self) -> int:
        """The number of measurements: a start, the rounds and the partitions of each network."""
        rounds = (len(KINDS) * len(self.cases(sites)) + 1 for sites in self.sites)
        return sum(1 + self.rounds * number for number in rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The rounds of one case."""

    case: FailureCase
    rounds: tuple[HealingRound, ...]

    def gaps(self, kind: FailureKind) -> list[float]:
        """Return the longest gap of each round with this kind of failure, in seconds."""
        return [found.gap_seconds for found in self.rounds if found.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkResult:
    """All measurements in one network."""

    sites: int
    cold_start: ColdStart
    cases: tuple[CaseResult, ...]
    merges: tuple[MergeRound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationResult:
    """The whole reproduction, with the machine and its load average when it began."""

    settings: ReproductionSettings
    machine: dict[str, str]
    load_average: float
    networks: tuple[NetworkResult, ...]


def reproduce_federation(
    settings: ReproductionSettings, progress: Progress = lambda _what, _done, _total: None
) -> FederationResult:
    """Measure all networks, one after the other; every process ends before this returns."""
    load = os.getloadavg()[0]
    done = 0

    def report(what: str) -> None:
        nonlocal done
        progress(what, done, settings.steps)
        done += 1

    networks = tuple(_measure(sites, settings, report) for sites in settings.sites)
    progress("finished", settings.steps, settings.steps)
    return FederationResult(
        settings=settings, machine=machine(), load_average=load, networks=networks
    )


def _measure(
    sites: int, settings: ReproductionSettings, report: Callable[[str], None]
) -> NetworkResult:
    report(f"{sites} sites: cold start")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # Mosquitto gives up root and reads its file again
        return _measure_in(folder, sites, settings, report)


def _measure_in(
    folder: Path, sites: int, settings: ReproductionSettings, report: Callable[[str], None]
) -> NetworkResult:
    network = SITE_NETWORKS[sites]
    lease = settings.lease_seconds(sites)
    with running_sites(
        folder / "sites", network, idle_seconds=IDLE_SECONDS, lease_seconds=lease
    ) as running:
        generator = random.Random(f"{settings.seed} {sites}")  # noqa: S311
        cases = tuple(
            CaseResult(
                case=case, rounds=tuple(_rounds(running, case, settings.rounds, generator, report))
            )
            for case in settings.cases(sites)
        )
        merges = []
        for number in range(settings.rounds):
            report(f"{sites} sites: partition {number + 1} of {settings.rounds}")
            merges.append(merge_round(running, number))
    return NetworkResult(
        sites=sites, cold_start=running.cold_start, cases=cases, merges=tuple(merges)
    )


def _rounds(
    running: Sites,
    case: FailureCase,
    rounds: int,
    generator: random.Random,
    report: Callable[[str], None],
) -> Sequence[HealingRound]:
    found = []
    for kind in KINDS:
        for number in range(rounds):
            report(f"{case.name} {kind}, round {number + 1} of {rounds}")
            choice = choose_failure(
                running.network, generator, failed=case.failed, publishers=PUBLISHERS
            )
            found.append(failure_round(running, choice, kind))
    return found

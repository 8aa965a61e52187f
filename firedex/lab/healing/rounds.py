"""Rounds of failures in a running federation, under traffic.

- **Cold start**: from the start of all processes until every site has received an event of every
  other site.
- **Failed sites**: federators are killed (SIGKILL: their connections are closed) or stopped
  (SIGSTOP: they are silent). The result is the longest time without an event from any publisher at
  any site that still runs.
- **Partition and merge**: the federators of the network's ``separators`` are stopped, so the other
  sites form two parts, and continued; or the links between two parts are cut and restored. The
  result is the time from then until events cross between the parts in both directions, and until
  the retained messages are the same at all sites. During the partition both parts write and delete
  retained messages, also of the same topics.

Brokers and clients are never disturbed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Literal

from firedex.lab.benchmarks.federation_probes import longest_gap
from firedex.lab.benchmarks.federation_sites import RunningFederation
from firedex.lab.healing.failures import FailureChoice
from firedex.lab.healing.traffic import INTEREST, RetainedReaders, Traffic
from firedex_emulation.site_networks.hosts import SiteHosts
from firedex_emulation.site_networks.network import SiteNetwork

__all__ = [
    "LEASE_SECONDS",
    "ColdStart",
    "FailureKind",
    "HealingRound",
    "MergeRound",
    "Sites",
    "failure_round",
    "merge_round",
    "running_sites",
]

LEASE_SECONDS = 0.5
INTERVAL_SECONDS = 0.03
"""Between two events of a publisher; the resolution of a gap."""
STEADY_SECONDS = 0.6
HEALING_SECONDS = 2.0
"""Shortest observation after a failure, so that a second gap is seen as well."""
RECENT_SECONDS = 5 * INTERVAL_SECONDS
"""A site is served while its last event is not older."""
PATIENCE_SECONDS = 10.0
PATIENT_RECENT_SECONDS = 2.0
"""Used after ``PATIENCE_SECONDS``: on an overloaded machine events are always late."""
PARTITION_LEASES = 3
"""Length of a partition in leases."""
AT_MOST_SECONDS = 60.0
PROBES_PER_SECOND = 100.0
"""Events published in each second, at all sites together, until all pairs of sites are served."""

FailureKind = Literal["killed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """Times from the start of all processes, in seconds, and what idle federators use.

    ``ready_seconds``: until the last federator is ready. ``served_seconds``: until every site has
    received an event of every other site. ``idle_cores``: CPU time of all federators in a second
    without events, ``memory_bytes``: their memory.
    """

    ready_seconds: float
    served_seconds: float
    idle_cores: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingRound:
    """One failure: the longest gap after it, and the longest in the half second before it."""

    kind: FailureKind
    failed: tuple[str, ...]
    gap_seconds: float
    steady_gap_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRound:
    """One partition, with times since its end.

    ``crossing_seconds``: until all sites receive the events of both parts. ``retained_seconds``:
    until all brokers have the same retained messages, those that were written last.
    """

    crossing_seconds: float
    retained_seconds: float


@dataclass(frozen=True, slots=True)
class Sites:
    """A running federation with its traffic."""

    network: SiteNetwork
    federation: RunningFederation
    traffic: Traffic
    lease_seconds: float
    cold_start: ColdStart


@contextmanager
def running_sites(
    folder: Path,
    network: SiteNetwork,
    *,
    idle_seconds: float = 0.0,
    lease_seconds: float = LEASE_SECONDS,
    hosts: SiteHosts | None = None,
    certificates: Path | None = None,
) -> Iterator[Sites]:
    """Start a broker and a federator at each site, and wait until all pairs of sites are served."""
    begin = time.monotonic()
    federation = RunningFederation(
        folder,
        [(link.one, link.other) for link in network.links],
        interest=dict.fromkeys(network.sites, INTEREST),
        lease_seconds=lease_seconds,
        certificates=certificates,
        hosts=hosts,
    )
    with federation, Traffic(federation) as traffic:
        ready = time.monotonic() - begin
        wait_until_served(traffic, network.sites)
        served = time.monotonic() - begin
        before = {site: federation.cpu_seconds(site) for site in network.sites}
        idle_begin = time.monotonic()
        time.sleep(idle_seconds)  # the length of the measurement
        elapsed = max(time.monotonic() - idle_begin, 1e-9)
        used = sum(federation.cpu_seconds(site) - before[site] for site in network.sites)
        yield Sites(
            network,
            federation,
            traffic,
            lease_seconds,
            ColdStart(
                ready_seconds=ready,
                served_seconds=served,
                idle_cores=used / elapsed if idle_seconds else 0.0,
                memory_bytes=sum(federation.memory_bytes(site) for site in network.sites),
            ),
        )


def wait_until_served(traffic: Traffic, sites: Sequence[str]) -> None:
    """Publish at all sites until each has received an event of every other, published from now."""
    pairs = list(permutations(sites, 2))
    begin = time.monotonic()
    _publish(
        traffic,
        sites,
        until=lambda _: traffic.arrived_since(pairs, begin),
        what="every site receives events of every other site",
        interval_seconds=len(sites) / PROBES_PER_SECOND,
    )


def failure_round(sites: Sites, choice: FailureChoice, kind: FailureKind) -> HealingRound:
    """Let federators fail under traffic, return the longest gap, and repair them."""
    federation, traffic = sites.federation, sites.traffic
    left = [site for site in sites.network.sites if site not in choice.failed]
    pairs = [(one, other) for one in choice.publishers for other in left if one != other]
    failed_at: list[float] = []
    observed_seconds = STEADY_SECONDS + max(HEALING_SECONDS, 2 * sites.lease_seconds)

    def fail() -> None:
        failed_at.append(time.monotonic())
        if kind == "killed":
            federation.kill_all(choice.failed)
        else:
            for site in choice.failed:
                federation.suspend(site)

    def is_healed(seconds: float) -> bool:
        if seconds < observed_seconds:
            return False
        recent = RECENT_SECONDS if seconds < PATIENCE_SECONDS else PATIENT_RECENT_SECONDS
        return traffic.arrived_since(pairs, time.monotonic() - recent)

    traffic.forget()
    begin = time.monotonic()
    try:
        _publish(
            traffic, choice.publishers, until=is_healed, what="all remaining sites receive events",
            actions=[(STEADY_SECONDS, fail)],
        )  # fmt: skip
        end = time.monotonic()
    finally:
        _repair(federation, choice.failed, kind)
    wait_until_served(traffic, sites.network.sites)
    (moment,) = failed_at
    settled = begin + 0.1  # the first events are on their way
    return HealingRound(
        kind=kind,
        failed=choice.failed,
        gap_seconds=_longest(traffic, pairs, moment, end),
        steady_gap_seconds=_longest(traffic, pairs, settled, moment),
    )


def merge_round(sites: Sites, number: int, *, hosts: SiteHosts | None = None) -> MergeRound:
    """Divide the network, change retained messages in both parts, and merge it again.

    Without ``hosts``, the federators of the network's separators are stopped. With ``hosts``, the
    links between the parts are cut. ``number`` must be different in each round: it is a part of
    the topics.
    """
    network, federation = sites.network, sites.federation
    part, rest, *_ = network.parts(network.separators)
    crossing = [link for link in network.links if len(link.ends & set(part)) == 1]

    def set_connected(connected: bool, /) -> None:
        if hosts is not None:
            for link in crossing:
                hosts.set_link(link.one, link.other, up=connected)
        else:
            for site in network.separators:
                (federation.resume if connected else federation.suspend)(site)

    traffic = sites.traffic
    one, other = part[0], rest[-1]
    publishers = (one, other)
    everywhere = [(p, s) for p in publishers for s in network.sites if p != s]

    def write(*messages: tuple[str, str, str]) -> None:
        for site, name, value in messages:
            traffic.retain(site, f"{number}-{name}", value.encode())

    pause_seconds = PARTITION_LEASES * sites.lease_seconds / 3
    with RetainedReaders(federation) as readers:
        check = _RetainedCheck(readers, f"{number}-")
        write((one, "both", "old"), (one, "deleted", "old"), (one, "deleted-later", "old"))
        before = {"both": "old", "deleted": "old", "deleted-later": "old"}
        what = "the retained messages reach all sites"
        _publish(traffic, publishers, until=lambda _: check.holds(before), what=what)
        set_connected(False)
        try:
            for messages in (
                [(one, "both", "one"), (one, "deleted", ""), (other, "deleted-later", "other")],
                [(other, "both", "other"), (one, "deleted-later", ""), (other, "new", "other")],
                [(one, "new-too", "one")],
            ):
                write(*messages)
                _publish(
                    traffic, publishers, until=lambda seconds: seconds >= pause_seconds,
                    what="a third of the partition has passed",
                )  # fmt: skip
            traffic.forget()
            merged_at = time.monotonic()
        finally:
            set_connected(True)
        after = {"both": "other", "new": "other", "new-too": "one"}
        identical_at: list[float] = []

        def is_merged(_: float) -> bool:
            if not identical_at and check.holds(after):
                identical_at.append(time.monotonic())
            return bool(identical_at) and traffic.arrived_since(everywhere, merged_at)

        what = "both parts receive events and have the same retained messages"
        _publish(traffic, publishers, until=is_merged, what=what)
    first = [traffic.first_arrival_since(pair, merged_at) for pair in everywhere]
    wait_until_served(traffic, network.sites)
    return MergeRound(
        crossing_seconds=max(at for at in first if at is not None) - merged_at,
        retained_seconds=identical_at[0] - merged_at,
    )


class _RetainedCheck:
    """Compares the retained messages of all brokers with the expected ones, at most every 0.1 s."""

    def __init__(self, readers: RetainedReaders, prefix: str) -> None:
        self._readers, self._prefix = readers, prefix
        self._due = 0.0

    def holds(self, expected: Mapping[str, str]) -> bool:
        now = time.monotonic()
        if now < self._due:
            return False
        wanted = {f"{self._prefix}{name}": value.encode() for name, value in expected.items()}
        found = self._readers.read().values()
        self._due = time.monotonic() + 0.1
        return all(
            {name: v for name, v in view.items() if name.startswith(self._prefix)} == wanted
            for view in found
        )


def _publish(
    traffic: Traffic,
    publishers: Sequence[str],
    *,
    until: Callable[[float], bool],
    what: str,
    interval_seconds: float = INTERVAL_SECONDS,
    actions: Sequence[tuple[float, Callable[[], None]]] = (),
) -> None:
    held = traffic.run(
        publishers,
        interval_seconds=interval_seconds,
        until=until,
        at_most_seconds=AT_MOST_SECONDS,
        actions=actions,
    )
    if not held:
        raise RuntimeError(f"timeout after {AT_MOST_SECONDS:g} s while waiting until {what}")


def _repair(federation: RunningFederation, failed: Sequence[str], kind: FailureKind) -> None:
    if kind == "killed":
        federation.restart_all(failed)
    else:
        for site in failed:
            federation.resume(site)


def _longest(traffic: Traffic, pairs: Sequence[tuple[str, str]], begin: float, end: float) -> float:
    return max(
        longest_gap([arrival.at for arrival in traffic.arrivals.get(pair, ())], begin, end)
        for pair in pairs
    )

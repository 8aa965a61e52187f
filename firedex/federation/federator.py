"""The federator process: links, broker session, journal and interest sources around a node."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firedex.federation.announcement_log import AnnouncementLog
from firedex.federation.broker_session import BrokerSession, BrokerSettings
from firedex.federation.interest_sources import InterestSources
from firedex.federation.journal import Journal, MemoryJournal, SqliteJournal
from firedex.federation.links import Links, LinkSettings, Security
from firedex.federation.node import FederationNode, NodeLimits
from firedex.federation.settings import FederationFile
from firedex.wire.addresses import parse_host_port

if TYPE_CHECKING:
    from firedex.certificates.invitations import Invitation

__all__ = ["Federator", "FederatorOptions"]

log = logging.getLogger("firedex.federation")
READY_SECONDS = 5.0
MAX_REFUSALS = 100
FRAME_OVERHEAD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatorOptions:
    """What the command line adds to the federation file."""

    site: str
    state: Path | None = None
    token: str | None = None
    invitations: "tuple[Invitation, ...]" = ()
    """Members of the federation through which this site joins it."""
    announcement_log: Path | None = None
    """Folder of the log of announced interest, if the file asks for one."""


class Federator:
    """The federator of one site; run it in an event loop."""

    def __init__(
        self, file: FederationFile, options: FederatorOptions, security: Security | None = None
    ) -> None:
        self.file, self.options = file, options
        self.entry = file.site(options.site)
        neighbours = {
            name: parse_host_port(file.site(name).listen) for name in file.neighbours(options.site)
        }
        neighbours |= {invitation.site: invitation.address for invitation in options.invitations}
        costs = {name: link.cost for name, link in file.neighbours(options.site).items()}
        settings = LinkSettings(
            site=options.site,
            federation=file.name,
            listen=parse_host_port(self.entry.listen),
            neighbours=neighbours,
            costs=costs,
            lease_seconds=file.timers.lease_seconds,
            max_frame_bytes=file.limits.payload_bytes + FRAME_OVERHEAD_BYTES,
            max_events_per_second=file.limits.events_per_second,
            members=None if file.membership == "open" else frozenset(s.id for s in file.sites),
        )
        self.links = Links(settings, self, security)
        self.refused_peers: list[dict[str, Any]] = []
        self.refusals: Counter[str] = Counter()
        """Number of refused connections by the name of the site; empty if it is not known."""
        self.on_site_change: Callable[[str, bool], None] = lambda _site, _is_up: None
        self._started_at = time.time()
        self.announcements: AnnouncementLog | None = None
        if file.announcement_log is not None and options.announcement_log is not None:
            self.announcements = AnnouncementLog(
                options.announcement_log,
                options.site,
                seconds_per_file=file.announcement_log.seconds_per_file,
                max_bytes=file.announcement_log.max_bytes,
            )
        self._sqlite: SqliteJournal | None = None

    async def run(self, ready: Callable[[dict[str, Any]], None]) -> None:
        """Run until cancelled; call ``ready`` once when links and broker are up (at most 5 s)."""
        loop = asyncio.get_running_loop()
        journal: Journal
        if self.options.state is not None:
            self._sqlite = SqliteJournal(
                self.options.state / "journal.sqlite", loop.call_soon_threadsafe
            )
            journal = self._sqlite
        else:
            journal = MemoryJournal()
        if self.entry.broker is None:
            raise ValueError(f"site {self.entry.id} has no broker in the federation file")
        broker_settings = BrokerSettings(
            address=parse_host_port(self.entry.broker),
            client_id=f"firedex-federator-{self.entry.id}",
        )
        self.broker = BrokerSession(broker_settings, journal, journal.load())
        limits = self.file.limits
        self.node = FederationNode(
            self.entry.id,
            neighbours=self.links,
            broker=self.broker,
            journal=journal,
            limits=NodeLimits(
                journal_bytes=limits.journal_bytes,
                journal_seconds=limits.journal_seconds,
                filters_per_site=limits.filters_per_site,
            ),
            defer=_call_soon,
        )
        self.node.on_site_change = self.on_site_change
        if self.announcements is not None:
            self.node.interest.on_announcement = self._log_announcement
        self.sources = InterestSources(self.entry, self.node.set_local_interest, self.options.token)
        self.node.interest.await_sources(self.sources.followed())
        try:
            await self.links.start()
            self.broker.start(self.node, self.node.interest.subscriptions)
            self.sources.start()
            ticking = asyncio.create_task(self._tick())
            try:
                await self._wait_until_ready()
                ready(self.status())
                await ticking
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)
        finally:
            await self.sources.close()
            self.broker.close()
            await self.links.close()
            await asyncio.sleep(0)
            if self.announcements is not None:
                self.announcements.close()
            if self._sqlite is not None:
                self._sqlite.close()

    async def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            all_links = self.links.settings.neighbours.keys() <= self.links.connections.keys()
            if all_links and self.broker.is_connected:
                return
            await asyncio.sleep(0.01)

    async def _tick(self) -> None:
        """Call what is due by time, several times within a lease."""
        interval = min(self.file.timers.lease_seconds / 8, 0.1)
        slow_at = 0.0
        while True:
            await asyncio.sleep(interval)
            self.links.tick()
            self.node.tick()
            if time.monotonic() >= slow_at:
                slow_at = time.monotonic() + 1.0
                self.broker.tick()
                self.sources.tick()
                if self.announcements is not None:
                    self.announcements.tick(self.node.interest.announced, self.node.reachable())
                if self._sqlite is not None and self._sqlite.failure:
                    log.error("%s; nothing is acknowledged until it can be written",
                              self._sqlite.failure)  # fmt: skip

    def _log_announcement(
        self,
        origin: str,
        epoch: int,
        version: int,
        announced: Mapping[str, int],
        withdrawn: Sequence[str],
    ) -> None:
        if self.announcements is not None:
            neighbour = self.node.membership.topology.next_hop(origin)
            self.announcements.add(origin, epoch, version, announced, withdrawn, neighbour)

    # -- called by the links -------------------------------------------------------------------

    def link_up(self, neighbour: str, cost: float) -> None:
        """Handle a new link."""
        self.node.link_up(neighbour, cost)

    def link_down(self, neighbour: str) -> None:
        """Handle the end of a link."""
        self.node.link_down(neighbour)

    def frame_received(self, neighbour: str, kind: int, body: bytes) -> None:
        """Handle a frame."""
        self.node.frame_received(neighbour, kind, body)

    def heartbeat_content(self) -> bytes:
        """Return the digest of the known records."""
        return self.node.membership.digest()

    def heartbeat_received(self, neighbour: str, content: bytes) -> None:
        """Compare the digest of a neighbour."""
        self.node.membership.receive_digest(neighbour, content)

    def peer_refused(self, peer: str, reason: str) -> None:
        """Record a refused peer for the status and the metrics."""
        self.refused_peers.append({"peer": peer, "reason": reason, "at": time.time()})
        del self.refused_peers[:-MAX_REFUSALS]
        site = peer.split()[1] if peer.startswith("site ") else ""
        if site not in self.refusals and len(self.refusals) >= MAX_REFUSALS:
            site = ""
        self.refusals[site] += 1

    def query_received(self, query: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """Answer ``firedex federation``."""
        if query.get("query") == "trace" and isinstance(query.get("topic"), str):
            self._trace(query["topic"], answer)
        else:
            answer(self.status())

    def _trace(self, topic: str, answer: Callable[[Any], None]) -> None:
        identifier = f"{self.entry.id}-{time.monotonic_ns()}"
        results: list[dict[str, Any]] = []
        expected: set[str] = set()
        finished = False

        def finish() -> None:
            nonlocal finished
            if not finished:
                finished = True
                self.node.end_trace(identifier)
                answer({"destinations": sorted(expected), "results": results})

        def received(result: dict[str, Any]) -> None:
            results.append({"site": result.get("site"), "hops": result.get("hops")})
            if expected and len(results) >= len(expected):
                finish()

        expected |= set(self.node.trace(topic, identifier, received))
        if not expected:
            finish()
        else:
            asyncio.get_running_loop().call_later(2.0, finish)

    # -- status --------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what this federator knows, for people and programs.

        Call this only in the event loop. The result shares nothing with the federator, so that
        another thread may use it.
        """
        node, now = self.node, time.monotonic()
        reachable = node.reachable()
        records = node.membership.topology.records
        return {
            "federation": self.file.name,
            "site": self.entry.id,
            "epoch": node.epoch,
            "uptime_seconds": time.time() - self._started_at,
            "broker": {
                "address": self.entry.broker,
                "connected": self.broker.is_connected,
                "refusal": self.broker.refusal,
            },
            "sites": [
                {
                    "id": name,
                    "reachable": name == self.entry.id or name in reachable,
                    "next_hop": reachable.get(name),
                    "epoch": record.epoch,
                    "filters": len(node.interest.remote.filters.get(name, ())),
                }
                for name, record in sorted(records.items())
            ],
            "links": [
                {"between": [one, other], "cost": cost}
                for one, other, cost in sorted(node.membership.topology.links())
            ],
            "own_links": [
                self._link_status(name, now)
                for name in sorted({*self.links.settings.neighbours, *self.links.connections})
            ],
            "interest": {
                "local": dict(node.interest.local.announced),
                "local_filters": node.interest.local.wanted_count,
                "remote": {
                    name: dict(filters) for name, filters in node.interest.remote.filters.items()
                },
                "sources": self.sources.states(),
            },
            "journal": {
                "events": node.sender.unacknowledged,
                "by_site": node.sender.unacknowledged_by_site(),
                "dropped_by_site": dict(node.sender.drops_by_site),
                "failure": self._sqlite.failure if self._sqlite else None,
            },
            "retained": len(node.retained.values),
            "announcement_log": self.announcements.status() if self.announcements else None,
            "counters": asdict(node.counters),
            "refused_peers": list(self.refused_peers),
            "refusals_by_site": dict(self.refusals),
        }

    def _link_status(self, neighbour: str, now: float) -> dict[str, Any]:
        """Return the state of an own link; bytes are counted since it is up, without TLS."""
        link = self.links.connections.get(neighbour)
        return {
            "neighbour": neighbour,
            "up": link is not None,
            "seconds": None if link is None else now - link.since,
            "sent_bytes": 0 if link is None else link.sent_bytes,
            "received_bytes": 0 if link is None else link.received_bytes,
        }


def _call_soon(action: Callable[[], None]) -> None:
    """Call an action after the event loop has handled what has arrived."""
    asyncio.get_running_loop().call_soon(action)

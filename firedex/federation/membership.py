"""Which sites and links are up: the own record, and the flooding of records. No sockets."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from firedex.federation.frames import (
    FrameType,
    MalformedFrame,
    decode_json,
    encode_frame,
    encode_json,
)
from firedex.federation.topology import SiteRecord, Topology
from firedex.wire import InvalidValue, from_plain, to_plain

__all__ = ["Membership", "Neighbours"]

log = logging.getLogger("firedex.federation")
FORGET_SECONDS = 3600.0
MAX_EPOCH_LEAD_SECONDS = 366 * 24 * 3600.0
"""An epoch is a time; one that is further ahead of this site's clock than this is not followed."""
MIN_RAISE_SECONDS = 1.0
"""Two federators with the same name raise their epochs in turn, but not faster than this."""


class Neighbours(Protocol):
    """The links of a federator."""

    def send(self, neighbour: str, frame: bytes, *, droppable: bool = False) -> bool:
        """Send a frame to a neighbour; return False if it was not sent.

        A droppable frame is dropped if the link is congested.
        """


class Membership:
    """The records of all sites, kept equal at all of them.

    ``changed`` is called after each change of the records. ``defer`` calls it later, once for all
    records that arrive together.
    """

    MAX_SITES = 5000

    def __init__(
        self,
        site: str,
        epoch: int,
        neighbours: Neighbours,
        *,
        changed: Callable[[], None],
        epoch_raised: Callable[[int], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
        defer: Callable[[Callable[[], None]], None] = lambda action: action(),
    ) -> None:
        self.site, self.epoch = site, epoch
        self._defer, self._change_is_due = defer, False
        self._wall = wall
        self._raised_at = float("-inf")
        self._refused_epochs: dict[str, int] = {}
        self.topology = Topology(site)
        self._neighbours, self._clock = neighbours, clock
        self._changed, self._epoch_raised = changed, epoch_raised
        self._links: dict[str, float] = {}
        self._version = 0
        self._interest: tuple[int, str] = (0, "")
        self._mismatches: dict[str, int] = {}
        self._last_reachable: dict[str, float] = {}
        self._expected: set[str] = set()
        self._digest: bytes | None = None
        self._publish()

    @property
    def links(self) -> dict[str, float]:
        """The neighbours whose links are up, with the cost of each link."""
        return self._links

    def link_up(self, neighbour: str, cost: float) -> None:
        """Add a link, and send the neighbour all records."""
        self._links[neighbour] = cost
        self._publish()
        self._send_all(neighbour)
        self._changed()

    def link_down(self, neighbour: str) -> None:
        """Remove a link."""
        if self._links.pop(neighbour, None) is not None:
            self._mismatches.pop(neighbour, None)
            self._publish()
            self._changed()

    def set_interest(self, version: int, digest: str) -> None:
        """State the version of the own interest in the own record."""
        self._interest = (version, digest)
        self._publish()

    def receive_record(self, neighbour: str, body: bytes) -> None:
        """Handle a record from a neighbour: keep and flood it if it is newer."""
        content = decode_json(body)
        if self._is_known(content):
            return
        try:
            record = from_plain(SiteRecord, content, tolerant=True)
        except InvalidValue as error:
            raise MalformedFrame(f"a record is not valid: {error}") from error
        if not self._is_plausible(record.site, record.epoch):
            return
        if record.site == self.site:
            if record.order > self.topology.records[self.site].order:
                self.raise_epoch(record.epoch)
            return
        known = self.topology.records.get(record.site)
        if known is None and len(self.topology.records) >= self.MAX_SITES:
            log.warning("record of %s ignored: more than %d sites", record.site, self.MAX_SITES)
            return
        if self.topology.add(record):
            self._digest = None
            self._send_to_others(encode_frame(FrameType.RECORD, body), neighbour)
            self._change_soon()
        elif known is not None and known.order > record.order:
            self._neighbours.send(neighbour, encode_json(FrameType.RECORD, to_plain(known)))

    def _is_known(self, content: Mapping[str, Any]) -> bool:
        """Return whether exactly this record is known: most are, one copy comes over each link."""
        site = content.get("site")
        known = self.topology.records.get(site) if isinstance(site, str) else None
        return known is not None and (content.get("epoch"), content.get("version")) == known.order

    def _change_soon(self) -> None:
        if not self._change_is_due:
            self._change_is_due = True
            self._defer(self.apply_due_change)

    def apply_due_change(self) -> None:
        """Call ``changed`` for records that have arrived since the last call."""
        if self._change_is_due:
            self._change_is_due = False
            self._changed()

    def raise_epoch(self, known: int) -> None:
        """Continue with an epoch after ``known``, one that another site knows of this site.

        The journal was lost or restored from a backup; sequence numbers must not be used again.
        """
        now = self._clock()
        if self._is_plausible(self.site, known) and now - self._raised_at >= MIN_RAISE_SECONDS:
            self._raised_at = now
            self.epoch = max(known, self.epoch) + 1
            self._epoch_raised(self.epoch)
            self._publish()

    def _is_plausible(self, site: str, epoch: int) -> bool:
        """Return whether an epoch of a site is not far in the future."""
        if epoch <= (self._wall() + MAX_EPOCH_LEAD_SECONDS) * 1000:
            return True
        if self._refused_epochs.get(site) != epoch:
            if len(self._refused_epochs) >= self.MAX_SITES:
                self._refused_epochs.clear()
            self._refused_epochs[site] = epoch
            log.warning(
                "epoch %d of site %s ignored: it is in the future; check the clocks", epoch, site
            )
        return False

    def digest(self) -> bytes:
        """Return a short hash of all records, for heartbeats."""
        if self._digest is None:
            made = hashlib.blake2b(digest_size=8)
            for site, record in sorted(self.topology.records.items()):
                made.update(f"{site}\0{record.epoch}\0{record.version}\0".encode())
            self._digest = made.digest()
        return self._digest

    def receive_digest(self, neighbour: str, digest: bytes) -> None:
        """Send all records to a neighbour whose records have differed for two heartbeats."""
        if not digest or digest == self.digest():
            self._mismatches[neighbour] = 0
            return
        self._mismatches[neighbour] = self._mismatches.get(neighbour, 0) + 1
        if self._mismatches[neighbour] >= 2:
            self._mismatches[neighbour] = 0
            self._send_all(neighbour)

    def expect(self, sites: Iterable[str]) -> None:
        """Forget these sites of an earlier run as well, unless they are reachable in time."""
        self._expected.update(sites)

    def forget_lost_sites(self) -> list[str]:
        """Remove the records of sites that were unreachable for too long; return their names."""
        now = self._clock()
        reachable = self.topology.next_hops()
        lost: list[str] = []
        self._expected -= self.topology.records.keys()
        for site in [*self.topology.records, *self._expected]:
            if site == self.site or site in reachable:
                self._last_reachable[site] = now
            elif now - self._last_reachable.setdefault(site, now) > FORGET_SECONDS:
                self.topology.forget(site)
                self._expected.discard(site)
                self._digest = None
                lost.append(site)
        return lost

    def _publish(self) -> None:
        self._version += 1
        record = SiteRecord(
            site=self.site,
            epoch=self.epoch,
            version=self._version,
            links=dict(self._links),
            interest_version=self._interest[0],
            interest_digest=self._interest[1],
        )
        self.topology.add(record)
        self._digest = None
        self._send_to_others(encode_json(FrameType.RECORD, to_plain(record)))

    def _send_to_others(self, frame: bytes, received_from: str | None = None) -> None:
        for neighbour in self._links:
            if neighbour != received_from:
                self._neighbours.send(neighbour, frame)

    def _send_all(self, neighbour: str) -> None:
        for record in self.topology.records.values():
            self._neighbours.send(neighbour, encode_json(FrameType.RECORD, to_plain(record)))

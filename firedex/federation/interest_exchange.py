"""Announcing the interest of this site, and following that of all others. No sockets.

Changes are sent to all sites as they happen. Each site's record names the version and the digest of
its interest, so a site that missed a change, or whose set differs, requests the whole set.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firedex.federation.broker_interface import Broker
from firedex.federation.interest import FilterUnion, RemoteInterest, digest
from firedex.federation.journal import Journal, Operation
from firedex.federation.membership import Membership
from firedex.federation.routing import Router
from firedex.wire.mqtt_names import check_filter

__all__ = ["InterestExchange"]

log = logging.getLogger("firedex.federation")
REQUEST_DELAY_SECONDS = 0.05
"""A change usually arrives this soon after the record that names its version."""
REQUEST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 60.0
SOURCES_SECONDS = 30.0
"""After a start, sources that do not answer for this long are not waited for."""
AnnouncementListener = Callable[[str, int, int, Mapping[str, int], Sequence[str]], None]
"""Called with origin, epoch, version, announced filters (with QoS) and withdrawn filters."""


@dataclass(slots=True)
class _KnownVersion:
    """The version of a site's interest that is known here."""

    epoch: int = -1
    version: int = -1
    differs_since: float | None = None
    requested_at: float = float("-inf")
    retry_seconds: float = REQUEST_RETRY_SECONDS
    changed_at: float = float("-inf")
    is_verified: bool = False
    """Whether the digest in the site's record is that of the known filters."""
    has_refused: bool = False
    """Whether filters of the site were refused, so that the digests cannot be equal."""
    has_room: bool = False
    """Whether the site has withdrawn filters since then, so that others may fit."""

    def applied(self, epoch: int, version: int, now: float) -> None:
        """Note that the filters of a version were applied."""
        self.epoch, self.version, self.changed_at = epoch, version, now
        self.is_verified = False


class InterestExchange:
    """What this site wants, and what the other sites want."""

    def __init__(
        self,
        router: Router,
        membership: Membership,
        broker: Broker,
        journal: Journal,
        *,
        max_filters: int,
        clock: Callable[[], float],
        filters_added: Callable[[str, list[str]], None],
    ) -> None:
        self._router, self._membership = router, membership
        self._broker, self._journal, self._clock = broker, journal, clock
        self._max_filters, self._filters_added = max_filters, filters_added
        self.local = FilterUnion()
        self.remote = RemoteInterest()
        self._subscriptions = FilterUnion()
        self._version = 0
        """0 until the interest of this site is known, so that others keep what they know of it."""
        self._awaited: set[str] = set()
        self._started_at = clock()
        self._known: dict[str, _KnownVersion] = {}
        self.on_announcement: AnnouncementListener | None = None

    @property
    def subscriptions(self) -> dict[str, int]:
        """The filters to subscribe to at the broker, with their QoS."""
        return self._subscriptions.announced

    def restore(self, interest: Mapping[str, Mapping[str, int]]) -> None:
        """Start with the interest of other sites that an earlier run knew."""
        for site, filters in interest.items():
            self.remote.replace(site, filters)
            self._subscriptions.set_source(site, filters)

    # -- this site -----------------------------------------------------------------------------

    def await_sources(self, names: Iterable[str]) -> None:
        """Announce nothing until each of these sources has reported, or has had time to.

        Other sites would otherwise stop sending what the sources that answer late want.
        """
        self._awaited.update(names)

    def set_local(self, source: str, filters: Mapping[str, int]) -> None:
        """Replace the filters that one source (gateway, service, file) wants."""
        change = self.local.set_source(source, filters)
        self._awaited.discard(source)
        if self._awaited:
            return
        if not self._version:
            self._announce_first()
            return
        if not change:
            return
        self._version += 1
        self._membership.set_interest(self._version, digest(self.local.announced))
        self._router.send_message(
            list(self._router.next_hops),
            {
                "kind": "interest",
                "epoch": self._membership.epoch,
                "version": self._version,
                "announce": change.announce,
                "withdraw": list(change.withdraw),
            },
        )
        self._report(self._membership.site, self._membership.epoch, self._version,
                     change.announce, change.withdraw)  # fmt: skip

    def _announce_first(self) -> None:
        self._version = 1
        self._membership.set_interest(1, digest(self.local.announced))
        self.send_all(list(self._router.next_hops))
        self._report(self._membership.site, self._membership.epoch, 1, self.local.announced, [])

    def tick(self) -> None:
        """Stop waiting for sources after a while, and request what differs."""
        has_waited = self._clock() - self._started_at >= SOURCES_SECONDS
        if self._awaited and has_waited and self.local.announced:
            self._awaited.clear()
            self._announce_first()
        self.compare_versions()

    def send_all(self, sites: Sequence[str]) -> None:
        """Send the whole set of filters to sites, if it is known."""
        if not self._version:
            return
        content = {
            "kind": "interest-all",
            "epoch": self._membership.epoch,
            "version": self._version,
            "filters": self.local.announced,
        }
        self._router.send_message(sites, content)

    def epoch_changed(self) -> None:
        """Announce everything again under the new epoch of this site."""
        if self._version:
            self._membership.set_interest(self._version, digest(self.local.announced))
            self.send_all(list(self._router.next_hops))

    # -- other sites ---------------------------------------------------------------------------

    def receive_change(self, site: str, content: Mapping[str, Any]) -> None:
        """Apply a change if it follows the known version; otherwise request the whole set."""
        known = self._known.setdefault(site, _KnownVersion())
        epoch, version = int(content["epoch"]), int(content["version"])
        if (epoch, version) != (known.epoch, known.version + 1):
            self.compare_versions()
            return
        announce = self._valid_filters(site, content["announce"])
        filters = self.remote.filters.get(site, {})
        withdraw = [name for name in content["withdraw"] if name in filters]
        known.has_room = known.has_room or bool(withdraw)
        if len({**filters, **announce}.keys() - set(withdraw)) > self._max_filters:
            self._refuse(site, len(announce))
            announce = {}
        new = [name for name in announce if name not in filters]
        known.applied(epoch, version, self._clock())
        self.remote.change(site, announce, withdraw)
        self._report(site, epoch, version, announce, withdraw)
        operations: list[Operation] = [
            ("DELETE FROM interest WHERE site = ? AND filter = ?", (site, name))
            for name in withdraw
        ]
        self._applied(site, new, [*operations, *_insertions(site, announce)])

    def receive_all(self, site: str, content: Mapping[str, Any]) -> None:
        """Replace all filters of a site."""
        known = self._known.setdefault(site, _KnownVersion())
        epoch, version = int(content["epoch"]), int(content["version"])
        record = self._membership.topology.records.get(site)
        if record is None or epoch != record.epoch:
            return
        if version < max(1, record.interest_version):  # 0: the site does not know it yet
            return
        known.has_refused = known.has_room = False
        filters = self._valid_filters(site, content["filters"])
        before = dict(self.remote.filters.get(site, {}))
        if len(filters) > self._max_filters:
            self._refuse(site, len(filters.keys() - before.keys()))
            filters = {name: qos for name, qos in filters.items() if name in before}
        known.applied(epoch, version, self._clock())
        known.differs_since = None
        new = self.remote.replace(site, filters)
        changed = {name: qos for name, qos in filters.items() if before.get(name) != qos}
        self._report(site, epoch, version, changed, [n for n in before if n not in filters])
        delete: Operation = ("DELETE FROM interest WHERE site = ?", (site,))
        self._applied(site, new, [delete, *_insertions(site, filters)])

    def forget(self, site: str) -> None:
        """Remove the interest of a site that is not known any more."""
        filters = list(self.remote.filters.get(site, ()))
        self.remote.forget(site)
        known = self._known.pop(site, _KnownVersion())
        self._report(site, known.epoch, known.version, {}, filters)
        self._applied(site, [], [("DELETE FROM interest WHERE site = ?", (site,))])

    def _applied(self, site: str, new: list[str], operations: Sequence[Operation]) -> None:
        self._journal.submit(operations)
        change = self._subscriptions.set_source(site, self.remote.filters.get(site, {}))
        if change:
            self._broker.set_subscriptions(self.subscriptions, change)
        if new and self._router.is_reachable(site):
            self._filters_added(site, new)

    def _report(
        self,
        origin: str,
        epoch: int,
        version: int,
        announced: Mapping[str, int],
        withdrawn: Sequence[str],
    ) -> None:
        if self.on_announcement is not None:
            self.on_announcement(origin, epoch, version, announced, withdrawn)

    def announced(self) -> Iterator[tuple[str, int, int, Mapping[str, int]]]:
        """Yield origin, epoch, version and filters of every site, this one included."""
        yield (self._membership.site, self._membership.epoch, self._version, self.local.announced)
        for site, filters in self.remote.filters.items():
            known = self._known.get(site, _KnownVersion())
            yield site, known.epoch, known.version, filters

    def _valid_filters(self, site: str, filters: Any) -> dict[str, int]:
        announced = dict(filters)
        valid = {
            name: qos
            for name, qos in announced.items()
            if qos in (0, 1, 2) and not name.startswith("$") and _is_filter(name)
        }
        if len(valid) < len(announced):
            self._refuse(site, len(announced) - len(valid))
        return valid

    def _refuse(self, site: str, count: int) -> None:
        self._known[site].has_refused = True
        self._router.counters.refused_filters += count
        log.warning("%d filters of site %s refused (invalid, or over the limit)", count, site)

    def compare_versions(self) -> None:
        """Request the interest of each site whose record names another version or digest."""
        now = self._clock()
        for site in self._router.next_hops:
            record = self._membership.topology.records.get(site)
            if record is None or not record.interest_version:
                continue
            known = self._known.setdefault(site, _KnownVersion())
            if (known.epoch, known.version) == (record.epoch, record.interest_version):
                known.differs_since = None
                self._compare_digests(site, known, record.interest_digest, now)
                continue
            if known.differs_since is None:
                known.differs_since = now
            is_new = known.epoch != record.epoch
            is_due = is_new or now - known.differs_since >= REQUEST_DELAY_SECONDS
            if is_due and now - known.requested_at >= REQUEST_RETRY_SECONDS:
                known.requested_at = now
                self._router.send_message([site], {"kind": "interest-request"})

    def _compare_digests(self, site: str, known: _KnownVersion, expected: str, now: float) -> None:
        """Request the filters of a site again if they are incomplete but of the current version.

        The digest is computed once after each change, when no other change has followed for a
        while. If filters were refused, the set is requested when others were withdrawn.
        """
        is_settled = now - known.changed_at >= REQUEST_RETRY_SECONDS
        if known.is_verified or not is_settled or (known.has_refused and not known.has_room):
            return
        if not known.has_refused:
            if not expected or digest(self.remote.filters.get(site, {})) == expected:
                known.is_verified, known.retry_seconds = True, REQUEST_RETRY_SECONDS
                return
            if now - known.requested_at < known.retry_seconds:
                return
            known.retry_seconds = min(known.retry_seconds * 2, MAX_RETRY_SECONDS)
            log.warning("the filters of site %s differ from its digest; requesting them", site)
        if now - known.requested_at >= REQUEST_RETRY_SECONDS:
            known.requested_at = now
            self._router.send_message([site], {"kind": "interest-request"})


def _is_filter(name: str) -> bool:
    try:
        check_filter(name)
        name.encode()
    except ValueError:
        return False
    return True


def _insertions(site: str, filters: Mapping[str, int]) -> list[Operation]:
    return [
        ("INSERT OR REPLACE INTO interest VALUES (?, ?, ?)", (site, name, qos))
        for name, qos in filters.items()
    ]

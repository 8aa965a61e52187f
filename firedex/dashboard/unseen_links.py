"""Links of the site that the controller does not see, though it sees both their switches."""

from dataclasses import dataclass
from datetime import UTC, datetime

from firedex.wire import Network, NetworkTopology

__all__ = ["UnseenLink", "UnseenLinks", "missing_links"]

Link = tuple[str, str]
GONE_SECONDS = 5.0
NEVER_SEEN_SECONDS = 30.0
"""A controller finds links one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenLink:
    """``since``: when it was first missed."""

    name: str
    since: datetime


def missing_links(network: Network, topology: NetworkTopology) -> list[Link]:
    """As they are given, whichever way the controller would say them."""
    connected = {each.switch for each in topology.switches if each.connected}
    seen = {frozenset((link.from_, link.to)) for link in topology.links}
    return [
        (link.from_, link.to)
        for link in network.links
        if {link.from_, link.to} <= connected and frozenset((link.from_, link.to)) not in seen
    ]


class UnseenLinks:
    """Remembers since when links have been missing. Not for several threads at once.

    A controller that has never said a link does not look for them.
    """

    def __init__(self) -> None:
        self._since: dict[Link, float] = {}
        self._ever: set[frozenset[str]] = set()

    def now(
        self, network: Network, topology: NetworkTopology | None, now_seconds: float
    ) -> tuple[UnseenLink, ...]:
        """Those that have been missing for a while."""
        if topology is None:
            return ()
        self._ever |= {frozenset((link.from_, link.to)) for link in topology.links}
        missing = missing_links(network, topology) if self._ever else []
        self._since = {link: self._since.get(link, now_seconds) for link in missing}
        return tuple(
            UnseenLink(name=f"{here} to {there}", since=datetime.fromtimestamp(since, UTC))
            for (here, there), since in self._since.items()
            if now_seconds - since >= self._patience((here, there))
        )

    def _patience(self, link: Link) -> float:
        return GONE_SECONDS if frozenset(link) in self._ever else NEVER_SEEN_SECONDS

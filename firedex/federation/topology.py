"""What a site knows about the other sites and links, and the next hop to each of them. Pure.

Each federator describes itself in a numbered record: its links with their costs, and the version of
its interest. Records are flooded; a newer one replaces an older one. A link exists if both of its
ends report it. Every federator computes shortest paths from the same records.
"""

import heapq
from dataclasses import dataclass, field

from firedex.wire.values import Count, Identifier, NonNegative, value

__all__ = ["SiteRecord", "Topology"]


@value
class SiteRecord:
    """The description of a site by its own federator.

    ``epoch`` grows with each start of the federator, ``version`` with each change within an epoch.
    """

    site: Identifier
    epoch: Count
    version: Count
    links: dict[Identifier, NonNegative]
    interest_version: Count = 0
    interest_digest: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """Epoch and version; the greater one is newer."""
        return self.epoch, self.version


@dataclass(slots=True)
class Topology:
    """The records of all known sites, seen from one of them."""

    site: str
    records: dict[str, SiteRecord] = field(default_factory=dict)
    _next_hops: dict[str, str] | None = None
    _costs: dict[str, float] = field(default_factory=dict)

    def add(self, record: SiteRecord) -> bool:
        """Add a record; return whether it is newer than the known one."""
        known = self.records.get(record.site)
        if known is not None and known.order >= record.order:
            return False
        if known is None or known.links != record.links:
            self._next_hops = None
        self.records[record.site] = record
        return True

    def forget(self, site: str) -> None:
        """Remove a site."""
        if self.records.pop(site, None) is not None:
            self._next_hops = None

    def next_hop(self, site: str) -> str | None:
        """Return the neighbour through which a site is reached; None if there is no path."""
        return self.next_hops().get(site)

    def next_hops(self) -> dict[str, str]:
        """Return the neighbour for each site that can be reached."""
        if self._next_hops is None:
            self._next_hops = self._shortest_paths()
        return self._next_hops

    def cost(self, site: str) -> float:
        """Return the cost of the path to a site that can be reached."""
        self.next_hops()
        return self._costs[site]

    def links(self) -> list[tuple[str, str, float]]:
        """Return the links that both ends report, each once."""
        return [
            (record.site, other, cost)
            for record in self.records.values()
            for other, cost in record.links.items()
            if record.site < other and self._both_report(record.site, other)
        ]

    def _both_report(self, one: str, other: str) -> bool:
        back = self.records.get(other)
        return back is not None and one in back.links

    def _shortest_paths(self) -> dict[str, str]:
        """Run Dijkstra's algorithm; of equal paths the one through the first neighbour is taken."""
        found: dict[str, str] = {}
        self._costs = {self.site: 0.0}
        done: set[str] = set()
        queue: list[tuple[float, str, str]] = [(0.0, "", self.site)]
        while queue:
            cost, first, site = heapq.heappop(queue)
            if site in done:
                continue
            done.add(site)
            self._costs[site] = cost
            if first:
                found[site] = first
            record = self.records.get(site)
            for other, link_cost in record.links.items() if record else ():
                if other not in done and self._both_report(site, other):
                    heapq.heappush(queue, (cost + link_cost, first or other, other))
        return found

"""The description of a network of sites: sites, links, bandwidths and delays. Pure.

The site with index 3 is ``site3`` and has the address 10.0.0.4. Only neighbours exchange
packets: between sites that are not neighbours, federators relay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from itertools import product

from firedex_emulation.errors import UnsupportedTopology

__all__ = ["FIRST_ADDRESS", "SiteLink", "SiteNetwork", "grid_links", "site_names"]

FIRST_ADDRESS = IPv4Address("10.0.0.1")
MAX_SITES = 200
MAX_DELAY_SECONDS = 2.0
MIN_BITS_PER_SECOND = 1e4
MAX_BITS_PER_SECOND = 1e10
DIAGONAL = 1.4
"""Length of a diagonal of the grid, rounded."""


def site_names(count: int) -> tuple[str, ...]:
    """Return the names of ``count`` sites."""
    return tuple(f"site{number}" for number in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLink:
    """A link between two sites; bandwidth and delay apply in each direction."""

    one: str
    other: str
    bandwidth_bits_per_second: float
    delay_seconds: float

    @property
    def ends(self) -> frozenset[str]:
        """Both sites."""
        return frozenset((self.one, self.other))


@dataclass(frozen=True, kw_only=True)
class SiteNetwork:
    """A network of sites.

    ``separators``: sites whose loss divides the others into two parts, for tests of partitions.
    """

    name: str
    sites: tuple[str, ...]
    links: tuple[SiteLink, ...]
    separators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject unknown and repeated names, invalid quantities and unconnected sites."""
        known = set(self.sites)
        if not 2 <= len(self.sites) <= MAX_SITES or len(known) != len(self.sites):
            raise UnsupportedTopology(
                self.name, f"sites: from 2 to {MAX_SITES} different names are needed"
            )
        seen: set[frozenset[str]] = set()
        for number, link in enumerate(self.links):
            field = f"links[{number}]"
            if unknown := {link.one, link.other} - known:
                raise UnsupportedTopology(self.name, f"{field}: unknown site {min(unknown)!r}")
            if link.one == link.other or link.ends in seen:
                raise UnsupportedTopology(
                    self.name, f"{field}: {link.one!r} and {link.other!r} are the same or repeated"
                )
            seen.add(link.ends)
            bandwidth = link.bandwidth_bits_per_second
            if not MIN_BITS_PER_SECOND <= bandwidth <= MAX_BITS_PER_SECOND:
                raise UnsupportedTopology(
                    self.name,
                    f"{field}.bandwidth_bits_per_second is {bandwidth!r}; it must be a number "
                    f"from {MIN_BITS_PER_SECOND:g} to {MAX_BITS_PER_SECOND:g}",
                )
            if not 0 <= link.delay_seconds <= MAX_DELAY_SECONDS:
                raise UnsupportedTopology(
                    self.name,
                    f"{field}.delay_seconds is {link.delay_seconds!r}; it must be a number "
                    f"from 0 to {MAX_DELAY_SECONDS:g}",
                )
        if unknown := set(self.separators) - known:
            raise UnsupportedTopology(self.name, f"separators: unknown site {min(unknown)!r}")
        if len(self.parts()) != 1:
            raise UnsupportedTopology(self.name, "links: the sites are not connected")
        if self.separators and len(self.parts(self.separators)) != 2:
            raise UnsupportedTopology(
                self.name, "separators: without them the sites must form two parts"
            )

    @cached_property
    def neighbours(self) -> Mapping[str, Mapping[str, SiteLink]]:
        """The links of each site, by neighbour."""
        found: dict[str, dict[str, SiteLink]] = {site: {} for site in self.sites}
        for link in self.links:
            found[link.one][link.other] = link
            found[link.other][link.one] = link
        return found

    def address(self, site: str) -> str:
        """Return the address of a site."""
        return str(FIRST_ADDRESS + self.sites.index(site))

    def parts(self, without: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """Return the connected parts of the network without some sites, in the order of sites."""
        left = [site for site in self.sites if site not in set(without)]
        parts: list[tuple[str, ...]] = []
        while left:
            reached, new = {left[0]}, [left[0]]
            while new:
                for neighbour in self.neighbours[new.pop()]:
                    if neighbour in left and neighbour not in reached:
                        reached.add(neighbour)
                        new.append(neighbour)
            parts.append(tuple(site for site in left if site in reached))
            left = [site for site in left if site not in reached]
        return parts


def grid_links(
    rows: int,
    columns: int,
    *,
    diagonals: Iterable[tuple[int, int]],
    bandwidth_bits_per_second: float,
    delay_seconds: float,
) -> tuple[SiteLink, ...]:
    """Return the links of a grid that is numbered row by row.

    ``diagonals``: the cells, by row and column of their upper left site, that have a link to the
    lower right site. ``delay_seconds`` is that of a horizontal or vertical link.
    """
    names = site_names(rows * columns)

    def link(row: int, column: int, down: int, right: int) -> SiteLink:
        length = DIAGONAL if down and right else 1.0
        return SiteLink(
            one=names[row * columns + column],
            other=names[(row + down) * columns + column + right],
            bandwidth_bits_per_second=bandwidth_bits_per_second,
            delay_seconds=round(delay_seconds * length, 6),
        )

    places = list(product(range(rows), range(columns)))
    across = [link(row, column, 0, 1) for row, column in places if column + 1 < columns]
    along = [link(row, column, 1, 0) for row, column in places if row + 1 < rows]
    return (*across, *along, *(link(row, column, 1, 1) for row, column in diagonals))

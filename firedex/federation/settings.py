"""The federation file (federation.yaml): the same at every site. Reading and checking."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from firedex.scenario.yaml_file import parse_yaml, read_text
from firedex.wire import Problem
from firedex.wire.addresses import HostPort, HttpUrl, is_loopback, parse_host_port
from firedex.wire.mqtt_names import FilterName
from firedex.wire.values import Flag, Identifier, NonNegative, Positive, PositiveCount, value

__all__ = [
    "FederationFile",
    "FederationLink",
    "FederationSite",
    "InterestSettings",
    "SecuritySettings",
    "Timers",
    "read_federation",
]

Text = Annotated[str, Field(strict=True, min_length=1)]
InvitationText = Annotated[str, Field(strict=True), AfterValidator(lambda text: _checked(text))]
HOP_COST = 1.0
COST_PER_SECOND = 1000.0
"""A hop costs as much as a millisecond of propagation."""


def _checked(text: str) -> str:
    """Return an invitation; raise ValueError if it is not valid."""
    from firedex.certificates.invitations import parse_invitation  # loads cryptography

    return str(parse_invitation(text))


@value
class InterestSettings:
    """Where a site's interest is learned from, besides its gateway and its service.

    ``static``: filters that the site always wants. ``broker_log``: read the subscriptions of
    clients that connect to Mosquitto directly from its log topics.
    """

    static: tuple[FilterName, ...] = ()
    broker_log: Flag = False


@value
class FederationSite:
    """One site: the address of its federator and of its broker, and its sources of interest."""

    id: Identifier
    listen: HostPort
    broker: HostPort | None = None
    gateway: HttpUrl | None = None
    service: HttpUrl | None = None
    organisation: Text | None = None
    scopes: dict[Identifier, tuple[Identifier, ...]] = Field(default_factory=dict)
    interest: InterestSettings = Field(default_factory=InterestSettings)
    authority: Text | None = None
    """SHA-256 fingerprint of the authority that may issue this site's certificate."""


@value
class FederationLink:
    """A link between two sites."""

    between: tuple[Identifier, Identifier]
    bandwidth_bits_per_second: Positive | None = None
    propagation_seconds: NonNegative = 0.0

    @property
    def cost(self) -> float:
        """The cost of the link for the choice of paths."""
        return HOP_COST + COST_PER_SECOND * self.propagation_seconds


@value
class Scope:
    """A scope of a dimension, with its visibility filters in both directions."""

    id: Identifier
    parents: tuple[Identifier, ...] = ()
    outgoing: Text | None = None
    incoming: Text | None = None


@value
class Dimension:
    """A graph of scopes."""

    name: Identifier
    scopes: tuple[Scope, ...] = ()


@value
class SecuritySettings:
    """``certificates``: folder of certificates; ``insecure``: no TLS, on loopback only."""

    certificates: Text | None = None
    insecure: Flag = False


@value
class Timers:
    """A neighbour that is silent for the lease is considered lost."""

    lease_seconds: Annotated[Positive, Field(ge=0.1, le=60)] = 0.5


@value
class FederationLimits:
    """What one neighbour may send, and what the journal may hold."""

    events_per_second: Positive = 50_000.0
    payload_bytes: PositiveCount = 2 * 1024 * 1024
    filters_per_site: PositiveCount = 20_000
    journal_bytes: PositiveCount = 64 * 1024 * 1024
    journal_seconds: Positive = 86_400.0


@value
class AnnouncementLogSettings:
    """A log of announced interest in Parquet files of ``folder``; each site writes its own files.

    A file is written every ``seconds_per_file`` if interest has changed. The oldest files of a site
    are deleted when its files need more than ``max_bytes``.
    """

    folder: Text
    seconds_per_file: Annotated[Positive, Field(ge=1)] = 60.0
    max_bytes: PositiveCount = 256 * 1024 * 1024


@value
class FederationFile:
    """The whole federation. Relative paths start at the folder of the file.

    ``membership``: with ``open``, a site that is not in ``sites`` may join if an authority that is
    trusted has issued its certificate; with ``listed``, it is refused. ``join``: invitations of
    sites that are already members, for the file of a new site, which lists only itself.
    """

    name: Identifier
    sites: Annotated[tuple[FederationSite, ...], Field(min_length=1)]
    links: tuple[FederationLink, ...] = ()
    security: SecuritySettings | None = None
    membership: Literal["open", "listed"] = "open"
    join: tuple[InvitationText, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    timers: Timers = Field(default_factory=Timers)
    limits: FederationLimits = Field(default_factory=FederationLimits)
    announcement_log: AnnouncementLogSettings | None = None

    def site(self, name: str) -> FederationSite:
        """Return a site; raise LookupError with the known names if there is none."""
        for site in self.sites:
            if site.id == name:
                return site
        known = ", ".join(site.id for site in self.sites)
        raise LookupError(f"there is no site {name!r}; the sites are {known}")

    @property
    def has_certificates(self) -> bool:
        """Whether links use mutual TLS."""
        return self.security is not None and self.security.certificates is not None

    def neighbours(self, name: str) -> dict[str, FederationLink]:
        """Return the neighbours of a site; without any links, all sites are neighbours."""
        if not self.links:
            return {
                site.id: FederationLink(between=(name, site.id))
                for site in self.sites
                if site.id != name
            }
        found: dict[str, FederationLink] = {}
        for link in self.links:
            if name in link.between:
                one, other = link.between
                found[other if one == name else one] = link
        return found


def read_federation(path: Path) -> FederationFile:
    """Read and check a federation file; raise InvalidFile or UnreadableFile."""
    return parse_yaml(
        FederationFile,
        str(path),
        read_text(str(path)),
        expected="a federation file is a mapping with the keys name, sites, links, security, …",
        check=lambda file: list(_problems(file, path.resolve().parent)),
    )


def _problems(file: FederationFile, folder: Path) -> Iterator[Problem]:
    yield from _site_problems(file)
    yield from _link_problems(file)
    yield from _scope_problems(file)
    yield from _join_problems(file)
    security = file.security
    if security is None:
        if not _only_loopback(file):
            yield Problem(
                path=("security",),
                message="is required if a site does not listen on loopback: "
                "set 'certificates' to a folder made by firedex certificates",
            )
    elif (security.certificates is None) == (not security.insecure):
        yield Problem(path=("security",), message="set either 'certificates' or 'insecure: true'")
    elif security.insecure and not _only_loopback(file):
        yield Problem(
            path=("security", "insecure"),
            message="is allowed only if all sites listen on loopback",
        )
    elif security.certificates and not (folder / security.certificates).is_dir():
        yield Problem(
            path=("security", "certificates"),
            message="folder not found; create it with: firedex certificates create-authority",
        )


def _join_problems(file: FederationFile) -> Iterator[Problem]:
    for index, text in enumerate(file.join):
        from firedex.certificates.invitations import invitation_problem, parse_invitation

        problem = invitation_problem(parse_invitation(text), has_certificates=file.has_certificates)
        if problem:
            yield Problem(path=("join", index), message=problem)


def _only_loopback(file: FederationFile) -> bool:
    return all(is_loopback(parse_host_port(site.listen)[0]) for site in file.sites)


def _site_problems(file: FederationFile) -> Iterator[Problem]:
    names: set[str] = set()
    addresses: dict[str, str] = {}
    for index, site in enumerate(file.sites):
        if site.id in names:
            yield Problem(path=("sites", index, "id"), message=f"{site.id!r} is used twice")
        names.add(site.id)
        if site.listen in addresses:
            yield Problem(
                path=("sites", index, "listen"),
                message=f"{site.listen} is already the address of site {addresses[site.listen]}",
            )
        addresses[site.listen] = site.id
        if site.authority is None and any(other.authority for other in file.sites):
            yield Problem(
                path=("sites", index, "authority"),
                message="is required, because another site of this file has one",
            )


def _link_problems(file: FederationFile) -> Iterator[Problem]:
    names = {site.id for site in file.sites}
    seen: set[frozenset[str]] = set()
    for index, link in enumerate(file.links):
        for position, name in enumerate(link.between):
            if name not in names:
                yield Problem(
                    path=("links", index, "between", position),
                    message=f"there is no site {name!r}; the sites are {', '.join(sorted(names))}",
                )
        pair = frozenset(link.between)
        if len(pair) == 1:
            yield Problem(path=("links", index, "between"), message="a link needs two sites")
        elif pair in seen:
            yield Problem(path=("links", index, "between"), message="this link is given twice")
        seen.add(pair)


def _scope_problems(file: FederationFile) -> Iterator[Problem]:
    known: dict[str, set[str]] = {}
    for index, dimension in enumerate(file.dimensions):
        names = {scope.id for scope in dimension.scopes}
        known[dimension.name] = names
        for number, scope in enumerate(dimension.scopes):
            for position, parent in enumerate(scope.parents):
                if parent not in names:
                    yield Problem(
                        path=("dimensions", index, "scopes", number, "parents", position),
                        message=f"there is no scope {parent!r} in dimension {dimension.name!r}",
                    )
    for index, site in enumerate(file.sites):
        for dimension_name, scopes in site.scopes.items():
            if file.dimensions and dimension_name not in known:
                yield Problem(
                    path=("sites", index, "scopes", dimension_name),
                    message=f"there is no dimension {dimension_name!r}",
                )
            for scope_name in scopes:
                if dimension_name in known and scope_name not in known[dimension_name]:
                    yield Problem(
                        path=("sites", index, "scopes", dimension_name),
                        message=f"there is no scope {scope_name!r}",
                    )

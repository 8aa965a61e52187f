"""Single values of the state (incident, budgets, network, capabilities) and profiles."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from firedex.service.errors import Conflict, NotFound, PreconditionFailed
from firedex.service.state import tables
from firedex.service.state.change_ledger import Entry
from firedex.service.state.state_reader import setting
from firedex.wire import (
    Network,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    from_json,
    from_plain,
    to_json,
    to_plain,
)
from firedex.wire.errors import InvalidValue
from firedex.wire.incident import (
    Budgets,
    Incident,
    NewIncident,
    PhaseChange,
    UtilityProfile,
)
from firedex.wire.network import missing_path_reason, port_bandwidths

__all__ = [
    "change_phase",
    "check_network",
    "close_incident",
    "open_incident",
    "put_budgets",
    "put_network",
    "put_profile",
    "remove_profile",
    "write_setting",
]

MAX_NAMES = 3


def write_setting(connection: Connection, name: str, body: str, number: int) -> None:
    """Store a single value and replace the previous one."""
    connection.execute(delete(tables.setting).where(tables.setting.c.name == name))
    connection.execute(insert(tables.setting).values(name=name, body=body, change=number))


def open_incident(connection: Connection, number: int, opening: NewIncident) -> Entry:
    """Open an incident; only one can be open."""
    known = setting(connection, "incident", Incident)
    if known is not None and known.closed_at is None:
        raise Conflict(f"the incident {known.title!r} is open; close it first")
    now = datetime.now(UTC)
    incident = Incident(title=opening.title, phase=opening.phase, opened_at=now, phase_since=now)
    write_setting(connection, "incident", to_json(incident), number)
    return Entry(
        action="open-incident", subject=f"incident {opening.title}", detail={"phase": opening.phase}
    )


def change_phase(connection: Connection, number: int, change: PhaseChange) -> Entry:
    """Change the phase of the incident; the profile of the phase applies from now on."""
    incident, phase = _open_incident(connection), change.phase
    if change.expected_phase_since not in (None, incident.phase_since):
        raise PreconditionFailed(
            f"the phase has changed; the incident is now in the phase {incident.phase!r}"
        )
    changed = from_plain(
        Incident,
        {**to_plain(incident), "phase": phase, "phase_since": datetime.now(UTC).isoformat()},
    )
    write_setting(connection, "incident", to_json(changed), number)
    return Entry(
        action="phase",
        subject=f"incident {incident.title}",
        detail={"from": incident.phase, "to": phase},
    )


def close_incident(connection: Connection, number: int) -> Entry:
    """Close the incident; no profile applies any longer."""
    incident = _open_incident(connection)
    changed = from_plain(
        Incident, {**to_plain(incident), "closed_at": datetime.now(UTC).isoformat()}
    )
    write_setting(connection, "incident", to_json(changed), number)
    return Entry(action="close-incident", subject=f"incident {incident.title}")


def _open_incident(connection: Connection) -> Incident:
    incident = setting(connection, "incident", Incident)
    if incident is None or incident.closed_at is not None:
        raise Conflict("no incident is open")
    return incident


def put_profile(connection: Connection, number: int, phase: str, profile: UtilityProfile) -> Entry:
    """Store the profile of a phase."""
    connection.execute(delete(tables.profile).where(tables.profile.c.phase == phase))
    connection.execute(
        insert(tables.profile).values(phase=phase, body=to_json(profile), change=number)
    )
    return Entry(action="profile", subject=f"phase {phase}", detail={"rules": len(profile.rules)})


def remove_profile(connection: Connection, phase: str) -> Entry:
    """Remove the profile of a phase."""
    found = connection.execute(delete(tables.profile).where(tables.profile.c.phase == phase))
    if found.rowcount == 0:
        raise NotFound(f"there is no profile for the phase {phase!r}")
    return Entry(action="remove-profile", subject=f"phase {phase}")


def put_budgets(connection: Connection, number: int, budgets: Budgets) -> Entry:
    """Store the budgets of all roles."""
    write_setting(connection, "budgets", to_json(budgets), number)
    return Entry(action="budgets", subject="roles", detail=to_plain(budgets))


def put_network(connection: Connection, number: int, network: Network, site: Scenario) -> Entry:
    """Replace the network of the scenario file; all registered clients must fit into it."""
    check_network(network, site)
    switches = {("publisher", each.id): each.switch for each in site.publishers}
    for row in connection.execute(
        select(tables.registration.c.kind, tables.registration.c.id, tables.registration.c.body)
    ):
        switches[row.kind, row.id] = _switch_of(row.kind, row.body)
    known = {switch.id for switch in network.switches}
    links = [(link.from_, link.to) for link in network.links]
    linked = {end for link in links for end in link}
    for (kind, identifier), switch in switches.items():
        if switch not in known:
            raise Conflict(
                f"{kind} {identifier!r} is attached to switch {switch!r}, "
                "which the network does not contain"
            )
        reason = missing_path_reason(links, network.broker.switch, switch)
        if reason and (kind == "subscriber" or switch in linked):
            raise Conflict(f"{kind} {identifier!r}: {reason}")
    write_setting(connection, "network", to_json(network), number)
    full = port_bandwidths(site.network)
    reduced = {
        port
        for port, bandwidth in port_bandwidths(network).items()
        if bandwidth < full.get(port, bandwidth)
    }
    return Entry(
        action="network",
        subject=f"{len(known)} switches{_reduced_text(sorted({switch for switch, _ in reduced}))}",
        detail={"reduced": [list(port) for port in sorted(reduced, key=str)]} if reduced else None,
    )


def check_network(network: Network, site: Scenario) -> None:
    """Raise `Conflict` if a network is invalid."""
    try:
        from_plain(
            Scenario,
            {
                **to_plain(site),
                "network": to_plain(network),
                "publishers": [],
                "subscribers": [],
                "assignment": None,
            },
        )
    except InvalidValue as error:
        raise Conflict(str(error)) from error


def _switch_of(kind: str, body: str) -> str:
    if kind == "publisher":
        return from_json(PublisherRegistration, body, tolerant=True).publisher.switch
    return from_json(SubscriberRegistration, body, tolerant=True).subscriber.switch


def _reduced_text(switches: Sequence[str]) -> str:
    if not switches:
        return ""
    more = len(switches) - MAX_NAMES
    names = ", ".join(switches[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f", reduced bandwidth at {names}"

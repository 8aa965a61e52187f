"""The incident, its phases' profiles, budgets, and the network."""

from firedex.service import settings_store
from firedex.service.endpoints import (
    ALL,
    COMMAND,
    STAFF,
    Call,
    Endpoint,
    Reply,
    accepted,
    endpoint,
)
from firedex.service.errors import Unknown
from firedex.service.state_reader import setting
from firedex.wire import Configuration, Network
from firedex.wire.incident import (
    Budgets,
    Incident,
    IncidentOpening,
    PhaseChange,
    PhaseProfile,
    UtilityProfile,
)
from firedex.wire.service_api import Accepted, NetworkView

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
CHANGE = {200: Configuration, 202: Accepted}


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/incident",
    roles=ALL,
    answers={200: Incident},
    refusals=frozenset({404}),
)
def get_incident(call: Call) -> Reply:
    """The incident that is going on, or the last one."""
    with call.service.database.reading() as connection:
        incident = setting(connection, "incident", Incident)
    if incident is None:
        raise Unknown("there has been no incident")
    return Reply(value=incident)


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/incident",
    roles=COMMAND,
    body=IncidentOpening,
    answers=CHANGE,
    changes=True,
    refusals=frozenset({409}),
)
def post_incident(call: Call) -> Reply:
    """Open an incident."""
    opening: IncidentOpening = call.body
    done = call.service.change(
        call.origin,
        lambda connection, number: settings_store.open_incident(connection, number, opening),
    )
    call.service.tell_incident()
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/incident/phase",
    roles=COMMAND,
    body=PhaseChange,
    answers=CHANGE,
    changes=True,
    refusals=frozenset({409, 412}),
)
def put_phase(call: Call) -> Reply:
    """Take the incident into another phase; the phase's utility profile counts from then on."""
    wanted: PhaseChange = call.body
    done = call.service.change(
        call.origin,
        lambda connection, number: settings_store.change_phase(connection, number, wanted),
    )
    call.service.tell_incident()
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/incident",
    roles=COMMAND,
    answers=CHANGE,
    changes=True,
    refusals=frozenset({409}),
)
def delete_incident(call: Call) -> Reply:
    """Close the incident; utilities are the subscribers' own again."""
    done = call.service.change(call.origin, settings_store.close_incident)
    call.service.tell_incident()
    return accepted(done)


@endpoint(ENDPOINTS, "GET", "/v1/profiles", roles=STAFF, answers={200: tuple[PhaseProfile, ...]})
def get_profiles(call: Call) -> Reply:
    """The utility profiles of all phases."""
    profiles = call.service.reader().profiles()
    return Reply(
        value=tuple(
            PhaseProfile(phase=phase, rules=profile.rules) for phase, profile in profiles.items()
        )
    )


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/profiles/{phase}",
    roles=COMMAND,
    body=UtilityProfile,
    answers=CHANGE,
    changes=True,
)
def put_profile(call: Call) -> Reply:
    """Say what a phase makes of utilities."""
    profile: UtilityProfile = call.body
    done = call.service.change(
        call.origin,
        lambda connection, number: settings_store.put_profile(
            connection, number, call.path["phase"], profile
        ),
    )
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/profiles/{phase}",
    roles=COMMAND,
    answers=CHANGE,
    changes=True,
    refusals=frozenset({404}),
)
def delete_profile(call: Call) -> Reply:
    """Let a phase make nothing of utilities."""
    done = call.service.change(
        call.origin,
        lambda connection, _: settings_store.remove_profile(connection, call.path["phase"]),
    )
    return accepted(done)


@endpoint(ENDPOINTS, "GET", "/v1/budgets", roles=ALL, answers={200: Budgets})
def get_budgets(call: Call) -> Reply:
    """What each role may claim."""
    return Reply(value=call.service.reader().budgets())


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/budgets",
    roles=COMMAND,
    body=Budgets,
    answers=CHANGE,
    changes=True,
)
def put_budgets(call: Call) -> Reply:
    """Set what each role may claim: utility for each subscriber, reserved bandwidth for all."""
    budgets: Budgets = call.body
    done = call.service.change(
        call.origin,
        lambda connection, number: settings_store.put_budgets(connection, number, budgets),
    )
    return accepted(done)


@endpoint(ENDPOINTS, "GET", "/v1/network", roles=STAFF, answers={200: NetworkView})
def get_network(call: Call) -> Reply:
    """The network that plans count with: given, or the site's; and who is behind which switch."""
    return Reply(value=call.service.overview.network())


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/network",
    roles=STAFF,
    body=Network,
    answers=CHANGE,
    changes=True,
    refusals=frozenset({409}),
)
def put_network(call: Call) -> Reply:
    """Give the network: switches, bandwidths, links, broker; in place of the site's own."""
    network: Network = call.body
    done = call.service.change(
        call.origin,
        lambda connection, number: settings_store.put_network(
            connection, number, network, call.service.site
        ),
    )
    return accepted(done)

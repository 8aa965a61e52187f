"""Endpoints of the incident, the utility profiles of phases, budgets, and the network."""

from firedex.service.errors import NotFound
from firedex.service.state import settings_store
from firedex.service.state.queries import current_incident
from firedex.service.web.endpoint import (
    ANY_ROLE,
    COMMAND,
    STAFF,
    ApiRequest,
    ApiResponse,
    Endpoint,
    accepted_response,
    endpoint,
)
from firedex.wire import Configuration, Network
from firedex.wire.incident import (
    Budgets,
    Incident,
    NewIncident,
    PhaseChange,
    PhaseProfile,
    UtilityProfile,
)
from firedex.wire.service_api import AcceptedChange, NetworkView

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
CHANGE = {200: Configuration, 202: AcceptedChange}


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/incident",
    roles=ANY_ROLE,
    responses={200: Incident},
    errors=frozenset({404}),
)
def get_incident(request: ApiRequest) -> ApiResponse:
    """Return the open incident, or the last one."""
    incident = current_incident(request.service.database)
    if incident is None:
        raise NotFound("no incident was opened yet")
    return ApiResponse(value=incident)


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/incident",
    roles=COMMAND,
    body=NewIncident,
    responses=CHANGE,
    writes=True,
    errors=frozenset({409}),
)
def post_incident(request: ApiRequest) -> ApiResponse:
    """Open an incident."""
    opening: NewIncident = request.body
    done = request.service.change(
        request.origin,
        lambda connection, number: settings_store.open_incident(connection, number, opening),
    )
    request.service.publish_incident()
    return accepted_response(done)


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/incident/phase",
    roles=COMMAND,
    body=PhaseChange,
    responses=CHANGE,
    writes=True,
    errors=frozenset({409, 412}),
)
def put_phase(request: ApiRequest) -> ApiResponse:
    """Change the phase of the incident. The utility profile of the phase applies from then on."""
    change: PhaseChange = request.body
    done = request.service.change(
        request.origin,
        lambda connection, number: settings_store.change_phase(connection, number, change),
    )
    request.service.publish_incident()
    return accepted_response(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/incident",
    roles=COMMAND,
    responses=CHANGE,
    writes=True,
    errors=frozenset({409}),
)
def delete_incident(request: ApiRequest) -> ApiResponse:
    """Close the incident. The utilities of the subscribers apply without a profile again."""
    done = request.service.change(request.origin, settings_store.close_incident)
    request.service.publish_incident()
    return accepted_response(done)


@endpoint(ENDPOINTS, "GET", "/v1/profiles", roles=STAFF, responses={200: tuple[PhaseProfile, ...]})
def get_profiles(request: ApiRequest) -> ApiResponse:
    """List the utility profiles of all phases."""
    profiles = request.service.reader().profiles()
    return ApiResponse(
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
    responses=CHANGE,
    writes=True,
)
def put_profile(request: ApiRequest) -> ApiResponse:
    """Set the utility profile of a phase."""
    profile: UtilityProfile = request.body
    done = request.service.change(
        request.origin,
        lambda connection, number: settings_store.put_profile(
            connection, number, request.path["phase"], profile
        ),
    )
    return accepted_response(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/profiles/{phase}",
    roles=COMMAND,
    responses=CHANGE,
    writes=True,
    errors=frozenset({404}),
)
def delete_profile(request: ApiRequest) -> ApiResponse:
    """Delete the utility profile of a phase."""
    done = request.service.change(
        request.origin,
        lambda connection, _: settings_store.remove_profile(connection, request.path["phase"]),
    )
    return accepted_response(done)


@endpoint(ENDPOINTS, "GET", "/v1/budgets", roles=ANY_ROLE, responses={200: Budgets})
def get_budgets(request: ApiRequest) -> ApiResponse:
    """Return the budgets of all roles."""
    return ApiResponse(value=request.service.reader().budgets())


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/budgets",
    roles=COMMAND,
    body=Budgets,
    responses=CHANGE,
    writes=True,
)
def put_budgets(request: ApiRequest) -> ApiResponse:
    """Set the budgets of all roles: utility of each subscriber, reserved share of the bandwidth."""
    budgets: Budgets = request.body
    done = request.service.change(
        request.origin,
        lambda connection, number: settings_store.put_budgets(connection, number, budgets),
    )
    return accepted_response(done)


@endpoint(ENDPOINTS, "GET", "/v1/network", roles=STAFF, responses={200: NetworkView})
def get_network(request: ApiRequest) -> ApiResponse:
    """Return the network that plans use, and the switch of each subscriber."""
    return ApiResponse(value=request.service.overview.network())


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/network",
    roles=STAFF,
    body=Network,
    responses=CHANGE,
    writes=True,
    errors=frozenset({409}),
)
def put_network(request: ApiRequest) -> ApiResponse:
    """Replace the network of the site file: switches, bandwidths, links and broker."""
    network: Network = request.body
    done = request.service.change(
        request.origin,
        lambda connection, number: settings_store.put_network(
            connection, number, network, request.service.site
        ),
    )
    return accepted_response(done)

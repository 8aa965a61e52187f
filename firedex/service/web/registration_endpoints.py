"""Endpoints of publishers, subscribers, their subscriptions, and topics."""

from collections.abc import Callable

from firedex.service.errors import BadRequest, Forbidden, NotFound
from firedex.service.planner.planning_scenario import phase_claims
from firedex.service.state.queries import (
    Kind,
    StoredRegistration,
    all_registrations,
    registration,
)
from firedex.service.state.registrations import Ownership
from firedex.service.web.endpoint import (
    ANY_ROLE,
    STAFF,
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    Roles,
    accepted_response,
    endpoint,
)
from firedex.wire import Configuration, PublisherRegistration, SubscriberRegistration, from_json
from firedex.wire.incident import UtilityClaim
from firedex.wire.mqtt_names import check_filter
from firedex.wire.service_api import AcceptedChange, SubscriptionSet, TopicState

__all__ = ["ENDPOINTS", "SUBSCRIBERS", "subscriber_of"]

ENDPOINTS: list[Endpoint] = []
SUBSCRIBERS: Roles = STAFF | {"subscriber"}
PUBLISHERS: Roles = STAFF | {"publisher"}
CHANGE = {200: Configuration, 202: AcceptedChange}


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/subscribers/{id}",
    roles=SUBSCRIBERS,
    body=SubscriberRegistration,
    responses=CHANGE,
    writes=True,
    conditional=True,
    errors=frozenset({409}),
)
def put_subscriber(request: ApiRequest) -> ApiResponse:
    """Register a subscriber with all of its subscriptions, or replace its registration."""
    given: SubscriberRegistration = request.body
    identifier = request.path["id"]
    request.identity.require("subscriber", identifier)
    if given.subscriber.id != identifier:
        raise BadRequest(
            f"subscriber.id is {given.subscriber.id!r}, but the path names {identifier!r}"
        )
    _crew_role_check(request)(given)
    registrations = request.service.registrations
    done = request.service.change(
        request.origin,
        lambda connection, number: registrations.put_subscriber(
            connection, number, given, request.condition, _ownership(request)
        ),
    )
    return accepted_response(done, subscriber=identifier)


def _ownership(request: ApiRequest) -> Ownership:
    """Return the owner of a new registration; staff do not change the owner of an existing one."""
    return Ownership(owner=request.identity.owner, keep=request.identity.is_staff)


def _crew_role_check(request: ApiRequest) -> Callable[[SubscriberRegistration], None]:
    """Return a check that a registration has the crew role of the caller's token."""

    def check(registered: SubscriberRegistration) -> None:
        own, role = request.identity.crew_role, registered.subscriber.role
        if own is not None and role != own:
            raise Forbidden(
                f"the token {request.identity.name!r} is for the role {own!r}, not {role!r}; "
                f"register with the role {own!r}"
            )

    return check


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/publishers/{id}",
    roles=PUBLISHERS,
    body=PublisherRegistration,
    responses=CHANGE,
    writes=True,
    conditional=True,
    errors=frozenset({409}),
)
def put_publisher(request: ApiRequest) -> ApiResponse:
    """Register a publisher with its topics and rates, or replace its registration."""
    given: PublisherRegistration = request.body
    identifier = request.path["id"]
    request.identity.require("publisher", identifier)
    if given.publisher.id != identifier:
        raise BadRequest(
            f"publisher.id is {given.publisher.id!r}, but the path names {identifier!r}"
        )
    registrations = request.service.registrations
    done = request.service.change(
        request.origin,
        lambda connection, number: registrations.put_publisher(
            connection, number, given, request.condition, _ownership(request)
        ),
    )
    return accepted_response(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/subscribers/{id}",
    roles=SUBSCRIBERS,
    responses=CHANGE,
    writes=True,
    conditional=True,
    errors=frozenset({404}),
)
def delete_subscriber(request: ApiRequest) -> ApiResponse:
    """Delete a subscriber with all of its subscriptions."""
    return _remove(request, "subscriber")


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/publishers/{id}",
    roles=PUBLISHERS,
    responses=CHANGE,
    writes=True,
    conditional=True,
    errors=frozenset({404}),
)
def delete_publisher(request: ApiRequest) -> ApiResponse:
    """Delete a publisher. Its topics stay while they are published or subscribed to."""
    return _remove(request, "publisher")


def _remove(request: ApiRequest, kind: Kind) -> ApiResponse:
    request.identity.require(kind, request.path["id"])
    registrations = request.service.registrations
    done = request.service.change(
        request.origin,
        lambda connection, _: registrations.remove(
            connection, kind, request.path["id"], request.condition
        ),
    )
    return accepted_response(done, subscriber=request.path["id"] if kind == "subscriber" else None)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers/{id}",
    roles=SUBSCRIBERS,
    responses={200: SubscriberRegistration},
    has_etag=True,
    errors=frozenset({404}),
)
def get_subscriber(request: ApiRequest) -> ApiResponse:
    """Return the registration of a subscriber. The ETag is its revision, for If-Match."""
    found = registration_of(request, "subscriber", request.path["id"])
    return ApiResponse(value=found.body, headers=_etag(found.revision))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/publishers/{id}",
    roles=PUBLISHERS,
    responses={200: PublisherRegistration},
    has_etag=True,
    errors=frozenset({404}),
)
def get_publisher(request: ApiRequest) -> ApiResponse:
    """Return the registration of a publisher. The ETag is its revision, for If-Match."""
    found = registration_of(request, "publisher", request.path["id"])
    return ApiResponse(value=found.body, headers=_etag(found.revision))


def registration_of(request: ApiRequest, kind: Kind, name: str) -> StoredRegistration:
    """Return a registration; raise `Forbidden` or `NotFound` if the caller may not see it."""
    request.identity.require(kind, name)
    found = registration(request.service.database, kind, name)
    if found is None:
        raise NotFound(f"there is no {kind} {name!r}")
    return found


def subscriber_of(request: ApiRequest, name: str) -> tuple[SubscriberRegistration, int]:
    """Return the registration of a subscriber, and its revision."""
    found = registration_of(request, "subscriber", name)
    return from_json(SubscriberRegistration, found.body.text, tolerant=True), found.revision


def _etag(revision: int) -> dict[str, str]:
    return {"ETag": f'"{revision}"'}


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers",
    roles=STAFF,
    responses={200: tuple[SubscriberRegistration, ...]},
)
def get_subscribers(request: ApiRequest) -> ApiResponse:
    """List all subscribers, oldest registration first."""
    return ApiResponse(value=all_registrations(request.service.database, "subscriber"))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/publishers",
    roles=STAFF,
    responses={200: tuple[PublisherRegistration, ...]},
)
def get_publishers(request: ApiRequest) -> ApiResponse:
    """List all publishers, oldest registration first."""
    return ApiResponse(value=all_registrations(request.service.database, "publisher"))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers/{id}/subscriptions",
    roles=SUBSCRIBERS,
    responses={200: SubscriptionSet},
    has_etag=True,
    errors=frozenset({404}),
)
def get_subscriptions(request: ApiRequest) -> ApiResponse:
    """List the subscriptions of a subscriber."""
    registered, revision = subscriber_of(request, request.path["id"])
    subscriptions = SubscriptionSet(subscriptions=registered.subscriber.subscriptions)
    return ApiResponse(value=subscriptions, headers=_etag(revision))


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/subscribers/{id}/subscriptions",
    roles=SUBSCRIBERS,
    body=SubscriptionSet,
    responses=CHANGE,
    writes=True,
    conditional=True,
    errors=frozenset({404, 409}),
)
def post_subscriptions(request: ApiRequest) -> ApiResponse:
    """Add subscriptions, and replace those with the same filter. All or none are stored."""
    request.identity.require("subscriber", request.path["id"])
    registrations = request.service.registrations
    wanted: SubscriptionSet = request.body
    done = request.service.change(
        request.origin,
        lambda connection, number: registrations.put_subscriptions(
            connection,
            number,
            request.path["id"],
            wanted.subscriptions,
            request.condition,
            _crew_role_check(request),
        ),
    )
    return accepted_response(done, subscriber=request.path["id"])


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/subscribers/{id}/subscriptions",
    roles=SUBSCRIBERS,
    responses=CHANGE,
    writes=True,
    conditional=True,
    errors=frozenset({404}),
    query=(
        Query(
            name="filter",
            description="Filter of the subscription to delete. May be given several times.",
            schema={"type": "string", "minLength": 1},
            required=True,
            repeated=True,
        ),
    ),
)
def delete_subscriptions(request: ApiRequest) -> ApiResponse:
    """Delete subscriptions by their filters. All or none are deleted."""
    request.identity.require("subscriber", request.path["id"])
    for name in request.query["filter"]:
        try:
            check_filter(name)
        except ValueError as error:
            raise BadRequest(str(error)) from error
    registrations = request.service.registrations
    done = request.service.change(
        request.origin,
        lambda connection, number: registrations.remove_subscriptions(
            connection,
            number,
            request.path["id"],
            request.query["filter"],
            request.condition,
            _crew_role_check(request),
        ),
    )
    return accepted_response(done, subscriber=request.path["id"])


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers/{id}/configuration",
    roles=SUBSCRIBERS,
    responses={200: Configuration, 304: None},
    has_etag=True,
    errors=frozenset({404}),
)
def get_subscriber_configuration(request: ApiRequest) -> ApiResponse:
    """Return the active configuration with the flows and predictions of one subscriber."""
    identifier = request.path["id"]
    request.identity.require("subscriber", identifier)
    now = request.service.active
    if now is None or identifier not in now.document.pieces:
        raise NotFound(f"the active configuration has no flows for subscriber {identifier!r}")
    tag = f'"{now.version}"'
    if tag in request.known_etags:
        return ApiResponse(status=304, headers={"ETag": tag})
    return ApiResponse(value=now.document.for_subscriber(identifier), headers={"ETag": tag})


@endpoint(ENDPOINTS, "GET", "/v1/topics", roles=ANY_ROLE, responses={200: tuple[TopicState, ...]})
def get_topics(request: ApiRequest) -> ApiResponse:
    """List all topics, with declared and measured rates."""
    return ApiResponse(value=request.service.topics())


@endpoint(ENDPOINTS, "GET", "/v1/claims", roles=STAFF, responses={200: tuple[UtilityClaim, ...]})
def get_claims(request: ApiRequest) -> ApiResponse:
    """List the utility that each subscriber claims in this phase, and the share granted to it."""
    return ApiResponse(value=phase_claims(request.service.reader().read()))

"""Publishers, subscribers, their subscriptions and topics."""

from collections.abc import Callable

from sqlalchemy import select

from firedex.service import tables
from firedex.service.endpoints import (
    ALL,
    STAFF,
    BadRequest,
    Call,
    Endpoint,
    Query,
    Reply,
    Roles,
    accepted,
    endpoint,
)
from firedex.service.errors import NotYours, Unknown
from firedex.service.planning_scenario import in_phase
from firedex.service.utility_budgets import claim, granted_share
from firedex.wire import Configuration, PublisherRegistration, SubscriberRegistration, from_json
from firedex.wire.incident import Claim
from firedex.wire.mqtt_names import check_filter
from firedex.wire.service_api import Accepted, SubscriptionSet, TopicState

__all__ = ["ENDPOINTS", "SUBSCRIBERS", "registration_of"]

ENDPOINTS: list[Endpoint] = []
SUBSCRIBERS: Roles = STAFF | {"subscriber"}
PUBLISHERS: Roles = STAFF | {"publisher"}
CHANGE = {200: Configuration, 202: Accepted}


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/subscribers/{id}",
    roles=SUBSCRIBERS,
    body=SubscriberRegistration,
    answers=CHANGE,
    changes=True,
    conditional=True,
    refusals=frozenset({409}),
)
def put_subscriber(call: Call) -> Reply:
    """Register a subscriber with all of its subscriptions; replaces what it had."""
    registration: SubscriberRegistration = call.body
    identifier = call.path["id"]
    call.identity.require("subscriber", identifier)
    if registration.subscriber.id != identifier:
        raise BadRequest(
            f"the path says {identifier!r}, subscriber.id says {registration.subscriber.id!r}"
        )
    _crew_role_check(call)(registration)
    registrations = call.service.registrations
    done = call.service.change(
        call.origin,
        lambda connection, number: registrations.put_subscriber(
            connection, number, registration, call.condition
        ),
    )
    return accepted(done)


def _crew_role_check(call: Call) -> Callable[[SubscriberRegistration], None]:
    """Nobody has a registration of another crew role than its token's, nor keeps one."""

    def check(registration: SubscriberRegistration) -> None:
        own, role = call.identity.crew_role, registration.subscriber.role
        if own is not None and role != own:
            raise NotYours(
                f"the token {call.identity.name!r} is for the role {own!r}, not {role!r}; "
                "register anew"
            )

    return check


@endpoint(
    ENDPOINTS,
    "PUT",
    "/v1/publishers/{id}",
    roles=PUBLISHERS,
    body=PublisherRegistration,
    answers=CHANGE,
    changes=True,
    conditional=True,
    refusals=frozenset({409}),
)
def put_publisher(call: Call) -> Reply:
    """Register a publisher, its topics and rates; replaces what it had."""
    registration: PublisherRegistration = call.body
    identifier = call.path["id"]
    call.identity.require("publisher", identifier)
    if registration.publisher.id != identifier:
        raise BadRequest(
            f"the path says {identifier!r}, publisher.id says {registration.publisher.id!r}"
        )
    registrations = call.service.registrations
    done = call.service.change(
        call.origin,
        lambda connection, number: registrations.put_publisher(
            connection, number, registration, call.condition
        ),
    )
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/subscribers/{id}",
    roles=SUBSCRIBERS,
    answers=CHANGE,
    changes=True,
    conditional=True,
    refusals=frozenset({404}),
)
def delete_subscriber(call: Call) -> Reply:
    """Remove a subscriber with everything it has."""
    return _remove(call, "subscriber")


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/publishers/{id}",
    roles=PUBLISHERS,
    answers=CHANGE,
    changes=True,
    conditional=True,
    refusals=frozenset({404}),
)
def delete_publisher(call: Call) -> Reply:
    """Remove a publisher; topics that it declared stay while somebody needs them."""
    return _remove(call, "publisher")


def _remove(call: Call, kind: str) -> Reply:
    call.identity.require(kind, call.path["id"])  # type: ignore[arg-type]
    registrations = call.service.registrations
    done = call.service.change(
        call.origin,
        lambda connection, _: registrations.remove(
            connection, kind, call.path["id"], call.condition
        ),
    )
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers/{id}",
    roles=SUBSCRIBERS,
    answers={200: SubscriberRegistration},
    tagged=True,
    refusals=frozenset({404}),
)
def get_subscriber(call: Call) -> Reply:
    """A subscriber as registered; its revision is the ETag, for If-Match."""
    return _one(call, "subscriber", call.path["id"])


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/publishers/{id}",
    roles=PUBLISHERS,
    answers={200: PublisherRegistration},
    tagged=True,
    refusals=frozenset({404}),
)
def get_publisher(call: Call) -> Reply:
    """A publisher as registered; its revision is the ETag, for If-Match."""
    return _one(call, "publisher", call.path["id"])


def _one(call: Call, kind: str, name: str) -> Reply:
    call.identity.require(kind, name)  # type: ignore[arg-type]
    where = tables.registration.c
    with call.service.database.reading() as connection:
        row = connection.execute(
            select(where.body, where.change).where(where.kind == kind, where.id == name)
        ).first()
    if row is None:
        raise Unknown(f"there is no {kind} {name!r}")
    return Reply(text=row.body, headers={"ETag": f'"{row.change}"'})


def registration_of(call: Call, subscriber: str) -> tuple[SubscriberRegistration, str]:
    """A subscriber as registered and its revision, if the caller may see it."""
    found = _one(call, "subscriber", subscriber)
    registration = from_json(SubscriberRegistration, found.text or "", tolerant=True)
    return registration, found.headers["ETag"].strip('"')


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers",
    roles=STAFF,
    answers={200: tuple[SubscriberRegistration, ...]},
)
def get_subscribers(call: Call) -> Reply:
    """All subscribers, in the order in which they came."""
    return _all(call, "subscriber")


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/publishers",
    roles=STAFF,
    answers={200: tuple[PublisherRegistration, ...]},
)
def get_publishers(call: Call) -> Reply:
    """All publishers, in the order in which they came."""
    return _all(call, "publisher")


def _all(call: Call, kind: str) -> Reply:
    where = tables.registration.c
    with call.service.database.reading() as connection:
        bodies = connection.execute(
            select(where.body).where(where.kind == kind).order_by(where.first_change)
        ).scalars()
        return Reply(text=f"[{','.join(bodies)}]")


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers/{id}/subscriptions",
    roles=SUBSCRIBERS,
    answers={200: SubscriptionSet},
    tagged=True,
    refusals=frozenset({404}),
)
def get_subscriptions(call: Call) -> Reply:
    """What a subscriber has subscribed to."""
    found = _one(call, "subscriber", call.path["id"])
    registration = from_json(SubscriberRegistration, found.text or "", tolerant=True)
    wanted = SubscriptionSet(subscriptions=registration.subscriber.subscriptions)
    return Reply(value=wanted, headers=found.headers)


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/subscribers/{id}/subscriptions",
    roles=SUBSCRIBERS,
    body=SubscriptionSet,
    answers=CHANGE,
    changes=True,
    conditional=True,
    refusals=frozenset({404, 409}),
)
def post_subscriptions(call: Call) -> Reply:
    """Add subscriptions, or change the utility of those of the same filter; all at once."""
    call.identity.require("subscriber", call.path["id"])
    registrations = call.service.registrations
    wanted: SubscriptionSet = call.body
    done = call.service.change(
        call.origin,
        lambda connection, number: registrations.put_subscriptions(
            connection,
            number,
            call.path["id"],
            wanted.subscriptions,
            call.condition,
            _crew_role_check(call),
        ),
    )
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "DELETE",
    "/v1/subscribers/{id}/subscriptions",
    roles=SUBSCRIBERS,
    answers=CHANGE,
    changes=True,
    conditional=True,
    refusals=frozenset({404}),
    query=(
        Query(
            name="filter",
            about="The filter to remove; may be given several times.",
            schema={"type": "string", "minLength": 1},
            required=True,
            many=True,
        ),
    ),
)
def delete_subscriptions(call: Call) -> Reply:
    """Remove subscriptions; all that are named, or none."""
    call.identity.require("subscriber", call.path["id"])
    for name in call.query["filter"]:
        try:
            check_filter(name)
        except ValueError as error:
            raise BadRequest(str(error)) from error
    registrations = call.service.registrations
    done = call.service.change(
        call.origin,
        lambda connection, number: registrations.remove_subscriptions(
            connection,
            number,
            call.path["id"],
            call.query["filter"],
            call.condition,
            _crew_role_check(call),
        ),
    )
    return accepted(done)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscribers/{id}/configuration",
    roles=SUBSCRIBERS,
    answers={200: Configuration, 304: None},
    tagged=True,
    refusals=frozenset({404}),
)
def get_subscriber_configuration(call: Call) -> Reply:
    """What is in force for one subscriber: its flows and its predictions."""
    identifier = call.path["id"]
    call.identity.require("subscriber", identifier)
    now = call.service.in_force
    if now is None or identifier not in now.document.pieces:
        raise Unknown(f"nothing is in force for subscriber {identifier!r}")
    tag = f'"{now.version}"'
    if tag in call.seen:
        return Reply(status=304, headers={"ETag": tag})
    return Reply(text=now.document.of(identifier), headers={"ETag": tag})


@endpoint(ENDPOINTS, "GET", "/v1/topics", roles=ALL, answers={200: tuple[TopicState, ...]})
def get_topics(call: Call) -> Reply:
    """All topics, with declared and measured rates."""
    return Reply(value=call.service.topics())


@endpoint(ENDPOINTS, "GET", "/v1/claims", roles=STAFF, answers={200: tuple[Claim, ...]})
def get_claims(call: Call) -> Reply:
    """What each subscriber's utilities come to in this phase, and what its budget grants of it."""
    state = call.service.reader().read()
    claims = []
    for name, registration in state.subscribers.items():
        subscriber = in_phase(registration.subscriber, state)
        share = granted_share(subscriber, state.budgets)
        claims.append(Claim(subscriber=name, asked=claim(subscriber), granted_share=share))
    return Reply(value=tuple(claims))

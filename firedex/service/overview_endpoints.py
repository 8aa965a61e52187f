"""What people look at: who they are, the site now, subscriptions, switches, how it has been."""

import re
import time
from base64 import b64encode
from pathlib import Path

from firedex.service.class_history import history
from firedex.service.endpoints import ALL, STAFF, Call, Endpoint, Query, Reply, endpoint
from firedex.service.errors import Unknown
from firedex.service.query_parameters import IDENTIFIER
from firedex.service.registration_endpoints import SUBSCRIBERS, registration_of
from firedex.service.site_overview import subscription_views
from firedex.wire.overview import (
    ClassHistory,
    Overview,
    SubscriptionView,
    SwitchView,
    Visitor,
)

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
HOUR_SECONDS = 3600.0
USUAL_STEPS, MOST_STEPS = 360, 8640
MOMENT = {"type": "number", "minimum": 0, "maximum": 1e11}


@endpoint(ENDPOINTS, "GET", "/v1/visitor", roles=ALL, answers={200: Visitor})
def get_visitor(call: Call) -> Reply:
    """Who the token stands for."""
    who = call.identity
    return Reply(value=Visitor(name=who.name, role=who.role, party=who.party))


@endpoint(ENDPOINTS, "GET", "/v1/overview", roles=STAFF, answers={200: Overview})
def get_overview(call: Call) -> Reply:
    """The site now: incident, utility, classes measured beside predicted, links, parts, alerts."""
    return Reply(value=call.service.overview.now())


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscriptions",
    roles=SUBSCRIBERS,
    answers={200: tuple[SubscriptionView, ...], 304: None},
    query=(
        Query(
            name="subscriber",
            about="Only this subscriber's; a subscriber's token sees its own in any case.",
            schema=IDENTIFIER,
        ),
    ),
    tagged=True,
    refusals=frozenset({404}),
)
def get_all_subscriptions(call: Call) -> Reply:
    """Every subscription, with its class and what is predicted for it."""
    name = call.query.get("subscriber")
    if name is None and call.identity.role == "subscriber":
        name = call.identity.party
    if name is not None:
        return _of_one(call, name)
    tag, views = call.service.overview.subscriptions(call.seen)
    if views is None:
        return Reply(status=304, headers={"ETag": tag})
    return Reply(value=views, headers={"ETag": tag})


def _of_one(call: Call, name: str) -> Reply:
    registration, revision = registration_of(call, name)
    now = call.service.in_force
    tag = f'"{now.version if now else 0}-{revision}-{name}"'
    if tag in call.seen:
        return Reply(status=304, headers={"ETag": tag})
    prediction = None
    if now is not None and name in now.document.pieces:
        prediction = now.document.value_of(name).prediction
    views = subscription_views([registration], prediction.subscriptions if prediction else ())
    return Reply(value=views, headers={"ETag": tag})


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/switches/{id}",
    roles=STAFF,
    answers={200: SwitchView},
    refusals=frozenset({404}),
)
def get_switch(call: Call) -> Reply:
    """A switch's rules, queues and meters with their counters, as the controller says."""
    name = call.path["id"]
    seen = call.service.network_watch.now()
    desired = seen.desired.switches if seen.desired else ()
    topology, statistics = seen.observed.topology, seen.observed.statistics
    found = SwitchView(
        switch=name,
        desired=next((each for each in desired if each.switch == name), None),
        status=next(
            (each for each in (topology.switches if topology else ()) if each.switch == name), None
        ),
        statistics=next(
            (each for each in (statistics.switches if statistics else ()) if each.switch == name),
            None,
        ),
    )
    known = {switch.id for switch in call.service.overview.network().network.switches}
    if name not in known and found.status is None:
        raise Unknown(f"there is no switch {name!r}")
    return Reply(value=found)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/history",
    roles=STAFF,
    answers={200: tuple[ClassHistory, ...]},
    query=(
        Query(name="from_seconds", about="Since the epoch; an hour ago by default.", schema=MOMENT),
        Query(name="to_seconds", about="Since the epoch; now by default.", schema=MOMENT),
        Query(
            name="most_steps",
            about="Of each class; longer steps are made of several, so that there are no more.",
            schema={
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_STEPS,
                "default": USUAL_STEPS,
            },
        ),
    ),
)
def get_history(call: Call) -> Reply:
    """What clients measured of each class, in steps of ten seconds or more, in the last day."""
    to = call.query.get("to_seconds", time.time())
    since = call.query.get("from_seconds", to - HOUR_SECONDS)
    most = call.query.get("most_steps", USUAL_STEPS)
    return Reply(value=tuple(history(call.service.database, since, to, most)))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/validation-report",
    roles=STAFF,
    answers={200: str},
    mimetype="text/html",
    refusals=frozenset({404}),
)
def get_validation_report(call: Call) -> Reply:
    """The validation report that the service was started with, a page of HTML."""
    path: Path | None = call.service.options.validation_report
    if path is None or not path.is_file():
        raise Unknown("there is no validation report; start with --validation-report FILE")
    return Reply(text=_with_pictures(path), mimetype="text/html")


def _with_pictures(page: Path) -> str:
    """The page with the pictures beside it inside it: it is opened where they cannot be reached."""

    def embed(found: re.Match[str]) -> str:
        picture = page.parent / found[1]
        if not picture.is_file():
            return found[0]
        return f"src='data:image/png;base64,{b64encode(picture.read_bytes()).decode()}'"

    return re.sub(r"src='([\w-]+\.png)'", embed, page.read_text(encoding="utf-8"))

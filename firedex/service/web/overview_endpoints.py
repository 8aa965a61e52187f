"""Endpoints of the dashboard: caller, overview, subscriptions, switches, history, report."""

import re
import time
from base64 import b64encode
from pathlib import Path

from firedex.service.errors import NotFound
from firedex.service.insight.site_overview import subscription_views
from firedex.service.state.class_history import history
from firedex.service.web.endpoint import (
    ANY_ROLE,
    IDENTIFIER,
    STAFF,
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    endpoint,
)
from firedex.service.web.registration_endpoints import SUBSCRIBERS, subscriber_of
from firedex.wire.overview import (
    ClassHistory,
    Overview,
    SubscriptionView,
    SwitchView,
    TokenIdentity,
)

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
HOUR_SECONDS = 3600.0
DEFAULT_STEPS, MAX_STEPS = 360, 8640
EPOCH_SECONDS = {"type": "number", "minimum": 0, "maximum": 1e11}


@endpoint(ENDPOINTS, "GET", "/v1/visitor", roles=ANY_ROLE, responses={200: TokenIdentity})
def get_visitor(request: ApiRequest) -> ApiResponse:
    """Return the identity that the token stands for."""
    identity = request.identity
    return ApiResponse(
        value=TokenIdentity(name=identity.name, role=identity.role, client=identity.client)
    )


@endpoint(ENDPOINTS, "GET", "/v1/overview", roles=STAFF, responses={200: Overview})
def get_overview(request: ApiRequest) -> ApiResponse:
    """Return the site now: incident, utility, classes, links, components and alerts."""
    return ApiResponse(value=request.service.overview.now())


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/subscriptions",
    roles=SUBSCRIBERS,
    responses={200: tuple[SubscriptionView, ...], 304: None},
    query=(
        Query(
            name="subscriber",
            description="Return entries of this subscriber only. With the token of a subscriber, "
            "the response has only the entries of that subscriber.",
            schema=IDENTIFIER,
        ),
    ),
    has_etag=True,
    errors=frozenset({404}),
)
def get_all_subscriptions(request: ApiRequest) -> ApiResponse:
    """List all subscriptions, each with its class and its prediction."""
    name = request.query.get("subscriber")
    if name is None and request.identity.role == "subscriber":
        name = request.identity.client
    if name is not None:
        return _subscriptions_of(request, name)
    tag, views = request.service.overview.subscriptions(request.known_etags)
    if views is None:
        return ApiResponse(status=304, headers={"ETag": tag})
    return ApiResponse(value=views, headers={"ETag": tag})


def _subscriptions_of(request: ApiRequest, name: str) -> ApiResponse:
    registration, revision = subscriber_of(request, name)
    now = request.service.active
    tag = f'"{now.version if now else 0}-{revision}-{name}"'
    if tag in request.known_etags:
        return ApiResponse(status=304, headers={"ETag": tag})
    predictions = now.document.predictions_of(name) if now else ()
    views = subscription_views([registration], predictions)
    return ApiResponse(value=views, headers={"ETag": tag})


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/switches/{id}",
    roles=STAFF,
    responses={200: SwitchView},
    errors=frozenset({404}),
)
def get_switch(request: ApiRequest) -> ApiResponse:
    """Return the rules, queues and meters of a switch, with the controller's counters."""
    name = request.path["id"]
    seen = request.service.network_watch.now()
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
    known = {switch.id for switch in request.service.overview.network().network.switches}
    if name not in known and found.status is None:
        raise NotFound(f"there is no switch {name!r}")
    return ApiResponse(value=found)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/history",
    roles=STAFF,
    responses={200: tuple[ClassHistory, ...]},
    query=(
        Query(
            name="from_seconds",
            description="Start of the period, in seconds since the epoch. The default is an hour "
            "before the end.",
            schema=EPOCH_SECONDS,
        ),
        Query(
            name="to_seconds",
            description="End of the period, in seconds since the epoch. The default is now.",
            schema=EPOCH_SECONDS,
        ),
        Query(
            name="most_steps",
            description="Return at most this many steps of each class. Long periods have longer "
            "steps.",
            schema={
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_STEPS,
                "default": DEFAULT_STEPS,
            },
        ),
    ),
)
def get_history(request: ApiRequest) -> ApiResponse:
    """List what clients measured for each class in the last day, in steps of 10 s or more."""
    to = request.query.get("to_seconds", time.time())
    since = request.query.get("from_seconds", to - HOUR_SECONDS)
    most = request.query.get("most_steps", DEFAULT_STEPS)
    return ApiResponse(value=tuple(history(request.service.database, since, to, most)))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/validation-report",
    roles=STAFF,
    responses={200: str},
    mimetype="text/html",
    errors=frozenset({404}),
)
def get_validation_report(request: ApiRequest) -> ApiResponse:
    """Return the validation report (HTML) given with --validation-report."""
    path: Path | None = request.service.options.validation_report
    if path is None or not path.is_file():
        raise NotFound(
            "there is no validation report; start the service with --validation-report FILE"
        )
    return ApiResponse(text=_with_images(path), mimetype="text/html")


def _with_images(page: Path) -> str:
    """Return the page with its images embedded, because browsers open it without its folder."""

    def embed(found: re.Match[str]) -> str:
        image = page.parent / found[1]
        if not image.is_file():
            return found[0]
        return f"src='data:image/png;base64,{b64encode(image.read_bytes()).decode()}'"

    return re.sub(r"src='([\w-]+\.png)'", embed, page.read_text(encoding="utf-8"))

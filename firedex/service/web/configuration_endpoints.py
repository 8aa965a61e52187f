"""Endpoints of configurations: active, earlier, differences, what-if plans, and the status."""

from firedex.service.errors import NotFound, Unavailable
from firedex.service.planner.configuration_difference import difference
from firedex.service.planner.what_if import answer_what_if
from firedex.service.web.endpoint import (
    GATEWAY,
    STAFF,
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    endpoint,
)
from firedex.wire import Configuration, Prediction
from firedex.wire.service_api import (
    ConfigurationDifference,
    ConfigurationRecord,
    ServiceStatus,
    WhatIfRequest,
    WhatIfResult,
)

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
NONE_YET = "no configuration is active yet"
LIMIT = Query(
    name="limit",
    description="Return at most this many entries.",
    schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
)
BEFORE = Query(
    name="before",
    description="Return only entries with a smaller number. Use it to read the next page.",
    schema={"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configuration",
    roles=STAFF | GATEWAY,
    responses={200: Configuration, 304: None},
    has_etag=True,
    errors=frozenset({404}),
)
def get_configuration(request: ApiRequest) -> ApiResponse:
    """Return the active configuration with all flows. The ETag is its version."""
    active = request.service.active
    if active is None:
        raise NotFound(NONE_YET)
    tag = f'"{active.version}"'
    if tag in request.known_etags:
        return ApiResponse(status=304, headers={"ETag": tag})
    return ApiResponse(value=active.document.whole(), headers={"ETag": tag})


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/predictions",
    roles=STAFF,
    responses={200: Prediction},
    errors=frozenset({404}),
)
def get_predictions(request: ApiRequest) -> ApiResponse:
    """Return the predictions of all subscriptions under the active configuration."""
    active = request.service.active
    prediction = active.document.value().prediction if active else None
    if prediction is None:
        raise NotFound(NONE_YET)
    return ApiResponse(value=prediction)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configurations",
    roles=STAFF,
    responses={200: tuple[ConfigurationRecord, ...]},
    query=(BEFORE, LIMIT),
)
def get_configurations(request: ApiRequest) -> ApiResponse:
    """List all configurations, newest first, with reason, timing and outcome."""
    records = request.service.configurations.records(
        request.query.get("before"), request.query.get("limit", 100)
    )
    return ApiResponse(value=tuple(records))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configurations/{version}",
    roles=STAFF,
    responses={200: Configuration},
    errors=frozenset({404}),
)
def get_one_configuration(request: ApiRequest) -> ApiResponse:
    """Return one configuration with all flows."""
    document = request.service.configurations.document(int(request.path["version"]))
    if document is None:
        raise NotFound(f"there is no configuration {request.path['version']}")
    return ApiResponse(value=document.whole())


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configurations/{version}/difference/{to_version}",
    roles=STAFF,
    responses={200: ConfigurationDifference},
    errors=frozenset({404}),
)
def get_difference(request: ApiRequest) -> ApiResponse:
    """List what changed from one configuration to another."""
    found = []
    for name in ("version", "to_version"):
        document = request.service.configurations.document(int(request.path[name]))
        if document is None:
            raise NotFound(f"there is no configuration {request.path[name]}")
        found.append(document.value())
    before, after = found
    return ApiResponse(value=difference(before.version, before.flows, after.version, after.flows))


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/what-if",
    roles=STAFF,
    body=WhatIfRequest,
    responses={200: WhatIfResult},
    errors=frozenset({409, 503}),
)
def post_what_if(request: ApiRequest) -> ApiResponse:
    """Plan for a hypothetical change without applying it."""
    service = request.service
    if not service.planning.acquire(timeout=10.0):
        raise Unavailable("another what-if plan is being computed; retry later")
    try:
        state = service.reader().read()
        active = service.active.document.value() if service.active else None
        return ApiResponse(
            value=answer_what_if(service.options.settings, state, active, request.body)
        )
    finally:
        service.planning.release()


@endpoint(ENDPOINTS, "GET", "/v1/status", roles=STAFF, responses={200: ServiceStatus})
def get_status(request: ApiRequest) -> ApiResponse:
    """Return the status: the active configuration, pending changes and errors."""
    return ApiResponse(value=request.service.status())

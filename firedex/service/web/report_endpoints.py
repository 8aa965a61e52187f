"""Endpoints of statistics, heartbeats, deviations and the audit log; health and time."""

import time
from typing import Annotated

from pydantic import Field

from firedex.service.core import Event
from firedex.service.errors import Conflict, Forbidden
from firedex.service.insight.views import deviations
from firedex.service.state.class_history import ReportedFlow
from firedex.service.state.configuration_store import ActiveConfiguration
from firedex.service.state.queries import audit_entries
from firedex.service.state.report_store import GATEWAY as GATEWAY_REPORTER
from firedex.service.state.report_store import ReportStore
from firedex.service.web.configuration_endpoints import BEFORE, LIMIT
from firedex.service.web.endpoint import (
    ANY_ROLE,
    GATEWAY,
    IDENTIFIER,
    PUBLIC,
    STAFF,
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    endpoint,
)
from firedex.wire import Flow, Heartbeat, Statistics
from firedex.wire.service_api import (
    AuditEntry,
    Deviation,
    Health,
    HeartbeatRecord,
    ReceivedReports,
    ServiceTime,
)

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
Reports = Annotated[tuple[Statistics, ...], Field(max_length=10_000)]
RECENT_SECONDS = 600.0
GATEWAY_PARTS = frozenset({"gateway", "broker"})
"""Kinds of components whose heartbeats a gateway may send: its own, and that of the broker."""
SUBSCRIBER = Query(
    name="subscriber",
    description="Return entries of this subscriber only.",
    schema=IDENTIFIER,
)


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/statistics",
    roles=STAFF | GATEWAY | {"subscriber"},
    body=Reports,
    responses={202: ReceivedReports},
    errors=frozenset({409}),
)
def post_statistics(request: ApiRequest) -> ApiResponse:
    """Report statistics of flows. A subscriber reports its own flows, a gateway all flows."""
    reports: tuple[Statistics, ...] = request.body
    trusted = request.identity.role in STAFF | GATEWAY
    most_flows = request.service.site.planning.flows_per_subscriber
    if request.identity.role in GATEWAY and any(r.reporter != GATEWAY_REPORTER for r in reports):
        raise Forbidden(f"the reporter of a gateway must be {GATEWAY_REPORTER!r}")
    if not trusted:
        own = request.identity.client
        for report in reports:
            request.identity.require("subscriber", report.subscriber)
            if report.reporter != own:
                raise Forbidden(f"the reporter must be {own!r}, not {report.reporter!r}")
            if report.flow >= most_flows:
                raise Conflict(f"flow {report.flow}: flows are numbered from 0 to {most_flows - 1}")
    flows = ActiveFlows(request.service.active)
    store = ReportStore(request.service.database, flows.filters_of, flows.flow_of)
    if store.store(reports, client=None if trusted else request.identity.client):
        request.service.statistics_stored()
    request.service.overview.note_silence()
    if reports:
        data = {"reports": len(reports)}
        request.service.publish(
            Event(kind="statistics", data=data, version=request.service.version)
        )
    return ApiResponse(status=202, value=ReceivedReports(received=len(reports)))


class ActiveFlows:
    """The flows of the active configuration; those of each subscriber are decoded once."""

    def __init__(self, active: ActiveConfiguration | None) -> None:
        self._active = active
        self._flows: dict[str, dict[int, Flow]] = {}
        self._rates: dict[str, dict[int, float]] = {}

    def filters_of(self, subscriber: str, flow: int) -> tuple[str, ...]:
        """Return the filters of a flow; none if the flow does not exist."""
        found = self._flows_of(subscriber).get(flow)
        return found.filters if found else ()

    def flow_of(self, report: Statistics) -> ReportedFlow | None:
        """Return the flow of a report; None if the report is about another configuration."""
        if self._active is None or report.configuration_version != self._active.version:
            return None
        flow = self._flows_of(report.subscriber).get(report.flow)
        if flow is None:
            return None
        offered = self._offered(report.subscriber).get(report.flow, 0.0)
        return ReportedFlow(flow.priority, offered)

    def _offered(self, subscriber: str) -> dict[int, float]:
        if subscriber not in self._rates:
            rates: dict[int, float] = {}
            for row in self._active.document.predictions_of(subscriber) if self._active else ():
                rates[row.flow] = rates.get(row.flow, 0.0) + row.offered_events_per_second
            self._rates[subscriber] = rates
        return self._rates[subscriber]

    def _flows_of(self, subscriber: str) -> dict[int, Flow]:
        if subscriber not in self._flows:
            flows = self._active.document.flows_of(subscriber) if self._active else ()
            self._flows[subscriber] = {each.flow: each for each in flows}
        return self._flows[subscriber]


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/statistics",
    roles=STAFF,
    responses={200: tuple[Statistics, ...]},
    query=(SUBSCRIBER, LIMIT),
)
def get_statistics(request: ApiRequest) -> ApiResponse:
    """List recent statistics, newest first."""
    store = ReportStore(request.service.database)
    found = store.statistics(request.query.get("subscriber"), None, request.query.get("limit", 100))
    return ApiResponse(value=tuple(found))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/deviations",
    roles=STAFF | {"subscriber"},
    responses={200: tuple[Deviation, ...]},
    query=(
        Query(
            name="subscriber",
            description="Return entries of this subscriber only. With the token of a subscriber, "
            "the response has only the entries of that subscriber.",
            schema=IDENTIFIER,
        ),
        Query(
            name="within_seconds",
            description="Use only reports that are at most this old.",
            schema={"type": "number", "minimum": 0, "maximum": RECENT_SECONDS},
        ),
    ),
)
def get_deviations(request: ApiRequest) -> ApiResponse:
    """Compare the last measurements of clients, at most ten minutes old, with predictions."""
    now = request.service.active
    subscriber = request.query.get("subscriber")
    if request.identity.role not in STAFF:
        subscriber = subscriber or request.identity.client or ""
        request.identity.require("subscriber", subscriber)
    within = request.query.get("within_seconds", RECENT_SECONDS)
    store = ReportStore(request.service.database)
    reports = store.latest_of_clients(time.time() - within, subscriber)
    found = deviations(now.document if now else None, request.service.version, reports)
    return ApiResponse(value=tuple(found))


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/heartbeats",
    roles=ANY_ROLE,
    body=Heartbeat,
    responses={202: ReceivedReports},
)
def post_heartbeat(request: ApiRequest) -> ApiResponse:
    """Report that a component of the site is alive."""
    heartbeat: Heartbeat = request.body
    token, client = request.identity.name, request.identity.client or ""
    own = heartbeat.part == client or heartbeat.part.startswith(f"{client}.")
    trusted = request.identity.role in STAFF
    if request.identity.role in GATEWAY:
        trusted = heartbeat.kind in GATEWAY_PARTS
    if not trusted and not (own and heartbeat.kind == "client" and request.identity.client):
        raise Forbidden(f"the token {token!r} is not for the component {heartbeat.part!r}")
    store = ReportStore(request.service.database)
    store.store_heartbeat(heartbeat, client=None if trusted else request.identity.client)
    request.service.overview.note_silence()
    return ApiResponse(status=202, value=ReceivedReports(received=1))


@endpoint(
    ENDPOINTS, "GET", "/v1/heartbeats", roles=STAFF, responses={200: tuple[HeartbeatRecord, ...]}
)
def get_heartbeats(request: ApiRequest) -> ApiResponse:
    """List the last heartbeat of each component."""
    return ApiResponse(value=tuple(ReportStore(request.service.database).heartbeats()))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/audit",
    roles=STAFF,
    responses={200: tuple[AuditEntry, ...]},
    query=(BEFORE, LIMIT),
)
def get_audit(request: ApiRequest) -> ApiResponse:
    """List all changes, newest first, with actor, action, subject and time."""
    before, limit = request.query.get("before"), request.query.get("limit", 100)
    return ApiResponse(value=audit_entries(request.service.database, before, limit))


@endpoint(ENDPOINTS, "GET", "/v1/time", roles=PUBLIC, responses={200: ServiceTime})
def get_time(_request: ApiRequest) -> ApiResponse:
    """Return the time of the service's clock."""
    return ApiResponse(value=ServiceTime(now_seconds=time.time()))


@endpoint(ENDPOINTS, "GET", "/v1/health", roles=PUBLIC, responses={200: Health})
def get_health(request: ApiRequest) -> ApiResponse:
    """Return whether the service answers, and whether it requires tokens."""
    return ApiResponse(value=Health(status="ok", open=request.service.options.open_to_all))


@endpoint(ENDPOINTS, "GET", "/v1/ready", roles=PUBLIC, responses={200: Health, 503: Health})
def get_ready(request: ApiRequest) -> ApiResponse:
    """Return whether plans are made and applied to the network."""
    reasons = request.service.reasons_not_ready()
    if reasons:
        return ApiResponse(status=503, value=Health(status="not-ready", reasons=reasons))
    return ApiResponse(value=Health(status="ok"))

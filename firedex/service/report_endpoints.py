"""Statistics, heartbeats, deviations, the audit log; health, time and metrics."""

import json
import time
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select

from firedex.service import tables
from firedex.service.class_history import ReportedFlow
from firedex.service.configuration_endpoints import BEFORE, LIMIT
from firedex.service.configuration_store import InForce
from firedex.service.core import Event
from firedex.service.deviations import deviations
from firedex.service.endpoints import ALL, EVERYBODY, STAFF, Call, Endpoint, Query, Reply, endpoint
from firedex.service.errors import Conflict, NotYours
from firedex.service.query_parameters import IDENTIFIER
from firedex.service.report_store import ReportStore
from firedex.wire import Heartbeat, Statistics
from firedex.wire.service_api import (
    AuditEntry,
    Deviation,
    Health,
    KeptHeartbeat,
    Now,
    Received,
)

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
Reports = Annotated[tuple[Statistics, ...], Field(max_length=10_000)]
RECENT_SECONDS = 600.0
SUBSCRIBER = Query(
    name="subscriber",
    about="Only this subscriber's.",
    schema=IDENTIFIER,
)


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/statistics",
    roles=STAFF | {"subscriber"},
    body=Reports,
    answers={202: Received},
    refusals=frozenset({409}),
)
def post_statistics(call: Call) -> Reply:
    """Report what was seen of flows; a subscriber of its own, the gateway of all."""
    reports: tuple[Statistics, ...] = call.body
    staff = call.identity.role in STAFF
    most_flows = call.service.site.planning.flows_per_subscriber
    if not staff:
        for report in reports:
            call.identity.require("subscriber", report.subscriber)
            if report.reporter != call.identity.party:
                raise NotYours(f"the reporter of a subscriber is itself, not {report.reporter!r}")
            if report.flow >= most_flows:
                raise Conflict(f"flow {report.flow}: flows are numbered from 0 to {most_flows - 1}")
    flows = FlowsInForce(call.service.in_force)
    store = ReportStore(call.service.database, flows.filters_of, flows.flow_of)
    if store.keep(reports, party=None if staff else call.identity.party):
        call.service.counted()
    call.service.overview.note_silence()
    if reports:
        data = {"reports": len(reports)}
        call.service.tell(Event(kind="statistics", data=data, version=call.service.version))
    return Reply(status=202, value=Received(received=len(reports)))


class FlowsInForce:
    """What each flow carries now, and in which class; a subscriber's flows are read once."""

    def __init__(self, now: InForce | None) -> None:
        self._pieces = now.document.pieces if now else {}
        self._version = now.version if now else 0
        self._known: dict[str, dict[int, dict[str, Any]]] = {}
        self._rates: dict[str, dict[int, float]] = {}

    def filters_of(self, subscriber: str, flow: int) -> tuple[str, ...]:
        """The flow's filters; none if there is no such flow."""
        return tuple(self._flows(subscriber).get(flow, {}).get("filters", ()))

    def flow_of(self, report: Statistics) -> ReportedFlow | None:
        """The report's flow; none if there is none, or it was made under another version."""
        if report.configuration_version != self._version:
            return None
        flow = self._flows(report.subscriber).get(report.flow)
        if flow is None:
            return None
        offered = self._offered(report.subscriber).get(report.flow, 0.0)
        return ReportedFlow(flow["priority"], offered)

    def _offered(self, subscriber: str) -> dict[int, float]:
        if subscriber not in self._rates:
            piece = self._pieces.get(subscriber)
            rates: dict[int, float] = {}
            for row in json.loads(f"[{piece.rows}]") if piece else []:
                offered = row["offered_events_per_second"]
                rates[row["flow"]] = rates.get(row["flow"], 0.0) + offered
            self._rates[subscriber] = rates
        return self._rates[subscriber]

    def _flows(self, subscriber: str) -> dict[int, dict[str, Any]]:
        if subscriber not in self._known:
            piece = self._pieces.get(subscriber)
            flows = json.loads(f"[{piece.flows}]") if piece else []
            self._known[subscriber] = {each["flow"]: each for each in flows}
        return self._known[subscriber]


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/statistics",
    roles=STAFF,
    answers={200: tuple[Statistics, ...]},
    query=(SUBSCRIBER, LIMIT),
)
def get_statistics(call: Call) -> Reply:
    """What was reported lately, newest first."""
    store = ReportStore(call.service.database)
    found = store.statistics(call.query.get("subscriber"), None, call.query.get("limit", 100))
    return Reply(value=tuple(found))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/deviations",
    roles=STAFF | {"subscriber"},
    answers={200: tuple[Deviation, ...]},
    query=(
        Query(
            name="subscriber",
            about="Only this subscriber's; a subscriber's token sees its own in any case.",
            schema=IDENTIFIER,
        ),
        Query(
            name="within_seconds",
            about="Only what was reported so lately.",
            schema={"type": "number", "minimum": 0, "maximum": RECENT_SECONDS},
        ),
    ),
)
def get_deviations(call: Call) -> Reply:
    """What clients measured last, in the last ten minutes at most, beside what was predicted."""
    now = call.service.in_force
    whose = call.query.get("subscriber")
    if call.identity.role not in STAFF:
        whose = whose or call.identity.party or ""
        call.identity.require("subscriber", whose)
    within = call.query.get("within_seconds", RECENT_SECONDS)
    store = ReportStore(call.service.database)
    reports = store.latest_of_clients(time.time() - within, whose)
    found = deviations(now.document if now else None, call.service.version, reports)
    return Reply(value=tuple(found))


@endpoint(ENDPOINTS, "POST", "/v1/heartbeats", roles=ALL, body=Heartbeat, answers={202: Received})
def post_heartbeat(call: Call) -> Reply:
    """Say that a part is alive."""
    heartbeat: Heartbeat = call.body
    party = call.identity.party or ""
    own = heartbeat.part == party or heartbeat.part.startswith(f"{party}.")
    staff = call.identity.role in STAFF
    if not staff and not (own and heartbeat.kind == "client"):
        raise NotYours(f"the token {call.identity.name!r} is not for the part {heartbeat.part!r}")
    store = ReportStore(call.service.database)
    store.beat(heartbeat, party=None if staff else call.identity.party)
    call.service.overview.note_silence()
    return Reply(status=202, value=Received(received=1))


@endpoint(ENDPOINTS, "GET", "/v1/heartbeats", roles=STAFF, answers={200: tuple[KeptHeartbeat, ...]})
def get_heartbeats(call: Call) -> Reply:
    """Every part's last heartbeat."""
    return Reply(value=tuple(ReportStore(call.service.database).heartbeats()))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/audit",
    roles=STAFF,
    answers={200: tuple[AuditEntry, ...]},
    query=(BEFORE, LIMIT),
)
def get_audit(call: Call) -> Reply:
    """Who changed what, newest first."""
    column = tables.change.c
    chosen = select(tables.change).order_by(column.number.desc())
    if "before" in call.query:
        chosen = chosen.where(column.number < call.query["before"])
    with call.service.database.reading() as connection:
        rows = connection.execute(chosen.limit(call.query.get("limit", 100))).all()
    return Reply(
        value=tuple(
            AuditEntry(
                change=row.number,
                at=datetime.fromtimestamp(row.at_seconds, UTC),
                actor=row.actor,
                action=row.action,
                subject=row.subject,
                detail=json.loads(row.detail) if row.detail else None,
            )
            for row in rows
        )
    )


@endpoint(ENDPOINTS, "GET", "/v1/time", roles=EVERYBODY, answers={200: Now})
def get_time(_call: Call) -> Reply:
    """The service's clock."""
    return Reply(value=Now(now_seconds=time.time()))


@endpoint(ENDPOINTS, "GET", "/v1/health", roles=EVERYBODY, answers={200: Health})
def get_health(call: Call) -> Reply:
    """Whether the service answers at all, and whether it asks for tokens."""
    return Reply(value=Health(status="ok", open=call.service.options.open_to_all))


@endpoint(ENDPOINTS, "GET", "/v1/ready", roles=EVERYBODY, answers={200: Health, 503: Health})
def get_ready(call: Call) -> Reply:
    """Whether plans are made and the network follows."""
    reasons = call.service.not_ready()
    if reasons:
        return Reply(status=503, value=Health(status="not-ready", reasons=reasons))
    return Reply(value=Health(status="ok"))

"""Every endpoint with every role, tokens, rate limits, and access to own data only."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from firedex.service.errors import Conflict, RateLimited, Unauthorized
from firedex.service.running import RunningService
from firedex.service.state import tables
from firedex.service.state.tokens import ROLES, Tokens
from firedex.service.web.app import ENDPOINTS
from firedex.service.web.authentication import RequestLimits, RequestRate
from firedex.service.web.endpoint import Endpoint
from tests.support.service_site import TOKENS_WITHOUT_LIMITS, Client, publisher, serving, subscriber

pytestmark = pytest.mark.slow

CREW = subscriber("crew", {"smoke/1": 1.0})
SENSOR = publisher("p0", {"smoke/1": 1.0})
OTHER = subscriber("other", {"smoke/1": 1.0}, address="10.0.0.2")
NOW = "2026-01-01T00:00:00Z"
NETWORK = {
    "switches": [
        {"id": name, "bandwidth_bits_per_second": 1e6, "managed": name != "lan"}
        for name in ("lan", "core", "roof")
    ],
    "broker": {"id": "edge"},
}
STATISTICS = [
    {
        "reporter": "crew",
        "subscriber": "crew",
        "flow": 0,
        "configuration_version": 1,
        "window_start": NOW,
        "window_seconds": 10.0,
    }
]
HEARTBEAT = {"part": "crew", "kind": "client", "started_at": NOW, "sent_at": NOW}
BODIES: dict[str, Any] = {
    "put_subscriber": CREW,
    "put_publisher": SENSOR,
    "post_subscriptions": {"subscriptions": []},
    "post_what_if": {},
    "post_incident": {"title": "fire"},
    "put_phase": {"phase": "overhaul"},
    "put_profile": {"rules": []},
    "put_budgets": {"roles": []},
    "put_network": NETWORK,
    "post_statistics": STATISTICS,
    "post_heartbeat": HEARTBEAT,
}
OWN = {"subscriber": {"subscribers"}, "publisher": {"publishers"}}


@pytest.fixture(scope="module")
def token_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder: Path = tmp_path_factory.mktemp("roles")
    with serving(folder / "s.sqlite", **TOKENS_WITHOUT_LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(token_service: RunningService) -> dict[str, str]:
    tokens_ = token_service.service.tokens
    return {
        "command": tokens_.create("chief", "command"),
        "operator": tokens_.create("net", "operator"),
        "gateway": tokens_.create("edge", "gateway"),
        "subscriber": tokens_.create("crew-token", "subscriber", "crew", "crew"),
        "publisher": tokens_.create("p0-token", "publisher", "p0"),
    }


@pytest.fixture
def chief(token_service: RunningService, tokens: dict[str, str]) -> Client:
    client = Client(token_service.url, tokens["command"])
    client.register(SENSOR)
    client.register(OTHER)
    client.register(CREW)
    return client


def path_of(endpoint: Endpoint, client: str = "crew") -> str:
    path = endpoint.path.replace("{version}", "1").replace("{to_version}", "1")
    path = path.replace("{phase}", "overhaul")
    name = "p0" if "publishers" in path and client == "crew" else client
    path = path.replace("{id}", name)
    return path + "?filter=smoke/1" if endpoint.name == "delete_subscriptions" else path


@pytest.mark.parametrize("role", [*ROLES, "nobody", "wrong"])
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_every_endpoint_allows_exactly_its_roles(
    token_service: RunningService,
    tokens: dict[str, str],
    chief: Client,
    endpoint: Endpoint,
    role: str,
) -> None:
    """Other roles are rejected before anything is read or changed."""
    token = {**tokens, "nobody": None, "wrong": "fdx_wrong"}[role]
    before = chief.get("/v1/status").json["last_change"]
    answer = Client(token_service.url, token).ask(
        endpoint.method, path_of(endpoint), BODIES.get(endpoint.name)
    )
    if endpoint.roles is None:
        assert answer.status in (200, 503)
    elif role in ("nobody", "wrong"):
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    elif role not in endpoint.roles:
        assert answer.status == 403, answer.body
    elif role in ("publisher", "gateway") and endpoint.name == "post_heartbeat":
        assert answer.status == 403  # the component belongs to another client
    elif role == "gateway" and endpoint.name == "post_statistics":
        assert answer.status == 403  # the reporter is another one
    else:
        assert answer.status in (200, 202, 404, 409), answer.body
        return
    assert chief.get("/v1/status").json["last_change"] == before


def test_bodies_cover_every_endpoint_with_a_body() -> None:
    assert {endpoint.name for endpoint in ENDPOINTS if endpoint.body is not None} == set(BODIES)


@pytest.mark.parametrize(
    "endpoint",
    [
        endpoint
        for endpoint in ENDPOINTS
        if endpoint.roles and "{id}" in endpoint.path and "subscriber" in endpoint.roles
    ],
    ids=lambda endpoint: endpoint.name,
)
def test_subscriber_cannot_access_another_subscriber(
    token_service: RunningService, tokens: dict[str, str], chief: Client, endpoint: Endpoint
) -> None:
    body = OTHER if endpoint.name == "put_subscriber" else BODIES.get(endpoint.name)
    crew_client = Client(token_service.url, tokens["subscriber"])
    stored = chief.get("/v1/subscribers/other").body
    assert crew_client.ask(endpoint.method, path_of(endpoint, "other"), body).status == 403
    assert chief.get("/v1/subscribers/other").body == stored


@pytest.mark.usefixtures("chief")
def test_subscriber_cannot_register_with_another_role(
    token_service: RunningService, tokens: dict[str, str]
) -> None:
    crew_client = Client(token_service.url, tokens["subscriber"])
    other_role = subscriber("crew", {"smoke/1": 1.0}, role="command")
    answer = crew_client.ask("PUT", "/v1/subscribers/crew", other_role)
    assert (answer.status, "'command'" in answer.json["error"]) == (403, True)


def test_subscriber_cannot_change_subscriptions_under_a_role_of_another_token(
    token_service: RunningService, tokens: dict[str, str], chief: Client
) -> None:
    crew_client = Client(token_service.url, tokens["subscriber"])
    promoted = subscriber("crew", {"smoke/1": 1.0, "heat/1": 1.0}, role="chief")
    assert chief.register(promoted, wait=0).status == 202
    path = "/v1/subscribers/crew/subscriptions"
    assert crew_client.ask("POST", path, {"subscriptions": []}).status == 403
    assert crew_client.ask("DELETE", f"{path}?filter=heat/1").status == 403
    assert chief.ask("DELETE", f"{path}?filter=heat/1").status == 202
    assert crew_client.register(CREW, wait=0).status == 202
    assert crew_client.ask("POST", path, {"subscriptions": []}).status == 202


@pytest.mark.usefixtures("chief")
def test_subscriber_reports_only_its_own_flows(
    token_service: RunningService, tokens: dict[str, str]
) -> None:
    crew_client = Client(token_service.url, tokens["subscriber"])
    for change in ({"subscriber": "other"}, {"reporter": "gateway"}):
        assert (
            crew_client.ask("POST", "/v1/statistics", [{**STATISTICS[0], **change}]).status == 403
        )


def test_gateway_reports_and_reads_but_registers_nobody(
    token_service: RunningService, tokens: dict[str, str], chief: Client
) -> None:
    gateway = Client(token_service.url, tokens["gateway"])
    own = [{**STATISTICS[0], "reporter": "gateway"}]
    assert gateway.ask("POST", "/v1/statistics", own).status == 202
    for kind, status in (("gateway", 202), ("broker", 202), ("client", 403), ("service", 403)):
        heartbeat = {**HEARTBEAT, "part": "edge", "kind": kind}
        assert gateway.ask("POST", "/v1/heartbeats", heartbeat).status == status
    assert gateway.get("/v1/configuration").status in (200, 404)
    assert gateway.get("/v1/topics").status == 200
    before = chief.get("/v1/status").json["last_change"]
    writing = [endpoint for endpoint in ENDPOINTS if endpoint.writes]
    for endpoint in writing:
        body = BODIES.get(endpoint.name)
        assert gateway.ask(endpoint.method, path_of(endpoint), body).status == 403, endpoint.name
    assert chief.get("/v1/status").json["last_change"] == before


@pytest.mark.parametrize(
    ("role", "query", "status"),
    [
        ("command", "", 200),
        ("operator", "", 200),
        ("gateway", "", 200),
        ("publisher", "", 200),
        ("subscriber", "", 200),
        ("subscriber", "?subscriber=crew", 200),
        ("subscriber", "?subscriber=other", 403),
        ("nobody", "", 401),
        ("command", "?subscriber=-", 400),
        ("command", "?whose=crew", 400),
    ],
)
def test_event_streams_check_tokens(
    token_service: RunningService, tokens: dict[str, str], role: str, query: str, status: int
) -> None:
    import http.client

    client = Client(token_service.url)
    connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
    headers = {"Authorization": f"Bearer {tokens[role]}"} if role in tokens else {}
    connection.request("GET", f"/v1/events{query}", headers=headers)
    assert connection.getresponse().status == status
    connection.close()


def test_tokens_are_stored_as_digests_and_can_be_revoked(token_service: RunningService) -> None:
    tokens: Tokens = token_service.service.tokens
    token = tokens.create("short", "operator")
    with token_service.service.database.reading() as connection:
        row = connection.execute(select(tables.token).where(tables.token.c.name == "short")).one()
    assert row.digest == hashlib.sha256(token.encode()).hexdigest()
    assert token not in str(row)
    assert tokens.identify(f"Bearer {token}").role == "operator"
    tokens.revoke("short")
    with pytest.raises(Unauthorized):
        tokens.identify(f"Bearer {token}")
    with pytest.raises(Conflict):
        tokens.create("short", "operator")
    with pytest.raises(Conflict):
        tokens.create("nobody's", "subscriber")


def test_audit_log_names_actor_and_action(chief: Client) -> None:
    chief.ask("PUT", "/v1/budgets", {"roles": [{"role": "crew", "utility": 5.0}]})
    entry = chief.get("/v1/audit?limit=1").json[0]
    assert (entry["actor"], entry["action"]) == ("chief", "budgets")
    assert entry["detail"]["roles"][0]["utility"] == 5.0


def test_rate_limit_rejects_requests_until_tokens_refill() -> None:
    now = [0.0]
    limits = RequestLimits(RequestRate(per_second=2.0, burst=3.0), lambda: now[0])
    for _ in range(3):
        limits.count("crew")
    with pytest.raises(RateLimited) as refused:
        limits.count("crew")
    assert refused.value.wait_seconds == pytest.approx(0.5)
    limits.count("other")
    now[0] = 0.51
    limits.count("crew")


def test_rate_limited_response_has_retry_after(tmp_path: Path) -> None:
    rate = RequestRate(per_second=0.001, burst=2.0)
    with serving(tmp_path / "s.sqlite", open_to_all=False, request_rate=rate) as running:
        client = Client(running.url, running.service.tokens.create("chief", "command"))
        answers = [client.get("/v1/status") for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 429, 429]
        assert 900 < int(answers[-1].headers["Retry-After"]) <= 1000
        assert client.get("/v1/health").status == 200


def test_too_large_body_is_rejected(token_service: RunningService, tokens: dict[str, str]) -> None:
    client = Client(token_service.url, tokens["command"])
    assert client.ask("PUT", "/v1/subscribers/crew", b" " * (17 * 1024 * 1024)).status == 413


def test_heartbeat_for_another_component_with_the_same_prefix_is_rejected(
    token_service: RunningService, tokens: dict[str, str]
) -> None:
    crew = Client(token_service.url, tokens["subscriber"])
    for part, kind, status in (
        ("crew", "client", 202),
        ("crew.radio", "client", 202),
        ("crew2", "client", 403),
        ("crew", "gateway", 403),
    ):
        body = {**HEARTBEAT, "part": part, "kind": kind}
        assert crew.ask("POST", "/v1/heartbeats", body).status == status, (part, kind)


def test_publisher_cannot_follow_the_stream_of_a_subscriber(
    token_service: RunningService, tokens: dict[str, str]
) -> None:
    client = Client(token_service.url, tokens["publisher"])
    assert client.ask("GET", "/v1/events?subscriber=crew").status == 403

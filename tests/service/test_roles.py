"""Every endpoint × every role; tokens; and that a subscriber touches only its own."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_site import TOKENS_WITHOUT_LIMITS, Client, publisher, serving, subscriber
from sqlalchemy import select

from firedex.service import tables
from firedex.service.endpoints import Endpoint
from firedex.service.errors import Conflict, NoToken, TooMuch
from firedex.service.request_limits import RequestLimits, RequestRate
from firedex.service.running import RunningService
from firedex.service.tokens import ROLES, Tokens
from firedex.service.web import ENDPOINTS

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
def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder: Path = tmp_path_factory.mktemp("roles")
    with serving(folder / "s.sqlite", **TOKENS_WITHOUT_LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(with_tokens: RunningService) -> dict[str, str]:
    made = with_tokens.service.tokens
    return {
        "command": made.create("chief", "command"),
        "operator": made.create("net", "operator"),
        "subscriber": made.create("crew-token", "subscriber", "crew", "crew"),
        "publisher": made.create("p0-token", "publisher", "p0"),
    }


@pytest.fixture
def chief(with_tokens: RunningService, tokens: dict[str, str]) -> Client:
    client = Client(with_tokens.url, tokens["command"])
    client.register(SENSOR)
    client.register(OTHER)
    client.register(CREW)
    return client


def path_of(of: Endpoint, whose: str = "crew") -> str:
    path = of.path.replace("{version}", "1").replace("{to_version}", "1")
    path = path.replace("{phase}", "overhaul")
    name = "p0" if "publishers" in path and whose == "crew" else whose
    path = path.replace("{id}", name)
    return path + "?filter=smoke/1" if of.name == "delete_subscriptions" else path


@pytest.mark.parametrize("role", [*ROLES, "nobody", "wrong"])
@pytest.mark.parametrize("of", ENDPOINTS, ids=lambda of: of.name)
def test_the_matrix(
    with_tokens: RunningService, tokens: dict[str, str], chief: Client, of: Endpoint, role: str
) -> None:
    """Allowed exactly as stated; whoever is not is refused before anything is read or done."""
    token = {**tokens, "nobody": None, "wrong": "fdx_wrong"}[role]
    before = chief.get("/v1/status").json["last_change"]
    answer = Client(with_tokens.url, token).ask(of.method, path_of(of), BODIES.get(of.name))
    if of.roles is None:
        assert answer.status in (200, 503)
    elif role in ("nobody", "wrong"):
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    elif role not in of.roles:
        assert answer.status == 403, answer.body
    elif role == "publisher" and of.name == "post_heartbeat":
        assert answer.status == 403  # the part is somebody else's
    else:
        assert answer.status in (200, 202, 404, 409), answer.body
        return
    assert chief.get("/v1/status").json["last_change"] == before


def test_the_matrix_knows_every_body() -> None:
    assert {of.name for of in ENDPOINTS if of.body is not None} == set(BODIES)


@pytest.mark.parametrize(
    "of",
    [of for of in ENDPOINTS if of.roles and "{id}" in of.path and "subscriber" in of.roles],
    ids=lambda of: of.name,
)
def test_a_subscriber_touches_only_its_own(
    with_tokens: RunningService, tokens: dict[str, str], chief: Client, of: Endpoint
) -> None:
    body = OTHER if of.name == "put_subscriber" else BODIES.get(of.name)
    mine = Client(with_tokens.url, tokens["subscriber"])
    kept = chief.get("/v1/subscribers/other").body
    assert mine.ask(of.method, path_of(of, "other"), body).status == 403
    assert chief.get("/v1/subscribers/other").body == kept


@pytest.mark.usefixtures("chief")
def test_a_subscriber_cannot_take_another_role(
    with_tokens: RunningService, tokens: dict[str, str]
) -> None:
    mine = Client(with_tokens.url, tokens["subscriber"])
    posing = subscriber("crew", {"smoke/1": 1.0}, role="command")
    answer = mine.ask("PUT", "/v1/subscribers/crew", posing)
    assert (answer.status, "'command'" in answer.json["error"]) == (403, True)


def test_a_subscriber_does_not_keep_the_budget_of_a_role_that_its_token_is_not_for(
    with_tokens: RunningService, tokens: dict[str, str], chief: Client
) -> None:
    mine = Client(with_tokens.url, tokens["subscriber"])
    promoted = subscriber("crew", {"smoke/1": 1.0, "heat/1": 1.0}, role="chief")
    assert chief.register(promoted, wait=0).status == 202
    path = "/v1/subscribers/crew/subscriptions"
    assert mine.ask("POST", path, {"subscriptions": []}).status == 403
    assert mine.ask("DELETE", f"{path}?filter=heat/1").status == 403
    assert chief.ask("DELETE", f"{path}?filter=heat/1").status == 202
    assert mine.register(CREW, wait=0).status == 202
    assert mine.ask("POST", path, {"subscriptions": []}).status == 202


@pytest.mark.usefixtures("chief")
def test_a_subscriber_reports_only_of_itself(
    with_tokens: RunningService, tokens: dict[str, str]
) -> None:
    mine = Client(with_tokens.url, tokens["subscriber"])
    for change in ({"subscriber": "other"}, {"reporter": "gateway"}):
        assert mine.ask("POST", "/v1/statistics", [{**STATISTICS[0], **change}]).status == 403


@pytest.mark.parametrize(
    ("role", "query", "status"),
    [
        ("command", "", 200),
        ("operator", "", 200),
        ("publisher", "", 200),
        ("subscriber", "", 200),
        ("subscriber", "?subscriber=crew", 200),
        ("subscriber", "?subscriber=other", 403),
        ("nobody", "", 401),
        ("command", "?subscriber=-", 400),
        ("command", "?whose=crew", 400),
    ],
)
def test_event_streams_ask_for_tokens_too(
    with_tokens: RunningService, tokens: dict[str, str], role: str, query: str, status: int
) -> None:
    import http.client

    client = Client(with_tokens.url)
    connection = http.client.HTTPConnection(client.host, client.port, timeout=10)
    headers = {"Authorization": f"Bearer {tokens[role]}"} if role in tokens else {}
    connection.request("GET", f"/v1/events{query}", headers=headers)
    assert connection.getresponse().status == status
    connection.close()


def test_tokens_are_kept_as_digests_and_can_be_revoked(with_tokens: RunningService) -> None:
    tokens: Tokens = with_tokens.service.tokens
    token = tokens.create("short", "operator")
    with with_tokens.service.database.reading() as connection:
        row = connection.execute(select(tables.token).where(tables.token.c.name == "short")).one()
    assert row.digest == hashlib.sha256(token.encode()).hexdigest()
    assert token not in str(row)
    assert tokens.identify(f"Bearer {token}").role == "operator"
    tokens.revoke("short")
    with pytest.raises(NoToken):
        tokens.identify(f"Bearer {token}")
    with pytest.raises(Conflict):
        tokens.create("short", "operator")
    with pytest.raises(Conflict):
        tokens.create("nobody's", "subscriber")


def test_who_changed_what_is_in_the_audit_log(chief: Client) -> None:
    chief.ask("PUT", "/v1/budgets", {"roles": [{"role": "crew", "utility": 5.0}]})
    entry = chief.get("/v1/audit?limit=1").json[0]
    assert (entry["actor"], entry["action"]) == ("chief", "budgets")
    assert entry["detail"]["roles"][0]["utility"] == 5.0


def test_too_many_requests_are_refused_for_a_while() -> None:
    now = [0.0]
    limits = RequestLimits(RequestRate(per_second=2.0, burst=3.0), lambda: now[0])
    for _ in range(3):
        limits.count("crew")
    with pytest.raises(TooMuch) as refused:
        limits.count("crew")
    assert refused.value.wait_seconds == pytest.approx(0.5)
    limits.count("other")
    now[0] = 0.51
    limits.count("crew")


def test_too_many_requests_are_answered_with_when_to_come_again(tmp_path: Path) -> None:
    rate = RequestRate(per_second=0.001, burst=2.0)
    with serving(tmp_path / "s.sqlite", open_to_all=False, request_rate=rate) as running:
        client = Client(running.url, running.service.tokens.create("chief", "command"))
        answers = [client.get("/v1/status") for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 429, 429]
        assert 900 < int(answers[-1].headers["Retry-After"]) <= 1000
        assert client.get("/v1/health").status == 200


def test_too_large_a_body_is_refused(with_tokens: RunningService, tokens: dict[str, str]) -> None:
    client = Client(with_tokens.url, tokens["command"])
    assert client.ask("PUT", "/v1/subscribers/crew", b" " * (17 * 1024 * 1024)).status == 413


def test_nobody_speaks_for_a_part_that_only_begins_like_its_own(
    with_tokens: RunningService, tokens: dict[str, str]
) -> None:
    crew = Client(with_tokens.url, tokens["subscriber"])
    for part, kind, status in (
        ("crew", "client", 202),
        ("crew.radio", "client", 202),
        ("crew2", "client", 403),
        ("crew", "gateway", 403),
    ):
        body = {**HEARTBEAT, "part": part, "kind": kind}
        assert crew.ask("POST", "/v1/heartbeats", body).status == status, (part, kind)


def test_a_publisher_does_not_listen_to_what_is_a_subscriber_s(
    with_tokens: RunningService, tokens: dict[str, str]
) -> None:
    client = Client(with_tokens.url, tokens["publisher"])
    assert client.ask("GET", "/v1/events?subscriber=crew").status == 403

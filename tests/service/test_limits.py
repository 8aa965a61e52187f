"""Limits of topics, statistics, heartbeats, streams, request bodies and wrong tokens."""

import asyncio
import http.client
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from select import select as select_readable
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from firedex.service.core import Event
from firedex.service.running import RunningService
from firedex.service.state import report_store, tables
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import STALE_SECONDS, OfferedRate
from firedex.service.state.registrations import Limits
from firedex.service.state.report_store import ReportStore
from firedex.service.state.site_state import (
    RATE_RETENTION_SECONDS,
    DeclaredTopic,
    SiteState,
    find_expired_state,
)
from firedex.service.state.tokens import Tokens
from firedex.service.web import body_limits, event_streams
from firedex.service.web.authentication import RequestRate
from firedex.service.web.body_limits import MAX_UNAUTHENTICATED_BODY_BYTES
from firedex.service.web.event_streams import EventStreams, Listener
from firedex.wire import (
    PublisherRegistration,
    Statistics,
    SubscriberRegistration,
    Topic,
    from_plain,
)
from firedex.wire.service_api import MAX_TOPICS_PER_REPORT
from tests.service.test_measured_rates import report
from tests.support.event_stream import Stream
from tests.support.service_site import (
    FAST_SCHEDULE,
    Client,
    publisher,
    serving,
    site,
    subscriber,
    wait_until,
)

pytestmark = pytest.mark.slow

NOW = "2026-01-01T00:00:00Z"
SCOPE = {"type": "http", "method": "GET"}


@dataclass
class TokenService:
    """A service that requires tokens, and clients with tokens."""

    running: RunningService
    chief: Client
    crew: Client
    other: Client

    def count(self, table: Any, *where: Any) -> int:
        with self.running.service.database.reading() as connection:
            counted = select(func.count()).select_from(table).where(*where)
            return int(connection.execute(counted).scalar_one())


@pytest.fixture
def token_service(state: str) -> Iterator[TokenService]:
    wrong = RequestRate(per_second=0.001, burst=3.0)
    with serving(state, open_to_all=False, request_rate=None, wrong_token_rate=wrong) as running:
        tokens = running.service.tokens
        yield TokenService(
            running,
            Client(running.url, tokens.create("chief", "command")),
            Client(running.url, tokens.create("crew-token", "subscriber", "crew", "crew")),
            Client(running.url, tokens.create("other-token", "subscriber", "other", "crew")),
        )


def topics_of(client: Client) -> set[str]:
    return {topic["name"] for topic in client.get("/v1/topics").json}


# -- topics ------------------------------------------------------------------------------------


def test_topics_are_limited_per_publisher_and_in_total(state: str) -> None:
    limits = Limits(topics_each=3, topics=5)
    slow = replace(FAST_SCHEDULE, poll_seconds=100.0)
    with serving(state, limits=limits, schedule=slow) as running:
        client = Client(running.url)
        assert client.register(publisher("p0", {"a": 1.0, "b": 1.0, "c": 1.0})).status == 200
        more = client.register(publisher("p0", {"c": 1.0, "d": 1.0}), wait=0)
        assert (more.status, "at most 3 are allowed" in more.json["error"]) == (409, True)
        assert client.register(publisher("p1", {"d": 1.0, "e": 1.0})).status == 200
        full = client.register(publisher("p2", {"f": 1.0}), wait=0)
        assert (full.status, "at most 5 are allowed" in full.json["error"]) == (409, True)
        assert client.register(publisher("p2", {"a": 1.0, "e": 2.0})).status == 200
        assert topics_of(client) == {"a", "b", "c", "d", "e"}


def test_unused_topics_are_deleted(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(publisher("p0", dict.fromkeys(("gone", "heard/1", "shared"), 1.0)))
        client.register(publisher("p1", {"shared": 1.0}))
        client.register(subscriber("crew", {"heard/#": 1.0}))
        version = client.ask("DELETE", "/v1/publishers/p0?wait_seconds=20").json["version"]
        wait_until(lambda: topics_of(client) == {"heard/1", "shared"}, "only used topics")
        assert client.get("/v1/status").json["active_version"] == version
        client.register(publisher("p1", {"shared": 1.0}, event_bytes=777))
        (shared,) = (t for t in client.get("/v1/topics").json if t["name"] == "shared")
        assert (shared["declared_by"], shared["event_bytes"]) == ("p1", 777)


def test_only_unused_topics_old_rates_and_unknown_hosts_expire() -> None:
    def measured(age: float) -> OfferedRate:
        return OfferedRate(
            rate_per_second=1.0,
            variance=0,
            event_bytes=1,
            seconds=9,
            events=9,
            at_seconds=1e6 - age,
        )

    names = ("declared", "published", "heard/1", "measured", "long-ago", "unused")
    sender = publisher("p0", {"published": 1.0})
    sender["topics"] = [{"name": "declared", "event_bytes": 1}]
    state = SiteState(
        topics={
            n: DeclaredTopic(topic=Topic(name=n, event_bytes=1), declared_by="p9") for n in names
        },
        publishers={"p0": from_plain(PublisherRegistration, sender)},
        subscribers={"crew": from_plain(SubscriberRegistration, subscriber("crew", {"+/1": 1.0}))},
        hosts={IPv4Address("10.0.0.1"): "roof", IPv4Address("10.0.0.99"): "core"},
        measured={
            "measured": measured(RATE_RETENTION_SECONDS - 1),
            "long-ago": measured(RATE_RETENTION_SECONDS + 1),
        },
    )
    found = find_expired_state(state, 1e6)
    assert set(found.topics) == {"long-ago", "unused"}
    assert list(found.measured) == ["long-ago"]
    assert list(found.hosts) == [IPv4Address("10.0.0.99")]
    assert RATE_RETENTION_SECONDS > STALE_SECONDS
    assert not find_expired_state(SiteState(), 1e6)


# -- reports -----------------------------------------------------------------------------------


def own_report(subscriber_id: str, **more: Any) -> dict[str, Any]:
    return report(0, {}, reporter=subscriber_id, subscriber=subscriber_id, **more)


def test_statistics_of_a_subscriber_displace_only_its_own(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "MAX_REPORTS_PER_CLIENT", 5)
    assert token_service.other.ask("POST", "/v1/statistics", [own_report("other")]).status == 202
    assert token_service.crew.ask("POST", "/v1/statistics", [own_report("crew")] * 20).status == 202
    column = tables.statistic.c
    assert token_service.count(tables.statistic, column.reporter == "crew") == 5
    assert token_service.count(tables.statistic, column.reporter == "other") == 1
    monkeypatch.setattr(report_store, "MAX_CHARACTERS_PER_CLIENT", 1000)
    long = own_report("crew") | {"topics": [{"topic": "x" * 500}]}
    assert token_service.crew.ask("POST", "/v1/statistics", [long, long]).status == 202
    assert token_service.count(tables.statistic, column.reporter == "crew") == 1
    longer = own_report("crew") | {"topics": [{"topic": "x" * 1500}]}
    assert token_service.crew.ask("POST", "/v1/statistics", [longer]).status == 413


def test_many_reports_do_not_displace_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "MAX_REPORTS_PER_CLIENT", 2)
    monkeypatch.setattr(report_store, "MAX_STATISTICS", 5)
    database = Database(str(tmp_path / "s.sqlite"))
    store = ReportStore(database)
    store.store([from_plain(Statistics, own_report("other"))], client="other")
    for _ in range(6):
        store.store([from_plain(Statistics, own_report("crew"))] * 20, client="crew")
    kept = sorted(each.reporter for each in store.statistics(None, None, 100))
    assert kept == ["crew", "crew", "other"]
    database.close()


def test_statistics_are_deleted_after_a_day(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(state) as running:
        store = ReportStore(running.service.database)
        store.store([from_plain(Statistics, own_report("crew"))], client="crew")
        now = time.time()
        monkeypatch.setattr("firedex.service.state.report_store.time.time", lambda: now + 25 * 3600)
        store.store([], client="crew")
        assert store.statistics(None, None, 10) == []


def test_reports_with_impossible_flow_or_too_many_topics_are_rejected(
    token_service: TokenService,
) -> None:
    flows = site().planning.flows_per_subscriber
    last = own_report("crew") | {"flow": flows - 1}
    assert token_service.crew.ask("POST", "/v1/statistics", [last]).status == 202
    invented = token_service.crew.ask(
        "POST", "/v1/statistics", [own_report("crew") | {"flow": flows}]
    )
    assert (invented.status, f"flow {flows}" in invented.json["error"]) == (409, True)
    many = own_report("crew") | {"topics": [{"topic": "a"}] * (MAX_TOPICS_PER_REPORT + 1)}
    answer = token_service.crew.ask("POST", "/v1/statistics", [many])
    assert (answer.status, answer.json["problems"][0]["path"]) == (400, "[0].topics")


def test_heartbeats_of_a_subscriber_displace_only_its_own(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "MAX_PARTS_PER_CLIENT", 3)

    def send_heartbeat(client: Client, part: str, kind: str = "client") -> int:
        body = {"part": part, "kind": kind, "started_at": NOW, "sent_at": NOW}
        return client.ask("POST", "/v1/heartbeats", body).status

    assert send_heartbeat(token_service.chief, "gateway", "gateway") == 202
    assert send_heartbeat(token_service.other, "other") == 202
    for number in range(6):
        assert send_heartbeat(token_service.crew, f"crew.{number}") == 202
    parts = {kept["heartbeat"]["part"] for kept in token_service.chief.get("/v1/heartbeats").json}
    assert parts == {"gateway", "other", "crew.3", "crew.4", "crew.5"}
    nested_token = token_service.running.service.tokens.create(
        "deep", "subscriber", "crew.5", "crew"
    )
    assert send_heartbeat(Client(token_service.running.url, nested_token), "crew.5") == 202, (
        "the component has the id of the token's subscriber"
    )
    assert send_heartbeat(token_service.crew, "crew.5") == 403


# -- streams -----------------------------------------------------------------------------------


def test_revoking_a_token_closes_its_streams(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "TOKEN_CHECK_SECONDS", 0.05)
    with serving(state, open_to_all=False) as running:
        tokens = running.service.tokens
        mine = Stream(Client(running.url, tokens.create("crew", "subscriber", "crew", "crew")))
        other = Stream(Client(running.url, tokens.create("chief", "command")))
        wait_until(lambda: running.service.event_streams == 2, "two open streams")
        tokens.revoke("crew")
        wait_until(mine.ended.is_set, "a closed stream")
        assert running.service.event_streams == 1
        assert not other.ended.is_set()
        mine.close()
        other.close()


def test_streams_are_limited_per_token(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "MAX_STREAMS_PER_TOKEN", 2)
    streams = [Stream(token_service.crew), Stream(token_service.crew)]
    refused = token_service.crew.get("/v1/events")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "10")
    streams.append(Stream(token_service.other))
    assert streams[-1].response.status == 200
    for stream in streams:
        stream.close()
    wait_until(lambda: token_service.running.service.event_streams == 0, "no open streams")


def test_stream_without_token_gets_an_authentication_challenge(token_service: TokenService) -> None:
    refused = Client(token_service.running.url).get("/v1/events")
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_blocked_stream_is_closed_and_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "SEND_TIMEOUT_SECONDS", 0.2)

    async def never_sends(_: Any) -> None:
        await asyncio.Event().wait()

    async def never_receives() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def run_two_streams(service: Any) -> list[bytes]:
        received: list[bytes] = []

        async def record_message(message: MutableMapping[str, Any]) -> None:
            received.append(message.get("body", b""))

        streams = EventStreams(service)
        streams.start()
        blocked = asyncio.create_task(streams.serve(Listener(), SCOPE, never_receives, never_sends))
        working = asyncio.create_task(
            streams.serve(Listener(), SCOPE, never_receives, record_message)
        )
        await asyncio.sleep(0)
        assert service.event_streams == 2
        service.publish(Event(kind="incident", data={}, version=1))
        await asyncio.wait_for(blocked, 20)
        assert service.event_streams == 1, "a closed stream is not counted"
        await streams.stop()
        await asyncio.wait_for(working, 20)
        return received

    with serving(tmp_path / "s.sqlite") as running:
        assert any(
            b"event: incident" in body for body in asyncio.run(run_two_streams(running.service))
        )


# -- request bodies and tokens ---------------------------------------------------------------


def test_large_body_without_token_is_not_read(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client announces 16 MB, sends the first bytes, and gets a response."""
    monkeypatch.setattr(body_limits, "DISCARD_SECONDS", 0.1)
    connection = http.client.HTTPConnection(
        token_service.crew.host, token_service.crew.port, timeout=60
    )
    connection.putrequest("PUT", "/v1/subscribers/crew")
    connection.putheader("Content-Length", str(16 * 1024 * 1024))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    connection.send(b" " * (MAX_UNAUTHENTICATED_BODY_BYTES + 1))
    response = connection.getresponse()
    assert (response.status, response.headers["Connection"]) == (401, "close")
    connection.close()


def test_client_that_sends_all_before_reading_gets_the_error(token_service: TokenService) -> None:
    answer = Client(token_service.running.url).ask("POST", "/v1/statistics", b" " * 3_000_000)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_large_body_with_token_is_accepted(token_service: TokenService) -> None:
    body = " " * (3 * MAX_UNAUTHENTICATED_BODY_BYTES) + "[]"
    assert token_service.crew.ask("POST", "/v1/statistics", body).status == 202


def test_incomplete_body_times_out(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "BODY_TIMEOUT_SECONDS", 0.05)
    response = send_half_a_body(token_service.crew, 10).getresponse()
    assert (response.status, response.headers["Connection"]) == (408, "close")


def test_concurrent_large_bodies_are_limited_per_token(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "MAX_LARGE_BODIES", 1)
    monkeypatch.setattr(body_limits, "DISCARD_SECONDS", 0.05)
    size = MAX_UNAUTHENTICATED_BODY_BYTES + 1
    both = [send_half_a_body(token_service.crew, size) for _ in range(2)]
    readable, _, _ = select_readable([each.sock for each in both], [], [], 60)
    (refused,) = (each for each in both if each.sock in readable)
    assert refused.getresponse().status == 429
    long = " " * size + "[]"
    assert token_service.other.ask("POST", "/v1/statistics", long).status == 202
    for each in both:
        each.close()
    wait_until(
        lambda: token_service.crew.ask("POST", "/v1/statistics", long).status == 202, "a free slot"
    )


def send_half_a_body(client: Client, size: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
    connection.putrequest("POST", "/v1/statistics")
    connection.putheader("Authorization", f"Bearer {client.token}")
    connection.putheader("Content-Length", str(2 * size))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    connection.send(b" " * size)
    return connection


def test_unavailable_database_during_authentication_returns_503(
    token_service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(Tokens, "identify", unavailable)
    assert token_service.crew.get("/v1/events").status == 503
    long = b" " * (3 * MAX_UNAUTHENTICATED_BODY_BYTES)
    assert token_service.crew.ask("POST", "/v1/statistics", long).status == 503


def test_wrong_tokens_are_rate_limited_by_address(token_service: TokenService) -> None:
    assert token_service.crew.get("/v1/budgets").status == 200
    wrong = Client(token_service.running.url, "fdx_wrong")
    answers = [wrong.get("/v1/budgets") for _ in range(5)]
    assert [answer.status for answer in answers] == [401, 401, 401, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 1
    assert wrong.get("/v1/events").status == 429
    assert token_service.crew.get("/v1/budgets").status == 200, (
        "a token that was valid before is accepted"
    )
    assert token_service.other.get("/v1/budgets").status == 429, (
        "other tokens of the address are limited"
    )

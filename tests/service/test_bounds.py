"""What anybody may take up: topics, statistics, heartbeats, streams, bodies, wrong tokens."""

import asyncio
import http.client
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from select import select as select_readable
from typing import Any

import pytest
from event_stream import Stream
from service_site import QUICK, Client, publisher, serving, site, subscriber, wait_until
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from test_measured_rates import report

from firedex.service import event_streams, report_store, server, tables
from firedex.service.core import Event
from firedex.service.database import Database
from firedex.service.event_streams import EventStreams, Listener
from firedex.service.offered_rates import OfferedRate
from firedex.service.planning_scenario import STALE_SECONDS
from firedex.service.registrations import Limits
from firedex.service.report_store import ReportStore
from firedex.service.request_limits import RequestRate
from firedex.service.running import RunningService
from firedex.service.server import LARGEST_UNKNOWN_BODY_BYTES
from firedex.service.site_state import DeclaredTopic, SiteState
from firedex.service.tokens import Tokens
from firedex.service.unneeded_state import REMEMBERED_SECONDS, unneeded
from firedex.wire import (
    PublisherRegistration,
    Statistics,
    SubscriberRegistration,
    Topic,
    from_plain,
)
from firedex.wire.reports import MOST_TOPICS_IN_A_REPORT

NOW = "2026-01-01T00:00:00Z"


@dataclass
class Guarded:
    """A service that asks for tokens, and who has one."""

    running: RunningService
    chief: Client
    crew: Client
    other: Client

    def count(self, table: Any, *where: Any) -> int:
        with self.running.service.database.reading() as connection:
            counted = select(func.count()).select_from(table).where(*where)
            return int(connection.execute(counted).scalar_one())


@pytest.fixture
def guarded(state: str) -> Iterator[Guarded]:
    wrong = RequestRate(per_second=0.001, burst=3.0)
    with serving(state, open_to_all=False, request_rate=None, wrong_token_rate=wrong) as running:
        made = running.service.tokens
        yield Guarded(
            running,
            Client(running.url, made.create("chief", "command")),
            Client(running.url, made.create("crew-token", "subscriber", "crew", "crew")),
            Client(running.url, made.create("other-token", "subscriber", "other", "crew")),
        )


def topics_of(client: Client) -> set[str]:
    return {topic["name"] for topic in client.get("/v1/topics").json}


# -- topics ------------------------------------------------------------------------------------


def test_topics_are_bounded_for_a_publisher_and_in_all(state: str) -> None:
    limits = Limits(topics_each=3, topics=5)
    slow = replace(QUICK, poll_seconds=100.0)
    with serving(state, limits=limits, pace=slow) as running:
        client = Client(running.url)
        assert client.register(publisher("p0", {"a": 1.0, "b": 1.0, "c": 1.0})).status == 200
        more = client.register(publisher("p0", {"c": 1.0, "d": 1.0}), wait=0)
        assert (more.status, "at most 3 each" in more.json["error"]) == (409, True)
        assert client.register(publisher("p1", {"d": 1.0, "e": 1.0})).status == 200
        full = client.register(publisher("p2", {"f": 1.0}), wait=0)
        assert (full.status, "at most 5 may be" in full.json["error"]) == (409, True)
        assert client.register(publisher("p2", {"a": 1.0, "e": 2.0})).status == 200
        assert topics_of(client) == {"a", "b", "c", "d", "e"}


def test_topics_that_nobody_needs_go(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(publisher("p0", dict.fromkeys(("gone", "heard/1", "shared"), 1.0)))
        client.register(publisher("p1", {"shared": 1.0}))
        client.register(subscriber("crew", {"heard/#": 1.0}))
        version = client.ask("DELETE", "/v1/publishers/p0?wait_seconds=20").json["version"]
        wait_until(lambda: topics_of(client) == {"heard/1", "shared"}, "what is needed is left")
        assert client.get("/v1/status").json["in_force_version"] == version
        client.register(publisher("p1", {"shared": 1.0}, event_bytes=777))
        (shared,) = (t for t in client.get("/v1/topics").json if t["name"] == "shared")
        assert (shared["declared_by"], shared["event_bytes"]) == ("p1", 777)


def test_what_is_unneeded_is_neither_declared_published_subscribed_nor_measured() -> None:
    def measured(age: float) -> OfferedRate:
        return OfferedRate(
            rate_per_second=1.0,
            variance=0,
            event_bytes=1,
            seconds=9,
            events=9,
            at_seconds=1e6 - age,
        )

    names = ("declared", "published", "heard/1", "measured", "long-ago", "unneeded")
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
            "measured": measured(REMEMBERED_SECONDS - 1),
            "long-ago": measured(REMEMBERED_SECONDS + 1),
        },
    )
    found = unneeded(state, 1e6)
    assert set(found.topics) == {"long-ago", "unneeded"}
    assert list(found.measured) == ["long-ago"]
    assert list(found.hosts) == [IPv4Address("10.0.0.99")]
    assert REMEMBERED_SECONDS > STALE_SECONDS
    assert not unneeded(SiteState(), 1e6)


# -- reports -----------------------------------------------------------------------------------


def own(who: str, **more: Any) -> dict[str, Any]:
    return report(0, {}, reporter=who, subscriber=who, **more)


def test_a_party_s_statistics_make_room_for_its_own_alone(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "MOST_OF_A_PARTY", 5)
    assert guarded.other.ask("POST", "/v1/statistics", [own("other")]).status == 202
    assert guarded.crew.ask("POST", "/v1/statistics", [own("crew")] * 20).status == 202
    column = tables.statistic.c
    assert guarded.count(tables.statistic, column.reporter == "crew") == 5
    assert guarded.count(tables.statistic, column.reporter == "other") == 1
    monkeypatch.setattr(report_store, "MOST_CHARACTERS_OF_A_PARTY", 1000)
    long = own("crew") | {"topics": [{"topic": "x" * 500}]}
    assert guarded.crew.ask("POST", "/v1/statistics", [long, long]).status == 202
    assert guarded.count(tables.statistic, column.reporter == "crew") == 1
    longer = own("crew") | {"topics": [{"topic": "x" * 1500}]}
    assert guarded.crew.ask("POST", "/v1/statistics", [longer]).status == 413


def test_who_reports_much_does_not_use_up_the_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "MOST_OF_A_PARTY", 2)
    monkeypatch.setattr(report_store, "MOST_STATISTICS", 5)
    database = Database(str(tmp_path / "s.sqlite"))
    store = ReportStore(database)
    store.keep([from_plain(Statistics, own("other"))], party="other")
    for _ in range(6):
        store.keep([from_plain(Statistics, own("crew"))] * 20, party="crew")
    kept = sorted(each.reporter for each in store.statistics(None, None, 100))
    assert kept == ["crew", "crew", "other"]
    database.close()


def test_statistics_are_kept_for_a_day(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(state) as running:
        store = ReportStore(running.service.database)
        store.keep([from_plain(Statistics, own("crew"))], party="crew")
        now = report_store.time.time()
        monkeypatch.setattr(report_store.time, "time", lambda: now + 25 * 3600)
        store.keep([], party="crew")
        assert store.statistics(None, None, 10) == []


def test_reports_of_flows_or_topics_that_cannot_be_are_refused(guarded: Guarded) -> None:
    flows = site().planning.flows_per_subscriber
    last = own("crew") | {"flow": flows - 1}
    assert guarded.crew.ask("POST", "/v1/statistics", [last]).status == 202
    invented = guarded.crew.ask("POST", "/v1/statistics", [own("crew") | {"flow": flows}])
    assert (invented.status, f"flow {flows}" in invented.json["error"]) == (409, True)
    many = own("crew") | {"topics": [{"topic": "a"}] * (MOST_TOPICS_IN_A_REPORT + 1)}
    answer = guarded.crew.ask("POST", "/v1/statistics", [many])
    assert (answer.status, answer.json["problems"][0]["path"]) == (400, "[0].topics")


def test_a_party_s_heartbeats_make_room_for_its_own_alone(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "MOST_PARTS_OF_A_PARTY", 3)

    def beat(client: Client, part: str, kind: str = "client") -> int:
        body = {"part": part, "kind": kind, "started_at": NOW, "sent_at": NOW}
        return client.ask("POST", "/v1/heartbeats", body).status

    assert beat(guarded.chief, "gateway", "gateway") == 202
    assert beat(guarded.other, "other") == 202
    for number in range(6):
        assert beat(guarded.crew, f"crew.{number}") == 202
    parts = {kept["heartbeat"]["part"] for kept in guarded.chief.get("/v1/heartbeats").json}
    assert parts == {"gateway", "other", "crew.3", "crew.4", "crew.5"}
    deeper = guarded.running.service.tokens.create("deep", "subscriber", "crew.5", "crew")
    assert beat(Client(guarded.running.url, deeper), "crew.5") == 202, "it is its own part"
    assert beat(guarded.crew, "crew.5") == 403


# -- streams -----------------------------------------------------------------------------------


def test_a_revoked_token_has_no_streams(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "LOOK_AT_TOKENS_SECONDS", 0.05)
    with serving(state, open_to_all=False) as running:
        made = running.service.tokens
        mine = Stream(Client(running.url, made.create("crew", "subscriber", "crew", "crew")))
        other = Stream(Client(running.url, made.create("chief", "command")))
        wait_until(lambda: running.service.event_streams == 2, "both listen")
        made.revoke("crew")
        wait_until(mine.ended.is_set, "one is ended")
        assert running.service.event_streams == 1
        assert not other.ended.is_set()
        mine.close()
        other.close()


def test_a_token_has_so_many_streams_and_no_more(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "MOST_STREAMS_OF_A_TOKEN", 2)
    streams = [Stream(guarded.crew), Stream(guarded.crew)]
    refused = guarded.crew.get("/v1/events")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "10")
    streams.append(Stream(guarded.other))
    assert streams[-1].response.status == 200
    for stream in streams:
        stream.close()
    wait_until(lambda: guarded.running.service.event_streams == 0, "all have left")


def test_a_stream_without_a_token_is_told_how(guarded: Guarded) -> None:
    refused = Client(guarded.running.url).get("/v1/events")
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_who_takes_nothing_is_let_go_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "SEND_SECONDS", 0.2)

    async def hangs(_: Any) -> None:
        await asyncio.Event().wait()

    async def never() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def together(service: Any) -> list[bytes]:
        taken: list[bytes] = []

        async def takes(message: dict[str, Any]) -> None:
            taken.append(message.get("body", b""))

        streams = EventStreams(service)
        streams.start()
        hung = asyncio.create_task(streams.serve(Listener(), never, hangs))
        well = asyncio.create_task(streams.serve(Listener(), never, takes))
        await asyncio.sleep(0)
        assert service.event_streams == 2
        service.tell(Event(kind="incident", data={}, version=1))
        await asyncio.wait_for(hung, 20)
        assert service.event_streams == 1, "it is counted for as long as it is there, and no longer"
        await streams.stop()
        await asyncio.wait_for(well, 20)
        return taken

    with serving(tmp_path / "s.sqlite") as running:
        assert any(b"event: incident" in body for body in asyncio.run(together(running.service)))


# -- at the door -------------------------------------------------------------------------------


def test_a_long_body_of_somebody_unknown_is_not_read(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that 16 MB come, sends the first few of them, and is answered."""
    monkeypatch.setattr(server, "DISCARD_SECONDS", 0.1)
    connection = http.client.HTTPConnection(guarded.crew.host, guarded.crew.port, timeout=20)
    connection.putrequest("PUT", "/v1/subscribers/crew")
    connection.putheader("Content-Length", str(16 * 1024 * 1024))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    connection.send(b" " * (LARGEST_UNKNOWN_BODY_BYTES + 1))
    response = connection.getresponse()
    assert (response.status, response.headers["Connection"]) == (401, "close")
    connection.close()


def test_who_says_all_before_it_listens_is_refused_in_words(guarded: Guarded) -> None:
    answer = Client(guarded.running.url).ask("POST", "/v1/statistics", b" " * 3_000_000)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_a_long_body_of_somebody_known_is_read(guarded: Guarded) -> None:
    body = " " * (3 * LARGEST_UNKNOWN_BODY_BYTES) + "[]"
    assert guarded.crew.ask("POST", "/v1/statistics", body).status == 202


def test_a_body_that_never_ends_is_waited_for_only_so_long(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.05)
    response = half_a_body(guarded.crew, 10).getresponse()
    assert (response.status, response.headers["Connection"]) == (408, "close")


def test_large_bodies_under_way_are_limited_for_each_token(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_LARGE_BODIES", 1)
    monkeypatch.setattr(server, "DISCARD_SECONDS", 0.05)
    size = LARGEST_UNKNOWN_BODY_BYTES + 1
    both = [half_a_body(guarded.crew, size) for _ in range(2)]
    readable, _, _ = select_readable([each.sock for each in both], [], [], 60)
    (refused,) = (each for each in both if each.sock in readable)
    assert refused.getresponse().status == 429
    long = " " * size + "[]"
    assert guarded.other.ask("POST", "/v1/statistics", long).status == 202
    for each in both:
        each.close()
    wait_until(
        lambda: guarded.crew.ask("POST", "/v1/statistics", long).status == 202, "room again"
    )


def half_a_body(client: Client, size: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
    connection.putrequest("POST", "/v1/statistics")
    connection.putheader("Authorization", f"Bearer {client.token}")
    connection.putheader("Content-Length", str(2 * size))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    connection.send(b" " * size)
    return connection


def test_a_state_that_is_away_at_the_door_is_said(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the server went away"))

    monkeypatch.setattr(Tokens, "identify", away)
    assert guarded.crew.get("/v1/events").status == 503
    long = b" " * (3 * LARGEST_UNKNOWN_BODY_BYTES)
    assert guarded.crew.ask("POST", "/v1/statistics", long).status == 503


def test_wrong_tokens_of_an_address_are_limited(guarded: Guarded) -> None:
    assert guarded.crew.get("/v1/budgets").status == 200
    wrong = Client(guarded.running.url, "fdx_wrong")
    answers = [wrong.get("/v1/budgets") for _ in range(5)]
    assert [answer.status for answer in answers] == [401, 401, 401, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 1
    assert wrong.get("/v1/events").status == 429
    assert guarded.crew.get("/v1/budgets").status == 200, "who was right before comes in"
    assert guarded.other.get("/v1/budgets").status == 429, "whoever else waits"

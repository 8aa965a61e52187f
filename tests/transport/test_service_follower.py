"""The service follower: it applies new configurations, and continues after failures."""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from firedex.transport import service_follower
from firedex.transport.http import HttpTarget
from firedex.transport.service_client import ServiceClient
from firedex.transport.service_follower import ServiceFollower
from firedex.wire import Configuration, to_json
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.http_server import Handler, serve_http


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_follower, "MAX_WAIT_SECONDS", 0.1)


def configuration(version: int) -> Configuration:
    return Configuration(
        version=version, broker="edge", created_at=datetime.now(UTC), reason="test", flows=()
    )


class Follower:
    """A follower that records the versions of its configurations."""

    def __init__(self, url: str, **options: object) -> None:
        self.versions: list[int] = []
        self.service = ServiceClient(HttpTarget(url=url))
        self.follower = ServiceFollower(
            self.service,
            name="test",
            on_configuration=lambda new: self.versions.append(new.version),
            **options,  # type: ignore[arg-type]
        )

    async def run_until(self, condition: Callable[[], object]) -> None:
        running = asyncio.create_task(self.follower.run())
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await self.service.close()


def test_each_announced_configuration_is_fetched() -> None:
    service = FakeService(1)
    service.set_plan({})

    async def follow(url: str) -> list[int]:
        follower = Follower(url)
        changes = iter((2, 3))

        def finished() -> bool:
            if follower.versions and follower.versions[-1] == service.version:
                if next(changes, None) is None:
                    return True
                service.set_plan({})
            return False

        await follower.run_until(finished)
        return follower.versions

    with running_service(service) as url:
        assert asyncio.run(follow(url)) == [1, 2, 3]


def test_service_without_event_stream_is_polled() -> None:
    version = 1

    def respond(request: Handler) -> None:
        if request.path == "/v1/configuration":
            request.respond(200, to_json(configuration(version)).encode(), ETag=f'"{version}"')
        else:
            request.respond(404)

    async def follow(url: str) -> None:
        nonlocal version
        follower = Follower(url, poll_seconds=0.01)
        await follower.run_until(lambda: 1 in follower.versions)
        version = 2
        follower = Follower(url, poll_seconds=0.01)
        await follower.run_until(lambda: 2 in follower.versions)

    with serve_http(respond) as url:
        asyncio.run(follow(url))


def test_registration_is_repeated_if_the_service_no_longer_knows_it() -> None:
    requests: list[str] = []

    def respond(request: Handler) -> None:
        requests.append(request.path)
        if request.path.startswith("/v1/events"):
            request.start_event_stream()
            event = json.dumps({"version": 1})
            request.wfile.write(f"event: configuration\ndata: {event}\n\n".encode())
            request.rfile.read(1)
        else:
            request.respond(404)

    async def follow(url: str) -> list[int]:
        registrations = 0

        async def register() -> Configuration:
            nonlocal registrations
            registrations += 1
            return configuration(registrations)

        follower = Follower(url, subscriber="crew", register=register)
        await follower.run_until(lambda: registrations >= 3)
        return follower.versions

    with serve_http(respond) as url:
        assert asyncio.run(follow(url))[:2] == [1, 2]
    assert "/v1/events?subscriber=crew" in requests
    assert "/v1/subscribers/crew/configuration" in requests


def test_configuration_of_the_registration_is_not_downloaded_again() -> None:
    statuses: list[int] = []
    service = FakeService(1)
    service.set_plan({})

    def respond(request: Handler) -> None:
        if request.path.startswith("/v1/events"):
            request.start_event_stream()
            request.wfile.write(b'event: configuration\ndata: {"version": 5}\n\n')
            request.rfile.read(1)
        else:
            statuses.append(304 if request.headers.get("If-None-Match") == '"5"' else 200)
            request.respond(statuses[-1])

    async def follow(url: str) -> list[int]:
        async def register() -> Configuration:
            return configuration(5)

        follower = Follower(url, subscriber="crew", register=register)
        await follower.run_until(lambda: statuses)
        return follower.versions

    with serve_http(respond) as url:
        assert asyncio.run(follow(url)) == [5]
    assert statuses == [304]


def test_changed_registration_interrupts_the_event_stream() -> None:
    service = FakeService(1)
    service.set_plan({})

    async def follow(url: str) -> None:
        registrations = 0

        async def register() -> Configuration:
            nonlocal registrations
            registrations += 1
            return configuration(1)

        follower = Follower(url, register=register)

        def registered_twice() -> bool:
            if registrations == 1:
                follower.follower.register_again()
            return registrations >= 2

        await follower.run_until(registered_twice)

    with running_service(service) as url:
        asyncio.run(follow(url))


def test_follower_continues_after_callbacks_fail(caplog: pytest.LogCaptureFixture) -> None:
    service = FakeService(1)
    service.set_plan({})

    async def follow(url: str) -> None:
        accepted, reports = 0, 0
        client = ServiceClient(HttpTarget(url=url))

        def accept(_: Configuration) -> None:
            nonlocal accepted
            accepted += 1
            if accepted == 1:
                raise RuntimeError("the first configuration cannot be applied")

        async def report() -> None:
            nonlocal reports
            reports += 1
            if reports == 1:
                raise RuntimeError("the first report fails")

        follower = ServiceFollower(
            client, name="test", on_configuration=accept, report=report, report_seconds=0.01
        )
        running = asyncio.create_task(follower.run())
        async with asyncio.timeout(60):
            while accepted < 2 or reports < 2:
                await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await client.close()

    with running_service(service) as url:
        asyncio.run(follow(url))
    assert "the first configuration cannot be applied" in caplog.text
    assert "the first report fails" in caplog.text


def test_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "firedex")
    port = free_port()

    async def follow() -> None:
        follower = Follower(f"http://127.0.0.1:{port}")
        running = asyncio.create_task(follower.run_until(lambda: follower.versions))
        while "does not answer" not in caplog.text:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # several attempts
        service = FakeService(1)
        service.set_plan({})
        with running_service(service, port):
            await running

    asyncio.run(follow())
    messages = [record.getMessage() for record in caplog.records if record.name == "firedex"]
    assert len([each for each in messages if "cannot be followed" in each]) == 1
    assert messages[-1] == "test: following the service again"

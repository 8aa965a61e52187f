"""The client of the configuration service: statistics, registrations, and errors."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from click.testing import CliRunner

from firedex.gateway import command
from firedex.service.planner.site_plan import Gateway
from firedex.transport import service_client
from firedex.transport.http import ErrorResponse, HttpTarget, Unreachable
from firedex.transport.service_client import ServiceClient
from firedex.wire import Statistics, TopicCount
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.http_server import Handler, serve_http
from tests.support.loopback_parts import serve_site
from tests.support.parts_site import publisher, site, subscriber
from tests.support.service_requests import ServiceRequests

UNUSED_URL = "http://127.0.0.1:1"
GATEWAY = Gateway(address=IPv4Address("127.0.0.1"), port=1884)


# -- statistics ------------------------------------------------------------------------------------


def make_statistics(*topics: str, flow: int = 0) -> Statistics:
    return Statistics(
        reporter="gateway",
        subscriber="crew",
        flow=flow,
        configuration_version=1,
        window_start=datetime.now(UTC),
        window_seconds=5.0,
        topics=tuple(TopicCount(topic=topic, offered_events=1) for topic in topics),
    )


def post_statistics(url: str, *statistics: Statistics) -> None:
    async def send() -> None:
        async with ServiceClient(HttpTarget(url=url)) as service:
            await service.post_statistics(statistics)

    asyncio.run(send())


def test_topics_may_contain_unicode_text() -> None:
    service = FakeService(1)
    with running_service(service) as url:
        post_statistics(url, make_statistics("消防/烟雾", "fumée/étage"))
    (statistics,) = service.statistics
    assert {each.topic for each in statistics.topics} == {"消防/烟雾", "fumée/étage"}


def test_many_statistics_are_sent_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "MAX_REPORTS_PER_REQUEST", 3)
    monkeypatch.setattr(service_client, "MAX_STATISTICS_BYTES_PER_REQUEST", 20_000)
    small = [make_statistics("t", flow=n) for n in range(7)]
    large = [
        make_statistics(*(f"{'x' * 90}/{n}" for n in range(100)), flow=n) for n in range(7, 10)
    ]
    service = FakeService(1)
    with running_service(service) as url:
        post_statistics(url, *small, *large)
        post_statistics(url)
    assert [each.flow for each in service.statistics] == list(range(10))
    assert len(service.requests) == 5, "3 + 3 + (1 small, 1 large) + 1 large + 1 large"


def test_all_statistics_are_sent_even_if_one_request_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_client, "MAX_REPORTS_PER_REQUEST", 1)
    requests: list[str] = []

    def respond(request: Handler) -> None:
        requests.append(request.path)
        request.respond(400 if len(requests) == 1 else 202, b'{"error": "not this one"}')

    with serve_http(respond) as url, pytest.raises(ErrorResponse, match="not this one"):
        post_statistics(url, make_statistics("t"), make_statistics("t"))
    assert len(requests) == 2


# -- registrations ---------------------------------------------------------------------------------


@pytest.fixture
def service(state_file: Path) -> Iterator[ServiceRequests]:
    with serve_site(site(), state_file, GATEWAY) as url:
        yield ServiceRequests(url)


def test_registration_returns_the_configuration(service: ServiceRequests) -> None:
    assert service.register_publisher(publisher("p0", {"smoke/1": 1.0})).version == 1
    registered = service.register_subscriber(subscriber("crew", "smoke/1"))
    assert registered.flows[0].filters == ("smoke/1",)
    assert service.configuration().flows == registered.flows


def test_rejected_registration_raises_with_the_reason(service: ServiceRequests) -> None:
    with pytest.raises(ErrorResponse, match=r"(?s)PUT /v1/subscribers/crew: .*attic"):
        service.register_subscriber(subscriber("crew", "smoke/1", switch="attic"))


def test_missing_configuration_has_status_404(service: ServiceRequests) -> None:
    with pytest.raises(ErrorResponse) as error:
        service.configuration()
    assert error.value.status == 404


def test_error_contains_the_url_of_the_unreachable_service() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match=f"{url} does not answer"):
        ServiceRequests(url).configuration()


@pytest.mark.parametrize("body", [b"<html>", b"{}", b""])
def test_response_without_configuration_raises_an_error(body: bytes) -> None:
    with (
        serve_http(lambda request: request.respond(200, body)) as url,
        pytest.raises(ErrorResponse, match="not a configuration"),
    ):
        ServiceRequests(url).configuration()


# -- the gateway command ---------------------------------------------------------------------------


def test_gateway_command_rejects_an_invalid_token() -> None:
    result = CliRunner().invoke(command.gateway, ["--token=a b", f"--service={UNUSED_URL}"])
    assert result.exit_code == 2, repr(result.exception)
    assert "the token" in result.stderr


def test_gateway_command_reports_an_invalid_ca_file(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    arguments = ["--service=https://127.0.0.1:1", f"--service-ca={empty}"]
    result = CliRunner().invoke(command.gateway, arguments)
    assert result.exit_code == 2, repr(result.exception)
    assert "empty.pem" in result.stderr.replace("\n", "")

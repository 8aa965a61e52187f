"""The controller's HTTP interface, with a fake application."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from firedex.transport.http import ErrorResponse, HttpClient, HttpTarget
from firedex.wire import to_json, to_plain
from tests.support.desired_examples import flow_rule, network
from tests.support.loopback_parts import FakeOpenFlowApp, running_controller_api


@pytest.fixture
def controller() -> FakeOpenFlowApp:
    return FakeOpenFlowApp()


@pytest.fixture
def url(controller: FakeOpenFlowApp) -> Iterator[str]:
    with running_controller_api(controller) as address:
        yield address


def request(
    url: str, method: str, path: str, body: str | None = None, token: str | None = None
) -> tuple[int, Any]:
    with HttpClient(HttpTarget(url=url, token=token, timeout_seconds=60)) as client:
        try:
            response = client.request(method, path, body)
        except ErrorResponse as error:
            return error.status, error.detail
        return response.status, json.loads(response.body)


def test_network_is_applied_and_the_response_lists_changes(
    controller: FakeOpenFlowApp, url: str
) -> None:
    desired = network(flow_rule(), version=7)
    status, change = request(url, "PUT", "/v1/network", to_json(desired))
    assert status == 200
    assert (change["configuration_version"], change["seconds"]) == (7, 0.001)
    assert [switch["switch"] for switch in change["switches"]] == ["core"]
    assert controller.put == [desired]
    assert request(url, "GET", "/v1/network") == (200, to_plain(desired))


def test_network_returns_404_before_one_is_set(url: str) -> None:
    assert request(url, "GET", "/v1/network") == (404, {"error": "no network has been set yet"})


def test_topology_capabilities_and_statistics_are_served(url: str) -> None:
    assert request(url, "GET", "/v1/topology")[1]["switches"][0]["connected"] is True
    assert request(url, "GET", "/v1/capabilities")[1][0]["priorities"] == 16
    assert request(url, "GET", "/v1/statistics") == (200, {"switches": []})
    assert request(url, "GET", "/v1/health") == (200, {"status": "ok"})


def test_disconnected_switch_returns_503(controller: FakeOpenFlowApp, url: str) -> None:
    controller.refusing.add("core")
    status, answer = request(url, "PUT", "/v1/network", to_json(network()))
    assert status == 503
    assert answer["switch"] == "core"
    assert "the previous rules stay active" in answer["error"]


def test_refused_rule_returns_409_with_its_description(
    controller: FakeOpenFlowApp, url: str
) -> None:
    controller.refusing.add("core")
    controller.refused_rule = "flow 2 of command"
    status, answer = request(url, "PUT", "/v1/network", to_json(network()))
    assert status == 409
    assert (answer["switch"], answer["rule"]) == ("core", "flow 2 of command")
    assert "the table is full" in answer["error"]


def test_unknown_key_returns_400_with_its_name(controller: FakeOpenFlowApp, url: str) -> None:
    body = json.dumps({**to_plain(network()), "swiches": []})
    status, answer = request(url, "PUT", "/v1/network", body)
    assert status == 400
    assert "unknown key 'swiches'; did you mean 'switches'?" in answer["error"]
    assert controller.put == []


def test_only_health_needs_no_token(controller: FakeOpenFlowApp) -> None:
    body = to_json(network())
    with running_controller_api(controller, token="correct-horse") as url:  # noqa: S106
        assert request(url, "PUT", "/v1/network", body)[0] == 401
        assert request(url, "GET", "/v1/topology", token="wrong")[0] == 401  # noqa: S106
        assert controller.put == []
        assert request(url, "PUT", "/v1/network", body, "correct-horse")[0] == 200
        assert request(url, "GET", "/v1/health")[0] == 200

"""The controller's HTTP interface, in front of the shared fake app."""

import http.client
import json
from typing import Any

from loopback_parts import FakeController
from parts_site import switch_rules_of

from firedex.wire import to_json, to_plain


def ask(url: str, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_rules_reach_the_app_and_the_barrier_is_answered(
    controller: FakeController, controller_url: str
) -> None:
    rules = switch_rules_of()
    status, answer = ask(controller_url, "PUT", "/v1/switches/core/rules", to_json(rules))
    assert (status, answer) == (200, {"switch": "core", "seconds_to_barrier": 0.001})
    assert controller.put == [rules]


def test_who_is_connected(controller_url: str) -> None:
    assert ask(controller_url, "GET", "/v1/switches") == (200, {"connected": {"core": True}})


def test_a_switch_that_is_away_is_503(controller: FakeController, controller_url: str) -> None:
    controller.refusing.add("core")
    status, answer = ask(
        controller_url, "PUT", "/v1/switches/core/rules", to_json(switch_rules_of())
    )
    assert status == 503
    assert "the previous rules stand" in answer["error"]


def test_an_unknown_key_is_refused_by_name(controller: FakeController, controller_url: str) -> None:
    body = json.dumps({**to_plain(switch_rules_of()), "metres": []})
    status, answer = ask(controller_url, "PUT", "/v1/switches/core/rules", body)
    assert status == 400
    assert "unknown key 'metres'; did you mean 'meters'?" in answer["error"]
    assert controller.put == []


def test_path_and_rules_must_agree(controller: FakeController, controller_url: str) -> None:
    status, answer = ask(
        controller_url, "PUT", "/v1/switches/roof/rules", to_json(switch_rules_of())
    )
    assert status in (400, 409)
    assert "'roof'" in answer["error"]
    assert controller.put == []


def test_other_paths_are_not_there(controller_url: str) -> None:
    assert ask(controller_url, "GET", "/v1/attic")[0] == 404
    assert ask(controller_url, "PUT", "/v1/attic", "{}")[0] == 404

"""The controller's HTTP interface, in front of the shared fake app."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from desired_examples import flow_rule, network
from loopback_parts import FakeController, running_controller

from firedex.wire import to_json, to_plain


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def url(controller: FakeController) -> Iterator[str]:
    with running_controller(controller) as address:
        yield address


def ask(
    url: str, method: str, path: str, body: str | None = None, token: str | None = None
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_network_reaches_the_app_and_the_answer_says_what_changed(
    controller: FakeController, url: str
) -> None:
    wanted = network(flow_rule(), version=7)
    status, answer = ask(url, "PUT", "/v1/network", to_json(wanted))
    assert status == 200
    assert (answer["configuration_version"], answer["seconds"]) == (7, 0.001)
    assert [change["switch"] for change in answer["switches"]] == ["core"]
    assert controller.put == [wanted]
    assert ask(url, "GET", "/v1/network") == (200, to_plain(wanted))


def test_before_anything_was_asked_there_is_no_network(url: str) -> None:
    assert ask(url, "GET", "/v1/network") == (404, {"error": "nothing is desired yet"})


def test_what_is_observed(url: str) -> None:
    assert ask(url, "GET", "/v1/topology")[1]["switches"][0]["connected"] is True
    assert ask(url, "GET", "/v1/capabilities")[1][0]["priorities"] == 16
    assert ask(url, "GET", "/v1/statistics") == (200, {"switches": []})
    assert ask(url, "GET", "/v1/health") == (200, {"status": "ok"})


def test_a_switch_that_is_away_is_503(controller: FakeController, url: str) -> None:
    controller.refusing.add("core")
    status, answer = ask(url, "PUT", "/v1/network", to_json(network()))
    assert status == 503
    assert answer["switch"] == "core"
    assert "the previous rules stand" in answer["error"]


def test_a_refusal_names_the_rule(controller: FakeController, url: str) -> None:
    controller.refusing.add("core")
    controller.refused_rule = "flow 2 of command"
    status, answer = ask(url, "PUT", "/v1/network", to_json(network()))
    assert status == 409
    assert (answer["switch"], answer["rule"]) == ("core", "flow 2 of command")
    assert "the table is full" in answer["error"]


def test_an_unknown_key_is_refused_by_name(controller: FakeController, url: str) -> None:
    body = json.dumps({**to_plain(network()), "swiches": []})
    status, answer = ask(url, "PUT", "/v1/network", body)
    assert status == 400
    assert "unknown key 'swiches'; did you mean 'switches'?" in answer["error"]
    assert controller.put == []


def test_other_paths_are_not_there(url: str) -> None:
    assert ask(url, "GET", "/v1/attic")[0] == 404
    assert ask(url, "PUT", "/v1/attic", "{}")[0] == 404


def test_without_its_token_nothing_is_told_or_taken(controller: FakeController, url: str) -> None:
    controller.settings = replace(controller.settings, token="correct horse")  # noqa: S106
    body = to_json(network())
    for token in (None, "", "correct hors", "correct hors\xe9"):
        assert ask(url, "PUT", "/v1/network", body, token)[0] == 401
        assert ask(url, "GET", "/v1/topology", token=token)[0] == 401
    assert controller.put == []
    assert ask(url, "PUT", "/v1/network", body, "correct horse")[0] == 200
    assert ask(url, "GET", "/v1/health")[0] == 200, "health is everybody's"


@pytest.mark.parametrize("length", ["", "minus one", "-1", "1e3"])
def test_a_length_that_is_none_is_refused(url: str, length: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(f"PUT /v1/network HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        assert raw.recv(200).startswith(b"HTTP/1.1 411")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(b"PUT /v1/network HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")
        assert raw.recv(200).startswith(b"HTTP/1.1 413")

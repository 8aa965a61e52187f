"""The HTTP server that the controller, the switch agent and the gateway share."""

import http.client
import json
import logging
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from firedex.transport import http_server
from firedex.transport.http_server import JsonServer, Request, RequestError, Route
from tests.support.waiting import wait_until

TOKEN = "correct-horse"  # noqa: S105
MAX_BODY_BYTES = 100_000


class TableFullError(Exception):
    """An error that the test server describes with status 409."""


def respond(request: Request) -> dict[str, Any]:
    if request.body == b"full":
        raise TableFullError("the table is full")
    if request.body == b"bug":
        raise ZeroDivisionError
    return {"name": request.arguments["name"], "bytes": len(request.body)}


def describe(error: Exception) -> RequestError | None:
    return (
        RequestError(HTTPStatus.CONFLICT, str(error), rule="7")
        if type(error) is TableFullError
        else None
    )


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    routes = [
        Route(method="GET", path="/public", respond=lambda _: {"status": "ok"}, public=True),
        Route(method="GET", path="/things/{name}", respond=respond),
        Route(method="PUT", path="/things/{name}", respond=respond),
        Route(
            method="GET",
            path="/search",
            respond=lambda request: dict(request.query),
            parameters=frozenset({"after", "text"}),
        ),
    ]
    with JsonServer(
        ("127.0.0.1", 0),
        routes,
        token=TOKEN,
        describe_error=describe,
        name="test",
        max_body_bytes=MAX_BODY_BYTES,
        idle_seconds=60.0,
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield "127.0.0.1", int(server.server_address[1])
        server.shutdown()
        thread.join()


def request(
    address: tuple[str, int],
    method: str,
    path: str,
    body: bytes | None = None,
    authorization: str = f"Bearer {TOKEN}",
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request(method, path, body, {"Authorization": authorization})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def raw_status(address: tuple[str, int], header: str) -> int:
    """Return the status of a PUT with this header and no body."""
    with socket.create_connection(address, timeout=60) as connection:
        head = f"PUT /things/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}{header}\r\n".encode())
        return int(connection.recv(4096).split()[1])


def test_route_gets_the_body_and_the_parts_of_the_path(address: tuple[str, int]) -> None:
    assert request(address, "PUT", "/things/a", b"xyz") == (200, {"name": "a", "bytes": 3})
    assert request(address, "GET", "/things/b") == (200, {"name": "b", "bytes": 0})


@pytest.mark.parametrize("path", ["/", "/things", "/things/", "/things/a/b", "/things/a?b=1"])
def test_unknown_path_returns_404(address: tuple[str, int], path: str) -> None:
    assert request(address, "GET", path)[0] == 404


def test_route_gets_the_parameters_that_it_names(address: tuple[str, int]) -> None:
    assert request(address, "GET", "/search") == (200, {})
    found = request(address, "GET", "/search?after=7&text=a%2Fb+c")
    assert found == (200, {"after": "7", "text": "a/b c"})


def test_unknown_or_repeated_parameter_returns_400(address: tuple[str, int]) -> None:
    status, body = request(address, "GET", "/search?afer=7")
    assert (status, body) == (400, {"error": "unknown parameter 'afer'; known are after, text"})
    assert request(address, "GET", "/search?after=7&after=8")[0] == 400


def test_wrong_method_returns_405_with_the_allowed_methods(address: tuple[str, int]) -> None:
    status, body = request(address, "DELETE", "/things/a")
    assert (status, body) == (405, {"error": "/things/a allows the methods GET, PUT"})


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}\xe9"]
)
def test_wrong_token_returns_401(address: tuple[str, int], authorization: str) -> None:
    for method, body in (("GET", None), ("PUT", b"x"), ("PUT", b"x" * 70_000)):
        status, answer = request(address, method, "/things/a", body, authorization)
        assert (status, list(answer)) == (401, ["error"])


def test_public_route_needs_no_token(address: tuple[str, int]) -> None:
    assert request(address, "GET", "/public", authorization="") == (200, {"status": "ok"})


@pytest.mark.parametrize("length", ["-1", "many", "1e3", "+5", "٣"])
def test_invalid_content_length_returns_400(address: tuple[str, int], length: str) -> None:
    assert raw_status(address, f"Content-Length: {length}\r\n") == 400


def test_two_content_lengths_return_400(address: tuple[str, int]) -> None:
    assert raw_status(address, "Content-Length: 2\r\nContent-Length: 3\r\n") == 400


@pytest.mark.parametrize("header", ["", "Content-Length: \r\n", "Transfer-Encoding: chunked\r\n"])
def test_body_without_content_length_returns_411(address: tuple[str, int], header: str) -> None:
    assert raw_status(address, header) == 411


def test_large_body_returns_413_before_it_is_read(address: tuple[str, int]) -> None:
    assert raw_status(address, f"Content-Length: {MAX_BODY_BYTES + 1}\r\n") == 413


def test_connection_stays_open_after_an_error(address: tuple[str, int]) -> None:
    connection = http.client.HTTPConnection(*address, timeout=60)
    for token, status in (("wrong", 401), (TOKEN, 200)):
        connection.request("PUT", "/things/a", b"xyz", {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.close()


def test_described_error_returns_its_status_and_details(address: tuple[str, int]) -> None:
    status, body = request(address, "PUT", "/things/a", b"full")
    assert (status, body) == (409, {"error": "the table is full", "rule": "7"})


def test_internal_error_is_logged_with_the_request_id(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        status, body = request(address, "PUT", "/things/a", b"bug")
    assert status == 500
    message, _, request_id = body["error"].partition(" (request id ")
    assert message == "internal error; see the test log"
    assert f"request {request_id.rstrip(')')} (PUT /things/a) failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_connection_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_THREADS", 1)
    with JsonServer(
        ("127.0.0.1", 0),
        [Route(method="GET", path="/public", respond=lambda _: {}, public=True)],
        token=None,
        describe_error=describe,
        name="test",
        max_body_bytes=MAX_BODY_BYTES,
        idle_seconds=60.0,
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        small = ("127.0.0.1", int(server.server_address[1]))
        with socket.create_connection(small, timeout=60), socket.create_connection(small) as second:
            second.settimeout(60)
            assert second.recv(4096).startswith(b"HTTP/1.1 503")

        def request_succeeds() -> bool:
            try:
                return request(small, "GET", "/public")[0] == 200
            except (OSError, ValueError, http.client.HTTPException):
                return False

        wait_until(request_succeeds, "the thread of the closed connection is free again")
        server.shutdown()
        thread.join()

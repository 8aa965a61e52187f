"""The HTTP client: requests, server-sent events, TLS and errors, blocking and asynchronous."""

import asyncio
import json
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from firedex.transport import http
from firedex.transport.http import (
    AsyncHttpClient,
    ErrorResponse,
    HttpClient,
    HttpTarget,
    Response,
    ServerEvent,
    Unreachable,
)
from tests.support.free_ports import free_port
from tests.support.http_server import Handler, make_certificate, serve_http

TOKEN = "secret"  # noqa: S105  # used only in this test
SendRequest = Callable[..., Response]


def send_blocking(
    target: HttpTarget, method: str, path: str, *body: str, **more: object
) -> Response:
    with HttpClient(target) as client:
        return client.request(method, path, *body, **more)  # type: ignore[arg-type]


def send_async(target: HttpTarget, method: str, path: str, *body: str, **more: object) -> Response:
    async def send() -> Response:
        async with AsyncHttpClient(target) as client:
            return await client.request(method, path, *body, **more)  # type: ignore[arg-type]

    return asyncio.run(send())


@pytest.fixture(params=[send_blocking, send_async])
def send(request: pytest.FixtureRequest) -> SendRequest:
    function: SendRequest = request.param
    return function


def echo(request: Handler) -> None:
    received = {
        "method": request.command,
        "path": request.path,
        "body": request.body.decode(),
        "token": request.headers.get("Authorization"),
        "type": request.headers.get("Content-Type"),
    }
    request.respond(200, json.dumps(received).encode(), ETag='"7"')


def test_request_sends_body_and_token(send: SendRequest) -> None:
    with serve_http(echo) as url:
        response = send(HttpTarget(url=url, token=TOKEN), "PUT", "/v1/a?b=c", "消防")
    assert json.loads(response.body) == {
        "method": "PUT",
        "path": "/v1/a?b=c",
        "body": "消防",
        "token": f"Bearer {TOKEN}",
        "type": "application/json",
    }
    assert response.etag == '"7"'


def test_unchanged_resource_has_status_304(send: SendRequest) -> None:
    def respond(request: Handler) -> None:
        request.respond(304 if request.headers.get("If-None-Match") == '"7"' else 200)

    with serve_http(respond) as url:
        assert send(HttpTarget(url=url), "GET", "/", etag='"7"').status == 304
        assert send(HttpTarget(url=url), "GET", "/", etag='"6"').status == 200


def test_error_contains_reason_status_and_detail(send: SendRequest) -> None:
    body = b'{"error": "no such switch", "problems": ["attic"]}'
    with (
        serve_http(lambda request: request.respond(422, body)) as url,
        pytest.raises(ErrorResponse, match=r"^PUT /v1/a: no such switch$") as error,
    ):
        send(HttpTarget(url=url), "PUT", "/v1/a?wait_seconds=1", "{}")
    assert error.value.status == 422
    assert error.value.detail["problems"] == ["attic"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": ["x"]}', b""])
def test_error_without_reason_contains_the_status_text(send: SendRequest, body: bytes) -> None:
    with (
        serve_http(lambda request: request.respond(500, body)) as url,
        pytest.raises(ErrorResponse, match=r"GET /: Internal Server Error"),
    ):
        send(HttpTarget(url=url), "GET", "/")


def test_closed_port_is_unreachable(send: SendRequest) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match=f"{url} does not answer: .+"):
        send(HttpTarget(url=url), "GET", "/")


def test_incomplete_response_is_unreachable(send: SendRequest) -> None:
    def respond(request: Handler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100")
        request.end_headers()
        request.wfile.write(b"only this")
        request.close_connection = True

    with serve_http(respond) as url, pytest.raises(Unreachable):
        send(HttpTarget(url=url), "GET", "/")


def test_slow_response_is_unreachable(send: SendRequest) -> None:
    def respond(request: Handler) -> None:
        request.rfile.read(1)  # returns when the client closes the connection

    with serve_http(respond) as url, pytest.raises(Unreachable):
        send(HttpTarget(url=url), "GET", "/", timeout_seconds=0.1)


def test_response_above_the_limit_is_rejected(
    send: SendRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1000)
    with (
        serve_http(lambda request: request.respond(200, b"x" * 1001)) as url,
        pytest.raises(Unreachable, match="larger than 1000 bytes"),
    ):
        send(HttpTarget(url=url), "GET", "/")


@pytest.mark.parametrize("token", ["abc\r", "a b", "schlüssel", "a\nX-Other: 1"])
def test_token_with_invalid_characters_is_rejected(token: str) -> None:
    with pytest.raises(ValueError, match="token") as error:
        HttpTarget(url="http://127.0.0.1:1", token=token)
    assert token not in str(error.value), "the token is a secret"


@pytest.mark.parametrize("url", ["127.0.0.1:8088", "localhost:8088", "ftp://127.0.0.1:8088"])
def test_url_with_another_scheme_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        HttpTarget(url=url)


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_tls_server_is_trusted_only_with_its_ca_file(send: SendRequest, certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    with serve_http(echo, tls=tls) as url:
        assert send(HttpTarget(url=url, ca_file=certificate), "GET", "/").status == 200
        with pytest.raises(Unreachable, match="certificate"):
            send(HttpTarget(url=url), "GET", "/")


def test_error_contains_the_invalid_ca_file(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(ValueError, match=r"empty\.pem"):
        HttpClient(HttpTarget(url="https://127.0.0.1:1", ca_file=empty))
    with pytest.raises(ValueError, match="https://"):
        HttpTarget(url="http://127.0.0.1:1", ca_file=empty)


# -- server-sent events ----------------------------------------------------------------------------


def read_events(url: str, count: int) -> list[ServerEvent]:
    async def read() -> list[ServerEvent]:
        received_events: list[ServerEvent] = []
        async with (
            AsyncHttpClient(HttpTarget(url=url)) as client,
            client.events("/v1/events") as events,
        ):
            async for event in events:
                received_events.append(event)
                if len(received_events) == count:
                    break
        return received_events

    return asyncio.run(read())


def test_events_are_read_and_comments_ignored() -> None:
    def respond(request: Handler) -> None:
        request.start_event_stream()
        request.wfile.write(b": comment\n\nevent: configuration\ndata: 1\n\ndata: a\ndata: b\n\n")

    with serve_http(respond) as url:
        assert read_events(url, 10) == [
            ServerEvent(kind="configuration", data="1"),
            ServerEvent(kind="message", data="a\nb"),
        ]


def test_event_stream_is_closed_at_the_end_of_the_with_block() -> None:
    closed: list[bytes] = []

    def respond(request: Handler) -> None:
        request.start_event_stream()
        request.wfile.write(b"data: 1\n\n")
        closed.append(request.rfile.read())

    with serve_http(respond) as url:
        assert [event.data for event in read_events(url, 1)] == ["1"]
    assert closed == [b""]


def test_missing_event_stream_raises_an_error_response() -> None:
    with (
        serve_http(lambda request: request.respond(404, b'{"error": "not found"}')) as url,
        pytest.raises(ErrorResponse, match="not found") as error,
    ):
        read_events(url, 1)
    assert error.value.status == 404


def test_event_stream_of_a_closed_port_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        read_events(f"http://127.0.0.1:{free_port()}", 1)


def test_silent_event_stream_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STREAM_SILENCE_SECONDS", 0.1)

    def respond(request: Handler) -> None:
        request.start_event_stream()
        request.rfile.read(1)  # returns when the client closes the connection

    with serve_http(respond) as url, pytest.raises(Unreachable, match="event stream ended"):
        read_events(url, 1)


def test_error_inside_the_with_block_is_not_changed() -> None:
    async def fail(url: str) -> None:
        async with AsyncHttpClient(HttpTarget(url=url)) as client, client.events("/"):
            raise OSError("error of the caller")

    def respond(request: Handler) -> None:
        request.start_event_stream()
        request.rfile.read(1)

    with serve_http(respond) as url, pytest.raises(OSError, match=r"^error of the caller$"):
        asyncio.run(fail(url))

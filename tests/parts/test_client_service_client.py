"""Whatever goes wrong between a client and the service is a ClientError that says what."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from free_ports import free_port
from loopback_parts import served
from parts_site import publisher, site, subscriber

from firedex.service.controller_client import ControllerClient, ControllerLink
from firedex.service.site_plan import Gateway
from firedex_clients import ClientError, ServiceRefused
from firedex_clients.service_client import ServiceClient

GATEWAY = Gateway(address=IPv4Address("127.0.0.1"), port=1884)


@pytest.fixture
def service(state_file: Path) -> Iterator[ServiceClient]:
    with served(site(), state_file, GATEWAY) as url:
        yield ServiceClient(url)


@contextmanager
def some_other_server(status: int, body: bytes) -> Iterator[str]:
    """Whatever else may listen where the service was expected."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def test_registering_answers_with_the_configuration(service: ServiceClient) -> None:
    assert service.register_publisher(publisher("p0", {"smoke/1": 1.0})).version == 1
    made = service.register_subscriber(subscriber("crew", "smoke/1"))
    assert made.flows[0].filters == ("smoke/1",)
    assert service.configuration().flows == made.flows


def test_a_refusal_carries_the_services_words(service: ServiceClient) -> None:
    with pytest.raises(ServiceRefused, match=r"(?s)PUT /v1/subscribers/crew: .*attic"):
        service.register_subscriber(subscriber("crew", "smoke/1", switch="attic"))


def test_nothing_configured_yet_is_said(service: ServiceClient) -> None:
    with pytest.raises(ServiceRefused, match="nothing is configured yet"):
        service.configuration()


def test_a_service_that_is_away_is_named() -> None:
    port = free_port()
    with pytest.raises(ServiceRefused, match=rf"127\.0\.0\.1:{port} does not answer"):
        ServiceClient(f"http://127.0.0.1:{port}").configuration()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": ["x"]}', b""])
def test_an_error_without_our_words_is_still_a_refusal(body: bytes) -> None:
    with some_other_server(500, body) as url, pytest.raises(ServiceRefused):
        ServiceClient(url).configuration()


@pytest.mark.parametrize("body", [b"<html>", b"{}", b""])
def test_a_good_answer_that_is_no_configuration_is_a_refusal(body: bytes) -> None:
    with some_other_server(200, body) as url, pytest.raises(ServiceRefused):
        ServiceClient(url).configuration()


@pytest.mark.parametrize("url", ["127.0.0.1:8088", "localhost:8088", "ftp://127.0.0.1:8088"])
def test_an_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match="http or https://HOST:PORT"):
        ServiceClient(url)


@pytest.mark.parametrize("url", ["127.0.0.1:8088", "localhost:8088", "https://127.0.0.1:8088"])
def test_a_controllers_url_that_is_not_plain_http_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        ControllerClient(ControllerLink(url))

"""Gateway and clients follow a service over https, and trust it through its CA file only."""

import shutil
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from firedex.wire import LogUtility
from firedex_clients import Publisher, ServiceUnreachable, Subscriber
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.http_server import make_certificate
from tests.support.restarting_parts import GatewayProcess
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate"),
]


class SecureSite:
    """A fake service with TLS, a gateway process that follows it, and a real broker."""

    def __init__(self, broker: int, certificate: Path) -> None:
        self.broker, self.certificate, self.service_port = broker, certificate, free_port()
        self.url = f"https://127.0.0.1:{self.service_port}"
        self.gateway = GatewayProcess(
            broker, self.url, f"--service-ca={certificate}", "--report-seconds=0.2", "--seed=1"
        )
        self.service = FakeService(self.gateway.port, udp_port=self.gateway.udp_port)

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate)
        return context


@pytest.fixture
def site(broker: int, tmp_path: Path) -> Iterator[SecureSite]:
    site = SecureSite(broker, make_certificate(tmp_path))
    with (
        running_service(site.service, site.service_port, tls=site.tls()),
        site.gateway.running(),
    ):
        yield site


def uses(site: SecureSite, kind: str, version: int) -> bool:
    return any(
        beat.kind == kind and beat.configuration_version == version
        for beat in site.service.heartbeats
    )


def test_gateway_and_subscriber_follow_a_service_with_tls(site: SecureSite, address: str) -> None:
    crew = Subscriber(
        site.url, id="crew", switch="core", address=address, service_ca=site.certificate
    )
    events = crew.subscribe("secret", utility=LogUtility(weight=1.0))
    with crew, Publisher("127.0.0.1", site.broker, id="p") as sensor:
        for flow in (1, 2):
            version = site.service.set_plan({"secret": flow})
            for kind in ("gateway", "client"):
                wait_until(partial(uses, site, kind, version), f"the {kind} uses the plan")
        sensor.publish("secret", b"smoke")
        event = events.take(timeout_seconds=60)
    assert event is not None
    assert event.payload == b"smoke"


def test_service_with_an_unknown_certificate_is_not_trusted(site: SecureSite, address: str) -> None:
    crew = Subscriber(site.url, id="crew", switch="core", address=address)
    crew.subscribe("secret", utility=LogUtility(weight=1.0))
    with pytest.raises(ServiceUnreachable, match="certificate"), crew:
        pass

"""A site for tests of the client library and its commands."""

from contextlib import ExitStack
from typing import Any

from firedex_clients import Subscriber
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.restarting_parts import GatewayProcess


class Site:
    """A fake service, a real gateway process that uses it, and a real broker."""

    def __init__(self, broker: int, running: ExitStack) -> None:
        self.broker, port = broker, free_port()
        self.url, self.metrics = f"http://127.0.0.1:{port}", free_port()
        self.gateway = GatewayProcess(
            broker,
            self.url,
            f"--metrics=127.0.0.1:{self.metrics}",
            "--report-seconds=0.2",
            "--seed=1",
        )
        self.service = FakeService(self.gateway.port, udp_port=self.gateway.udp_port)
        running.enter_context(running_service(self.service, port))
        running.enter_context(self.gateway.running())

    def crew(self, address: str, **options: Any) -> Subscriber:
        return Subscriber(self.url, id="crew", switch="core", address=address, **options)

"""Requests to the configuration service from tests without an event loop."""

import asyncio
from pathlib import Path

from firedex.transport.http import HttpTarget
from firedex.transport.service_client import ServiceClient
from firedex.wire import Configuration, PublisherRegistration, SubscriberRegistration

__all__ = ["ServiceRequests"]


class ServiceRequests:
    """The requests of `ServiceClient`, each as a blocking call."""

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        self._target = HttpTarget(url=url, ca_file=ca_file)

    def register_publisher(self, registration: PublisherRegistration) -> Configuration:
        """Register a publisher."""

        async def send() -> Configuration:
            async with ServiceClient(self._target) as service:
                return await service.register_publisher(registration)

        return asyncio.run(send())

    def register_subscriber(self, registration: SubscriberRegistration) -> Configuration:
        """Register a subscriber."""

        async def send() -> Configuration:
            async with ServiceClient(self._target) as service:
                return await service.register_subscriber(registration)

        return asyncio.run(send())

    def configuration(self) -> Configuration:
        """Return the active configuration."""

        async def send() -> Configuration:
            async with ServiceClient(self._target) as service:
                found, _ = await service.configuration()
                assert found is not None
                return found

        return asyncio.run(send())

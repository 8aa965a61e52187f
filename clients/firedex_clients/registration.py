"""Registration of a subscriber at the service, and the errors of the service as client errors."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from firedex.transport import service_client
from firedex.transport.http import ErrorResponse, HttpError, HttpTarget, Unreachable
from firedex.transport.mqtt_security import MqttSecurity
from firedex.transport.service_client import ServiceClient
from firedex.wire import Configuration, Subscriber, SubscriberRegistration, Subscription
from firedex.wire.workload import Transport
from firedex_clients.errors import ClientError, NotActivated, ServiceRefused, ServiceUnreachable

__all__ = [
    "Registration",
    "SubscriberDetails",
    "client_errors",
    "connection_security",
    "service_target",
]

log = logging.getLogger("firedex.clients")
REMOVAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberDetails:
    """The data of a registration, except the subscriptions."""

    id: str
    switch: str
    role: str
    transport: Transport
    address: IPv4Address


class Registration:
    """The registration of one subscriber; records whether it may exist at the service."""

    def __init__(self, service: ServiceClient, details: SubscriberDetails) -> None:
        self._service, self._details = service, details
        self._may_exist = False

    async def put(self, subscriptions: tuple[Subscription, ...]) -> Configuration:
        """Register with all subscriptions; return the configuration that includes them."""
        details = self._details
        registration = SubscriberRegistration(
            subscriber=Subscriber(
                id=details.id,
                switch=details.switch,
                role=details.role,
                transport=details.transport,
                subscriptions=subscriptions,
            ),
            address=details.address,
        )
        existed, self._may_exist = self._may_exist, True
        try:
            return await self._service.register_subscriber(registration)
        except service_client.NotActivated:
            raise
        except ErrorResponse:
            # An existing registration with this id stays. It may belong to another client.
            self._may_exist = existed
            raise

    async def remove(self) -> None:
        """Delete the registration, if there may be one."""
        if not self._may_exist:
            return
        self._may_exist = False
        try:
            await self._service.remove_subscriber(self._details.id, timeout_seconds=REMOVAL_SECONDS)
        except HttpError as error:
            log.warning("%s: the registration was not removed: %s", self._details.id, error)


def service_target(url: str, token: str | None, ca_file: Path | None) -> HttpTarget:
    """Return the service as a target of HTTP requests; raise `ServiceRefused` if it is invalid."""
    try:
        target = HttpTarget(url=url, token=token, ca_file=ca_file)
        target.options()  # reads the CA file
    except ValueError as error:
        raise ServiceRefused(str(error)) from error
    return target


def connection_security(
    security: MqttSecurity | None, name: str, token: str | None
) -> MqttSecurity | None:
    """Return the security of MQTT connections; raise `ClientError` if a file cannot be used."""
    if security is None:
        return None
    security = security.with_default_credentials(name, token)
    try:
        security.context()  # reads the files
    except ValueError as error:
        raise ClientError(str(error)) from error
    return security


@contextmanager
def client_errors() -> Iterator[None]:
    """Raise errors of requests to the service as errors of this package."""
    try:
        yield
    except Unreachable as error:
        raise ServiceUnreachable(str(error)) from error
    except service_client.NotActivated as error:
        raise NotActivated(str(error)) from error
    except HttpError as error:
        raise ServiceRefused(str(error)) from error

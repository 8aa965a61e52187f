"""Client of the configuration service, for event loops.

It raises the errors of `firedex.transport.http`: `Unreachable` and `ErrorResponse`.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import quote

from firedex.transport.http import (
    AsyncHttpClient,
    ErrorResponse,
    HttpTarget,
    Response,
    ServerEvent,
)
from firedex.wire import (
    Configuration,
    Heartbeat,
    Network,
    PublisherRegistration,
    Statistics,
    SubscriberRegistration,
    WireError,
    from_json,
    from_plain,
    to_json,
)

__all__ = [
    "ClockOffset",
    "NotActivated",
    "ServiceClient",
    "configuration_path",
    "parse_configuration",
]

MAX_REPORTS_PER_REQUEST = 10_000
MAX_STATISTICS_BYTES_PER_REQUEST = 4_000_000
"""The service accepts at most 10,000 reports and 16 MB in one request."""
CLOCK_REQUESTS = 5
ACTIVATION_SECONDS = 10
"""How long the service may wait for activation before it responds to a registration."""
REGISTRATION_SECONDS = 30.0
"""Total time in which a registration must become active."""
ACTIVATION_POLL_SECONDS = 0.25


class NotActivated(ErrorResponse):
    """The service stored a registration, but did not activate it in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """Estimated difference between the service's clock and the local clock."""

    seconds: float
    uncertainty_seconds: float


class ServiceClient:
    """Client of one configuration service."""

    def __init__(self, target: HttpTarget) -> None:
        self._http = AsyncHttpClient(target)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    # -- configuration -----------------------------------------------------------------------------

    async def configuration(
        self, subscriber: str | None = None, *, etag: str | None = None
    ) -> tuple[Configuration | None, str | None]:
        """Return the active configuration, of all or of one subscriber, and its ETag.

        The configuration is None if it still has the given ``etag``.
        """
        path = configuration_path(subscriber)
        response = await self._http.request("GET", path, etag=etag)
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None, etag
        return parse_configuration(response, f"GET {path}"), response.etag

    def events(
        self, subscriber: str | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[ServerEvent]]:
        """Open the stream of server-sent events, optionally of one subscriber."""
        query = "" if subscriber is None else f"?subscriber={quote(subscriber, safe='')}"
        return self._http.events(f"/v1/events{query}")

    # -- registration ------------------------------------------------------------------------------

    async def register_publisher(self, registration: PublisherRegistration) -> Configuration:
        """Register a publisher; return the configuration that includes it."""
        path = f"/v1/publishers/{quote(registration.publisher.id, safe='')}"
        return await self._register(path, to_json(registration), None)

    async def register_subscriber(self, registration: SubscriberRegistration) -> Configuration:
        """Register a subscriber; return the configuration of its flows.

        Raises `NotActivated` if the service stores the registration, but does not activate it.
        """
        name = registration.subscriber.id
        path = f"/v1/subscribers/{quote(name, safe='')}"
        return await self._register(path, to_json(registration), name)

    async def remove_subscriber(self, name: str, *, timeout_seconds: float | None = None) -> None:
        """Delete the registration of a subscriber, if there is one."""
        path = f"/v1/subscribers/{quote(name, safe='')}"
        try:
            await self._http.request("DELETE", path, timeout_seconds=timeout_seconds)
        except ErrorResponse as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _register(self, path: str, body: str, subscriber: str | None) -> Configuration:
        deadline = time.monotonic() + REGISTRATION_SECONDS
        response = await self._http.request(
            "PUT",
            f"{path}?wait_seconds={ACTIVATION_SECONDS}",
            body,
            timeout_seconds=REGISTRATION_SECONDS,
        )
        if response.status == HTTPStatus.OK:
            return parse_configuration(response, f"PUT {path}")
        # The registration is stored, but not active yet.
        while True:
            try:
                configuration, _ = await self.configuration(subscriber)
            except ErrorResponse as error:
                if time.monotonic() > deadline:
                    raise NotActivated(str(error), error.status, error.detail) from error
            else:
                if configuration is not None:
                    return configuration
            await asyncio.sleep(ACTIVATION_POLL_SECONDS)

    async def network(self) -> Network:
        """Return the network that the service plans for."""
        response = await self._http.request("GET", "/v1/network")
        try:
            return from_plain(Network, json.loads(response.body)["network"], tolerant=True)
        except (WireError, ValueError, LookupError, TypeError) as error:
            raise ErrorResponse(
                f"GET /v1/network: the response is not a network: {error}", response.status
            ) from error

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        response = await self._http.request("GET", "/v1/topics")
        try:
            return sorted(str(topic["name"]) for topic in json.loads(response.body))
        except (ValueError, LookupError, TypeError) as error:
            raise ErrorResponse(
                f"GET /v1/topics: the response is not a list of topics: {error}", response.status
            ) from error

    # -- reports -----------------------------------------------------------------------------------

    async def post_statistics(self, statistics: Sequence[Statistics]) -> None:
        """Report statistics, in as many requests as necessary.

        All requests are sent even if the service rejects one; the last error is raised.
        """
        rejection: ErrorResponse | None = None
        for body in _statistics_bodies(statistics):
            try:
                await self._http.request("POST", "/v1/statistics", body)
            except ErrorResponse as error:
                rejection = error
        if rejection is not None:
            raise rejection

    async def post_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Report that a part is alive."""
        await self._http.request("POST", "/v1/heartbeats", to_json(heartbeat))

    async def now_seconds(self) -> float:
        """Return the time of the service's clock in seconds since the epoch."""
        response = await self._http.request("GET", "/v1/time")
        try:
            return float(json.loads(response.body)["now_seconds"])
        except (ValueError, LookupError, TypeError) as error:
            raise ErrorResponse(
                f"GET /v1/time: the response is not a time: {error}", response.status
            ) from error

    async def clock_offset(self) -> ClockOffset:
        """Estimate the offset of the service's clock from several requests.

        The estimate with the shortest round trip has the least uncertainty and is returned.
        """
        estimates = [await self._estimate_offset() for _ in range(CLOCK_REQUESTS)]
        return min(estimates, key=lambda estimate: estimate.uncertainty_seconds)

    async def _estimate_offset(self) -> ClockOffset:
        before = time.time()
        remote = await self.now_seconds()
        after = time.time()
        return ClockOffset(
            seconds=remote - (before + after) / 2, uncertainty_seconds=(after - before) / 2
        )


def configuration_path(subscriber: str | None = None) -> str:
    """Return the path of the active configuration, of all or of one subscriber."""
    if subscriber is None:
        return "/v1/configuration"
    return f"/v1/subscribers/{quote(subscriber, safe='')}/configuration"


def parse_configuration(response: Response, request: str) -> Configuration:
    """Return the configuration in a response; an error message contains ``request``."""
    try:
        return from_json(Configuration, response.body, tolerant=True)
    except WireError as error:
        raise ErrorResponse(
            f"{request}: the response is not a configuration: {error}", response.status
        ) from error


def _statistics_bodies(statistics: Sequence[Statistics]) -> Iterator[bytes]:
    """Encode statistics as JSON arrays that stay below the limits of one request."""
    batch, batch_bytes = list[bytes](), 0
    for each in statistics:
        text = to_json(each).encode()
        if batch and (
            len(batch) == MAX_REPORTS_PER_REQUEST
            or batch_bytes + len(text) > MAX_STATISTICS_BYTES_PER_REQUEST
        ):
            yield b"[" + b",".join(batch) + b"]"
            batch, batch_bytes = [], 0
        batch.append(text)
        batch_bytes += len(text)
    if batch:
        yield b"[" + b",".join(batch) + b"]"

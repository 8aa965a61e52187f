"""The loop that fetches each new configuration from the configuration service.

The gateway and every client follow the service in the same way: fetch the active configuration,
listen to server-sent events, and fetch again when an event announces another version. A service
without an event stream is polled. While the service is unreachable the last configuration stays
in use, and requests are repeated with exponential back-off.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal

from firedex.transport.back_off import BackOff
from firedex.transport.http import ErrorResponse, HttpError, ServerEvent, Unreachable
from firedex.transport.service_client import ServiceClient
from firedex.wire import Configuration, Heartbeat

__all__ = ["REPORT_SECONDS", "ServiceFollower"]

REPORT_SECONDS = 5.0
POLL_SECONDS = 1.0
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.1, 2.0


class _RegistrationLost(HttpError):
    """The service does not know the subscriber."""


class ServiceFollower:
    """Follow the service until ``run`` is cancelled.

    ``on_configuration`` is called with each new configuration. A client gives its ``subscriber``
    id, to receive only its own flows, and ``register``, which registers it and returns the
    configuration that includes it; ``register`` is called first, unless ``registered`` is true,
    and again when the service no longer knows the subscriber. ``report`` is called every
    ``report_seconds``. No exception of these functions ends the follower.
    """

    def __init__(
        self,
        service: ServiceClient,
        *,
        name: str,
        on_configuration: Callable[[Configuration], None],
        subscriber: str | None = None,
        register: Callable[[], Awaitable[Configuration]] | None = None,
        registered: Configuration | None = None,
        report: Callable[[], Awaitable[None]] | None = None,
        report_seconds: float = REPORT_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        logger: logging.Logger | None = None,
    ) -> None:
        self._service, self._name, self._subscriber = service, name, subscriber
        self._on_configuration, self._register, self._report = on_configuration, register, report
        self._report_seconds, self._poll_seconds = report_seconds, poll_seconds
        self._log = logger or logging.getLogger("firedex")
        self._started_at = datetime.now(UTC)
        self._must_register = register is not None and registered is None
        self._interruption = asyncio.Event()
        self._back_off = BackOff(FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS)
        self._outage: object = None
        self._etag = None if registered is None else _etag(registered)
        self._fetched_version = self.version = 0 if registered is None else registered.version
        """Version of the last configuration that ``on_configuration`` accepted, or 0."""

    async def run(self) -> None:
        """Follow the service and report, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            if self._report is not None:
                tasks.create_task(self._report_repeatedly(self._report))

    def register_again(self) -> None:
        """Call ``register`` as soon as possible, because the registration has changed."""
        self._must_register = self._register is not None
        self._interruption.set()

    def heartbeat(self, part: str, kind: Literal["broker", "gateway", "client"]) -> Heartbeat:
        """Return a heartbeat of a part that this follower reports for."""
        return Heartbeat(
            part=part,
            kind=kind,
            started_at=self._started_at,
            sent_at=datetime.now(UTC),
            configuration_version=self.version,
            every_seconds=self._report_seconds,
        )

    # -- configurations ----------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._interruption.clear()
            try:
                await self._register_if_necessary()
                await self._run_interruptibly(self._listen())
            except Exception as error:
                self._log_once(error)
                seconds = self._back_off.next_seconds()
                if not isinstance(error, Unreachable | _RegistrationLost):
                    # A quick retry rarely solves an error response or a failed callback.
                    seconds = MAX_WAIT_SECONDS
                    self._forget_configuration()
                await self._run_interruptibly(asyncio.sleep(seconds))

    async def _run_interruptibly(self, action: Coroutine[None, None, None]) -> None:
        """Run an action until it ends or ``register_again`` is called."""
        running = asyncio.ensure_future(action)
        interrupted = asyncio.ensure_future(self._interruption.wait())
        try:
            await asyncio.wait((running, interrupted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (running, interrupted):
                task.cancel()
            await asyncio.gather(running, interrupted, return_exceptions=True)
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error

    async def _register_if_necessary(self) -> None:
        if not self._must_register or self._register is None:
            return
        self._must_register = False
        try:
            configuration = await self._register()
            self._accept(configuration, _etag(configuration))
        except BaseException:
            self._must_register = True
            raise

    async def _listen(self) -> None:
        try:
            async with self._service.events(self._subscriber) as events:
                # Also right after a registration: the request is conditional, and the response
                # shows whether the service still knows this subscriber.
                await self._fetch()
                self._log_recovery()
                while True:
                    event = await anext(events, None)
                    if event is None:
                        raise Unreachable("the service closed the event stream")
                    if (
                        event.kind == "configuration"
                        and _announced_version(event) != self._fetched_version
                    ):
                        await self._fetch()
        except ErrorResponse as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            await self._fetch()
            self._log_recovery()
            await asyncio.sleep(self._poll_seconds)

    async def _fetch(self) -> None:
        try:
            configuration, etag = await self._service.configuration(
                self._subscriber, etag=self._etag
            )
        except ErrorResponse as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._forget_configuration()
            if self._register is None:
                return  # there is no active configuration yet
            self._must_register = True
            raise _RegistrationLost("the service no longer knows this subscriber") from error
        if configuration is not None:
            self._accept(configuration, etag)

    def _accept(self, configuration: Configuration, etag: str | None) -> None:
        self._on_configuration(configuration)
        self._fetched_version = self.version = configuration.version
        self._etag = etag

    def _forget_configuration(self) -> None:
        """Make sure that the next fetch returns a configuration."""
        self._etag, self._fetched_version = None, 0

    # -- logging -----------------------------------------------------------------------------------

    def _log_once(self, error: Exception) -> None:
        """Log one warning for an outage, and another if the kind of error changes."""
        kind = (type(error), getattr(error, "status", None))
        if kind == self._outage:
            self._log.debug("%s: %s", self._name, error)
            return
        self._outage = kind
        message = "%s: keeping configuration %d while the service cannot be followed: %s"
        unexpected = not isinstance(error, HttpError)
        self._log.warning(message, self._name, self.version, error, exc_info=unexpected)

    def _log_recovery(self) -> None:
        self._back_off.reset()
        if self._outage is not None:
            self._outage = None
            self._log.info("%s: following the service again", self._name)

    # -- reports -----------------------------------------------------------------------------------

    async def _report_repeatedly(self, report: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._report_seconds)
            try:
                await report()
            except Unreachable as error:
                self._log.debug("%s: a report was not sent: %s", self._name, error)
            except HttpError as error:
                self._log.warning("%s: the service rejected a report: %s", self._name, error)
            except Exception:
                self._log.exception("%s: a report failed", self._name)


def _etag(configuration: Configuration) -> str:
    """Return the ETag that the service gives to a configuration: its version."""
    return f'"{configuration.version}"'


def _announced_version(event: ServerEvent) -> int | None:
    try:
        version = json.loads(event.data)["version"]
    except (ValueError, LookupError, TypeError):
        return None
    return version if isinstance(version, int) else None

"""Keeping a subscriber's plan up to date, and telling the service what was seen.

Two threads: one listens to the service's events (or asks now and then, where it has none), one
reports. While the service is away, the last plan stands.
"""

import http.client
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from firedex.service_access import (
    EventSubscription,
    ServiceAccessError,
    ServiceAway,
    ServiceSaidNo,
)
from firedex.wire import Configuration, Heartbeat, Statistics
from firedex_clients.errors import ServiceAbsent, ServiceRefused
from firedex_clients.flow_connection import BackOff
from firedex_clients.service_client import ClockOffset, ServiceClient

__all__ = ["PlanFollower"]

log = logging.getLogger("firedex.clients")
POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0
CLOCK_SECONDS = 60.0


class PlanFollower:
    """Follows the service for one subscriber."""

    def __init__(
        self,
        service: ServiceClient,
        subscriber: str,
        *,
        register: Callable[[], Configuration],
        on_plan: Callable[[Configuration], None],
        statistics: Callable[[ClockOffset | None], tuple[Statistics, ...]],
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._service, self._subscriber = service, subscriber
        self._register, self._on_plan, self._statistics = register, on_plan, statistics
        self._report_seconds = report_seconds
        self._stop = threading.Event()
        self._stream: EventSubscription | None = None
        self._registered = threading.Event()
        self._etag: str | None = None
        self._version = 0
        self._started_at = datetime.now(UTC)
        self.clock_offset: ClockOffset | None = None
        self._threads = [
            threading.Thread(target=self._follow, name="firedex-follow", daemon=True),
            threading.Thread(target=self._report, name="firedex-report", daemon=True),
        ]

    @property
    def started(self) -> bool:
        """Whether there is anything to stop."""
        return self._threads[0].ident is not None

    def start(self, *, registered: bool) -> None:
        """Begin; unless it is registered already, that is the first thing to do."""
        if registered:
            self._registered.set()
        for thread in self._threads:
            thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End both threads; reports what is left, if the service is there."""
        self._stop.set()
        if self._stream is not None:
            self._stream.close()
        for thread in self._threads if wait else ():
            thread.join(timeout=REPORT_SECONDS)

    def register_again(self) -> None:
        """The subscriptions have changed."""
        self._registered.clear()
        if self._stream is not None:
            self._stream.close()

    # -- plans -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        back_off = BackOff()
        while not self._stop.is_set():
            try:
                if not self._registered.is_set():
                    self._registered.set()
                    try:
                        self._take_over(self._register())
                    except BaseException:
                        self._registered.clear()
                        raise
                self._listen(back_off)
            except (ServiceAway, ServiceAbsent) as error:
                log.debug("%s: %s", self._subscriber, error)
                self._stop.wait(back_off.next_seconds())
            except (ServiceAccessError, ServiceRefused) as error:
                log.warning("%s: %s", self._subscriber, error)
                self._stop.wait(max(back_off.next_seconds(), POLL_SECONDS))
            except Exception:  # one plan that fails must not be the last that is heard of
                log.exception("%s: a plan failed", self._subscriber)
                self._etag = None
                self._stop.wait(max(back_off.next_seconds(), POLL_SECONDS))

    def _listen(self, back_off: BackOff) -> None:
        try:
            stream = self._service.access.events(self._subscriber)
        except ServiceSaidNo as error:
            if error.status != http.client.NOT_FOUND:
                raise
            # A service without events: ask.
            self._ask(None)
            back_off.succeeded()
            self._stop.wait(POLL_SECONDS)
            return
        self._stream = stream
        back_off.succeeded()
        try:
            if self._stop.is_set() or not self._registered.is_set():
                stream.close()
            else:
                self._ask(self._subscriber)
            for event in stream:
                if event.kind == "configuration":
                    self._ask(self._subscriber)
        except ServiceAway:
            if self._registered.is_set():
                raise
        finally:
            self._stream = None

    def _ask(self, subscriber: str | None) -> None:
        try:
            found, self._etag = self._service.access.configuration(subscriber, etag=self._etag)
        except ServiceSaidNo as error:
            if error.status == http.client.NOT_FOUND and subscriber is not None:
                # It has forgotten us.
                self._registered.clear()
                if self._stream is not None:
                    self._stream.close()
                return
            raise
        if found is not None and not self._stop.is_set():
            self._take_over(found)

    def _take_over(self, plan: Configuration) -> None:
        self._version = plan.version
        self._on_plan(plan)

    # -- reports -----------------------------------------------------------------------------------

    def _report(self) -> None:
        since_clock = CLOCK_SECONDS
        while True:
            last = self._stop.is_set()
            if since_clock >= CLOCK_SECONDS and not last:
                since_clock = 0.0
                with suppress(ServiceRefused):
                    self.clock_offset = self._service.clock_offset()
            try:
                found = self._statistics(self.clock_offset)
                if found:
                    self._service.access.post_statistics(found)
            except ServiceAway:
                pass  # it is told the next window
            except ServiceAccessError as error:
                log.warning("%s: a report is lost: %s", self._subscriber, error)
            except Exception:  # whatever events claim of themselves, reports go on
                log.exception("a report failed")
            if last:
                return
            with suppress(ServiceAccessError):
                self._service.access.post_heartbeat(self._heartbeat())
            self._stop.wait(self._report_seconds)
            since_clock += self._report_seconds

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            part=self._subscriber,
            kind="client",
            started_at=self._started_at,
            sent_at=datetime.now(UTC),
            configuration_version=self._version,
            every_seconds=self._report_seconds,
        )

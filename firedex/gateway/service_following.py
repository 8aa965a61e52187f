"""Following the service: drop rates in, counts out. While it is away, the last plan stands.

Runs in two threads of its own, which outlive whatever goes wrong; what it learns is handed to the
event loop.
"""

import http.client
import logging
import random
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.reports import flow_statistics
from firedex.service_access import (
    EventSubscription,
    ServiceAccess,
    ServiceAccessError,
    ServiceAway,
    ServiceSaidNo,
)
from firedex.wire import Configuration, Heartbeat, Statistics

__all__ = ["ServiceFollower"]

log = logging.getLogger("firedex.gateway")
POLL_SECONDS = 0.25
SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 2.0
REPORT_SECONDS = 5.0
BROKER_SECONDS = 2.0


class ServiceFollower:
    """Follows the service for a gateway."""

    def __init__(
        self,
        access: ServiceAccess,
        flows: FlowTable,
        in_loop: Callable[[Callable[[], object]], object],
        *,
        name: str = "gateway",
        report_seconds: float = REPORT_SECONDS,
        broker: tuple[str, int] | None = None,
    ) -> None:
        self._access, self._flows, self._in_loop = access, flows, in_loop
        self._name, self._report_seconds, self._broker = name, report_seconds, broker
        self._etag: str | None = None
        self._stream: EventSubscription | None = None
        self._stop = threading.Event()
        self._started_at = self._since = datetime.now(UTC)
        self._threads = [
            threading.Thread(target=self._follow, name="follow", daemon=True),
            threading.Thread(target=self._report, name="report", daemon=True),
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads."""
        self._stop.set()
        if self._stream is not None:
            self._stream.close()
        for thread in self._threads:
            thread.join(timeout=LONGEST_WAIT_SECONDS)

    def _follow(self) -> None:
        wait, was_there = SHORTEST_WAIT_SECONDS, True
        while not self._stop.is_set():
            try:
                self._listen()
                wait, was_there = SHORTEST_WAIT_SECONDS, True
                continue
            except ServiceAccessError as error:
                if was_there:
                    log.warning("going by plan %d: %s", self._flows.version, error)
            except Exception:
                if was_there:
                    log.exception("going by plan %d", self._flows.version)
            was_there = False
            jitter = random.uniform(0.5, 1.0)  # noqa: S311  # not secret
            self._stop.wait(wait * jitter)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def _listen(self) -> None:
        try:
            stream = self._access.events()
        except ServiceSaidNo as error:
            if error.status != http.client.NOT_FOUND:
                raise
            self._ask()
            self._stop.wait(POLL_SECONDS)
            return
        self._stream = stream
        try:
            if self._stop.is_set():
                stream.close()
            self._ask()
            for event in stream:
                if event.kind == "configuration":
                    self._ask()
        finally:
            self._stream = None
        if not self._stop.is_set():
            raise ServiceAway("the event stream ended")

    def _ask(self) -> None:
        try:
            found, self._etag = self._access.configuration(etag=self._etag)
        except ServiceSaidNo as error:
            if error.status != http.client.NOT_FOUND:
                raise
            return  # nothing is configured yet
        if found is not None:
            self._in_loop(lambda: self._take_over(found))

    def _take_over(self, configuration: Configuration) -> None:
        if configuration.version != self._flows.version:
            log.info("following configuration %d", configuration.version)
        self._flows.follow(configuration)

    def _report(self) -> None:
        while not self._stop.wait(self._report_seconds):
            statistics: list[Statistics] = []
            taken = threading.Event()

            def take(into: list[Statistics] = statistics, done: threading.Event = taken) -> None:
                now = datetime.now(UTC)
                into.extend(flow_statistics(self._flows, self._name, self._since, now))
                self._since = now
                done.set()

            self._in_loop(take)
            if not taken.wait(self._report_seconds):
                continue
            try:
                self._access.post_heartbeat(self._heartbeat(self._name, "gateway"))
                if self._broker is not None and _answers(self._broker):
                    self._access.post_heartbeat(self._heartbeat("broker", "broker"))
                if statistics:
                    self._access.post_statistics(statistics)
            except ServiceAway as error:
                log.debug("a report is lost: %s", error)
            except ServiceAccessError as error:
                log.warning("a report is lost: %s", error)
            except Exception:
                log.exception("a report is lost")

    def _heartbeat(self, part: str, kind: Literal["gateway", "broker"]) -> Heartbeat:
        """Of the gateway, and on behalf of the broker, which knows no service."""
        return Heartbeat(
            part=part,
            kind=kind,
            started_at=self._started_at,
            sent_at=datetime.now(UTC),
            configuration_version=self._flows.version,
            every_seconds=self._report_seconds,
        )


def _answers(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=BROKER_SECONDS):
            return True
    except OSError:
        return False

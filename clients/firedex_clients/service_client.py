"""Talking to the configuration service; whatever goes wrong is a ``ClientError``."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from firedex.service_access import (
    ServiceAccess,
    ServiceAccessError,
    ServiceAway,
    ServiceSaidNo,
    as_configuration,
)
from firedex.wire import (
    Configuration,
    PublisherRegistration,
    SubscriberRegistration,
    to_json,
)
from firedex_clients.errors import NotInForce, ServiceAbsent, ServiceRefused

__all__ = ["ClockOffset", "ServiceClient"]

WAIT_SECONDS = 10
"""How long the service may take to bring a registration into force before it answers."""
ANSWER_SECONDS = 30.0
FAREWELL_SECONDS = 2.0
POLL_SECONDS = 0.25
CLOCK_QUESTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """The service's clock minus ours, and by how much that may be wrong."""

    seconds: float
    uncertainty_seconds: float


class ServiceClient:
    """The service's REST interface at ``url``."""

    def __init__(self, url: str, token: str | None = None, *, ca_file: Path | None = None) -> None:
        try:
            self.access = ServiceAccess(url, token, ca_file=ca_file)
        except ValueError as error:
            raise ServiceRefused(str(error)) from error

    def register_publisher(self, registration: PublisherRegistration) -> Configuration:
        """Declare a publisher; answered when the network follows."""
        name = registration.publisher.id
        return self._put("publishers", name, to_json(registration), lambda: self.configuration())

    def register_subscriber(self, registration: SubscriberRegistration) -> Configuration:
        """Declare a subscriber and all it wants; answered when the network follows."""
        name = registration.subscriber.id

        def now_in_force() -> Configuration:
            with _our_errors():
                found, _ = self.access.configuration(name)
            if found is None:
                raise ServiceRefused(f"subscriber {name!r} has no configuration")
            return found

        return self._put("subscribers", name, to_json(registration), now_in_force)

    def remove_subscriber(self, name: str) -> None:
        """Take a subscriber's registration back; none is as good."""
        path = f"/v1/subscribers/{quote(name, safe='')}"
        with _our_errors():
            try:
                self.access.ask("DELETE", path, seconds=FAREWELL_SECONDS)
            except ServiceSaidNo as error:
                if error.status != http.client.NOT_FOUND:
                    raise

    def configuration(self) -> Configuration:
        """What is in force now."""
        with _our_errors():
            found, _ = self.access.configuration()
        if found is None:
            raise ServiceRefused("no configuration")
        return found

    def topics(self) -> list[dict[str, Any]]:
        """Topics that there are: name, size of events, declared and measured rate."""
        with _our_errors():
            found = json.loads(self.access.ask("GET", "/v1/topics").body)
        if isinstance(found, dict):
            found = found.get("topics", [])
        return [each for each in found if isinstance(each, dict)]

    def clock_offset(self) -> ClockOffset:
        """Estimate it: of several questions, the one that was answered soonest."""
        best: ClockOffset | None = None
        for _ in range(CLOCK_QUESTIONS):
            before = time.time()
            with _our_errors():
                theirs = self.access.now_seconds()
            after = time.time()
            found = ClockOffset(
                seconds=theirs - (before + after) / 2, uncertainty_seconds=(after - before) / 2
            )
            if best is None or found.uncertainty_seconds < best.uncertainty_seconds:
                best = found
        if best is None:
            raise ServiceRefused("no questions were asked")
        return best

    def _put(self, kind: str, name: str, body: str, in_force: Any) -> Configuration:
        path = f"/v1/{kind}/{quote(name, safe='')}"
        with _our_errors():
            answer = self.access.ask(
                "PUT", f"{path}?wait_seconds={WAIT_SECONDS}", body, seconds=ANSWER_SECONDS
            )
            if answer.status == http.client.OK:
                return as_configuration(answer, f"PUT {path}")
        # Accepted, and kept, but not in force in time: wait for it a little longer.
        until = time.monotonic() + ANSWER_SECONDS - WAIT_SECONDS
        while True:
            try:
                found: Configuration = in_force()
            except ServiceRefused as error:
                if time.monotonic() > until:
                    raise NotInForce(str(error)) from error
            else:
                return found
            time.sleep(POLL_SECONDS)


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except ServiceAway as error:
        raise ServiceAbsent(str(error)) from error
    except (ServiceAccessError, ValueError) as error:
        raise ServiceRefused(str(error)) from error

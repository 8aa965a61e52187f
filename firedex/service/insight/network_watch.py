"""The network as the controller reports it, requested on demand, at most once a second.

Only one thread at a time sends requests to the controller; other callers get the last result. So an
unreachable controller does not block the threads of the service.
"""

import threading
import time
from dataclasses import dataclass, replace

from firedex.dashboard.overview import ControllerView
from firedex.service.errors import PushFailed
from firedex.service.planner.controller_client import ControllerClient
from firedex.transport.http import HttpTarget
from firedex.wire import DesiredNetwork

__all__ = ["NetworkSnapshot", "NetworkWatch"]

FRESH_SECONDS = 1.0
TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSnapshot:
    """The observed network, and the desired network of the controller."""

    observed: ControllerView
    desired: DesiredNetwork | None = None


class NetworkWatch:
    """Observes the network through the controller, if there is one."""

    def __init__(self, link: HttpTarget | None) -> None:
        self._controller = (
            ControllerClient(replace(link, timeout_seconds=TIMEOUT_SECONDS)) if link else None
        )
        self._requesting = threading.Lock()
        self._requested_at = float("-inf")
        self._last = NetworkSnapshot(observed=ControllerView(configured=link is not None))

    def now(self) -> NetworkSnapshot:
        """Return the last snapshot; it is at most a second old if the controller answers."""
        if self._controller is None or time.monotonic() - self._requested_at < FRESH_SECONDS:
            return self._last
        if not self._requesting.acquire(blocking=False):
            return self._last
        try:
            self._last = self._request(self._controller)
            self._requested_at = time.monotonic()
        finally:
            self._requesting.release()
        return self._last

    def _request(self, controller: ControllerClient) -> NetworkSnapshot:
        try:
            topology, statistics = controller.topology(), controller.statistics()
            desired = controller.network()
        except PushFailed as error:
            return replace(self._last, observed=ControllerView(configured=True, error=str(error)))
        observed = ControllerView(configured=True, topology=topology, statistics=statistics)
        return NetworkSnapshot(observed=observed, desired=desired)

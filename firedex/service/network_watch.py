"""What the controller says of switches, asked when somebody wants to see it, at most once a second.

Only one request at a time goes to the controller, and none waits for long: whoever comes meanwhile
sees what was said last. So a controller that is away never holds up the service's threads.
"""

import threading
import time
from dataclasses import dataclass, replace

from firedex.dashboard.overview import Observed
from firedex.service.controller_client import ControllerClient, ControllerLink
from firedex.service.errors import PushFailed
from firedex.wire import DesiredNetwork

__all__ = ["NetworkWatch", "Seen"]

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was observed, and what is desired."""

    observed: Observed
    desired: DesiredNetwork | None = None


class NetworkWatch:
    """Watches the network through its controller, if there is one."""

    def __init__(self, link: ControllerLink | None) -> None:
        self._controller = (
            ControllerClient(replace(link, patience_seconds=PATIENCE_SECONDS)) if link else None
        )
        self._asking = threading.Lock()
        self._asked_at = float("-inf")
        self._seen = Seen(observed=Observed(asked=link is not None))

    def now(self) -> Seen:
        """What was seen last, not older than a second if the controller answers."""
        if self._controller is None or time.monotonic() - self._asked_at < FRESH_SECONDS:
            return self._seen
        if not self._asking.acquire(blocking=False):
            return self._seen
        try:
            self._seen = self._ask(self._controller)
            self._asked_at = time.monotonic()
        finally:
            self._asking.release()
        return self._seen

    def _ask(self, controller: ControllerClient) -> Seen:
        try:
            topology, statistics = controller.topology(), controller.statistics()
            desired = controller.network()
        except PushFailed as error:
            return replace(self._seen, observed=Observed(asked=True, error=str(error)))
        observed = Observed(asked=True, topology=topology, statistics=statistics)
        return Seen(observed=observed, desired=desired)

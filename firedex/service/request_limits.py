"""How often anybody may ask: a bucket of requests for each, refilled steadily."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from firedex.service.errors import TooMuch

__all__ = ["RequestLimits", "RequestRate"]

MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRate:
    """So many a second on average, so many at once."""

    per_second: float = 50.0
    burst: float = 200.0


class RequestLimits:
    """Counts for each name; None is no limit."""

    def __init__(
        self, rate: RequestRate | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._clock = rate, clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def count(self, name: str) -> None:
        """One more request of ``name``; refused if that is too many."""
        self._ask(name, cost=1.0)

    def check(self, name: str) -> None:
        """Refuse as ``count`` would, without counting."""
        self._ask(name, cost=0.0)

    def _ask(self, name: str, cost: float) -> None:
        if self._rate is None:
            return
        now = self._clock()
        with self._lock:
            left, at = self._left.pop(name, (self._rate.burst, now))
            left = min(left + (now - at) * self._rate.per_second, self._rate.burst)
            wait = (1.0 - left) / self._rate.per_second if left < 1.0 else 0.0
            self._left[name] = (left if wait else left - cost, now)
            if len(self._left) > MOST_REMEMBERED:
                del self._left[next(iter(self._left))]
        if wait:
            raise TooMuch(wait)

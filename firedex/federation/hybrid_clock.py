"""A hybrid logical clock: wall time that never runs backwards and follows the other sites. Pure."""

from collections.abc import Callable

__all__ = ["MAX_DRIFT_SECONDS", "HybridClock"]

MAX_DRIFT_SECONDS = 3600.0
"""A stamp that is further ahead than this does not advance the clock."""
_COUNTER_BITS = 16


class HybridClock:
    """Stamps events: milliseconds since 1970 in the upper bits, a counter in the lower 16."""

    def __init__(self, wall_seconds: Callable[[], float], last: int = 0) -> None:
        self._wall_seconds = wall_seconds
        self._last = last

    def now(self) -> int:
        """Return a stamp greater than every stamp returned or observed before."""
        self._last = max(self._wall(), self._last + 1)
        return self._last

    def observe(self, stamp: int) -> None:
        """Make later stamps greater than a stamp of another site, if that is plausible."""
        if stamp <= self._wall() + (int(MAX_DRIFT_SECONDS * 1000) << _COUNTER_BITS):
            self._last = max(self._last, stamp)

    def limit(self, stamp: int) -> int:
        """Return a stamp of another site, at most as far ahead as the clock follows it."""
        return min(stamp, self._wall() + (int(MAX_DRIFT_SECONDS * 1000) << _COUNTER_BITS))

    def _wall(self) -> int:
        return int(self._wall_seconds() * 1000) << _COUNTER_BITS

"""A log whose number of lines is bounded, for messages that an attacker can cause."""

import logging
import time
from collections.abc import Callable

__all__ = ["RateLimitedLog"]


class RateLimitedLog:
    """Write at most ``lines`` lines in each period, and then the number of suppressed ones.

    Use one for each kind of message, so that frequent messages do not suppress rare ones.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        lines: int = 10,
        seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger, self._lines, self._seconds, self._clock = logger, lines, seconds, clock
        self._period_start = clock()
        self._written = self._suppressed = 0

    def warning(self, message: str, *arguments: object) -> None:
        """Log a warning unless the lines of this period are used up."""
        now = self._clock()
        if now - self._period_start >= self._seconds:
            if self._suppressed:
                self._logger.warning("%d similar messages were suppressed", self._suppressed)
            self._period_start, self._written, self._suppressed = now, 0, 0
        if self._written >= self._lines:
            self._suppressed += 1
            return
        self._written += 1
        self._logger.warning(message, *arguments)

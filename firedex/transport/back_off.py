"""Exponential back-off with jitter."""

import random

__all__ = ["BackOff"]


class BackOff:
    """The wait before the next attempt: it doubles with each failure, up to a maximum.

    Each wait is drawn at random from the upper half of its range, so that many clients that lost
    the same server do not reconnect at the same time.
    """

    def __init__(
        self,
        first_seconds: float,
        max_seconds: float,
        generator: random.Random | None = None,
    ) -> None:
        self._first_seconds, self._max_seconds = first_seconds, max_seconds
        self._generator = generator or random.Random()  # noqa: S311  # jitter, not secrets
        self._range_seconds = first_seconds

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._range_seconds = self._first_seconds

    def next_seconds(self) -> float:
        """Return the wait after one more failure."""
        upper = self._range_seconds
        self._range_seconds = min(2 * upper, self._max_seconds)
        return self._generator.uniform(upper / 2, upper)

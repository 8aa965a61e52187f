"""When to plan: bursts make one plan, failures wait longer each time. Pure, given the time."""

import random
from dataclasses import dataclass

__all__ = ["Pace", "PaceSettings"]

LONGEST_QUIET = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSettings:
    """``quiet_seconds``: so long without a change ends a burst, and up to five times as long the
    more there are; ``longest_wait_seconds``: a plan is made though the burst goes on. Failures are
    tried again after ``first_retry_seconds``, twice that, and so on up to
    ``longest_retry_seconds``, give or take a fifth. Changes of another service on the same state
    are looked for every ``glance_seconds``, the surroundings every ``poll_seconds``.
    """

    quiet_seconds: float = 0.03
    longest_wait_seconds: float = 2.0
    first_retry_seconds: float = 0.5
    longest_retry_seconds: float = 30.0
    poll_seconds: float = 5.0
    glance_seconds: float = 1.0


class Pace:
    """What is waiting, since when, and when it is due."""

    def __init__(self, settings: PaceSettings, coins: random.Random | None = None) -> None:
        self._settings = settings
        self._coins = coins or random.Random()  # noqa: S311  # jitter, no secret
        self._first_change: float | None = None
        self._last_change = 0.0
        self._changes = 0
        self._retry_at: float | None = None
        self._wait_out = False
        self._check = False
        self.attempts = 0

    def changed(self, now: float) -> None:
        """Something is there to be planned; it may be what puts a failed plan right."""
        if not self._wait_out:
            self._retry_at = None
        self._last_change = now
        self._changes += 1
        if self._first_change is None:
            self._first_change = now

    def check_rates(self) -> None:
        """New statistics are there."""
        self._check = True

    def due_at(self) -> float | None:
        """When there is something to do; None while there is nothing."""
        if self._retry_at is not None:
            return self._retry_at
        if self._first_change is None:
            return self._last_change if self._check else None
        longest = self._first_change + self._settings.longest_wait_seconds
        quiet = self._settings.quiet_seconds * min(1.0 + (self._changes - 1) / 5, LONGEST_QUIET)
        return min(self._last_change + quiet, longest)

    def began(self) -> None:
        """A plan is being made: it takes in whatever has come so far."""
        self._first_change = None
        self._changes = 0
        self._check = False

    def waited(self) -> None:
        """Somebody else has seen to the wait after a failure."""
        self._retry_at = None

    def succeeded(self) -> None:
        """The network follows."""
        self._retry_at = None
        self.attempts = 0

    def failed(self, now: float, *, wait_out: bool) -> float:
        """It is tried again in so many seconds.

        ``wait_out``: whatever comes meanwhile waits too, for it is the network or the state that
        is in trouble, and no change will mend that.
        """
        wait: float = min(
            self._settings.first_retry_seconds * 2**self.attempts,
            self._settings.longest_retry_seconds,
        )
        wait *= self._coins.uniform(0.8, 1.2)
        self.attempts += 1
        self._retry_at = now + wait
        self._wait_out = wait_out
        return wait

"""When to plan: one plan for a burst of changes, exponential back-off after failures. Pure."""

import random
from dataclasses import dataclass

__all__ = ["PlanSchedule", "ScheduleSettings"]

LONGEST_QUIET = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """Times of the planner.

    A burst of changes ends after ``quiet_seconds`` without a change (up to five times as long for
    many changes), and after ``longest_wait_seconds`` in any case. Failures are retried after
    ``first_retry_seconds``, doubled each time up to ``longest_retry_seconds``, with a jitter of
    20 %. Changes made by another service process are checked every ``change_check_seconds``, the
    topology every ``poll_seconds``.
    """

    quiet_seconds: float = 0.03
    longest_wait_seconds: float = 2.0
    first_retry_seconds: float = 0.5
    longest_retry_seconds: float = 30.0
    poll_seconds: float = 5.0
    change_check_seconds: float = 1.0


class PlanSchedule:
    """Tracks pending changes and retries, and when the next plan is due."""

    def __init__(self, settings: ScheduleSettings, generator: random.Random | None = None) -> None:
        self._settings = settings
        self._generator = generator or random.Random()  # noqa: S311  # jitter, no secret
        self._first_change: float | None = None
        self._last_change = 0.0
        self._changes = 0
        self._retry_at: float | None = None
        self._wait_out = False
        self._check = False
        self.attempts = 0

    def record_change(self, now: float) -> None:
        """Record a change. It cancels a pending retry, because it may fix the failed plan."""
        if not self._wait_out:
            self._retry_at = None
        self._last_change = now
        self._changes += 1
        if self._first_change is None:
            self._first_change = now

    def check_rates(self) -> None:
        """Record that new statistics have arrived."""
        self._check = True

    def due_at(self) -> float | None:
        """Return the time of the next planning step; None if there is nothing to do."""
        if self._retry_at is not None:
            return self._retry_at
        if self._first_change is None:
            return self._last_change if self._check else None
        longest = self._first_change + self._settings.longest_wait_seconds
        quiet = self._settings.quiet_seconds * min(1.0 + (self._changes - 1) / 5, LONGEST_QUIET)
        return min(self._last_change + quiet, longest)

    def record_start(self) -> None:
        """Record that planning has started; it includes all changes so far."""
        self._first_change = None
        self._changes = 0
        self._check = False

    def cancel_retry(self) -> None:
        """Cancel the pending retry, because the caller has waited already."""
        self._retry_at = None

    def record_success(self) -> None:
        """Record a success and reset the back-off."""
        self._retry_at = None
        self.attempts = 0

    def record_failure(self, now: float, *, wait_out: bool) -> float:
        """Record a failure and return the seconds until the next attempt.

        ``wait_out``: new changes do not shorten the wait, because the cause is the network or the
        database and not the registrations.
        """
        wait: float = min(
            self._settings.first_retry_seconds * 2**self.attempts,
            self._settings.longest_retry_seconds,
        )
        wait *= self._generator.uniform(0.8, 1.2)
        self.attempts += 1
        self._retry_at = now + wait
        self._wait_out = wait_out
        return wait

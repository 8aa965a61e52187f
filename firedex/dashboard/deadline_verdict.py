"""Whether a deadline is met, as far as the one percentile that clients report can tell. Pure."""

__all__ = ["REPORTED_PERCENTILE", "meets_deadline"]

REPORTED_PERCENTILE = 0.95


def meets_deadline(
    delay_p95_seconds: float | None, deadline_seconds: float, percentile: float
) -> bool | None:
    """By the measured 95th percentile; none where that says nothing of the deadline's own.

    A higher percentile is no sooner, a lower one no later.
    """
    if delay_p95_seconds is None:
        return None
    if delay_p95_seconds > deadline_seconds:
        return False if percentile >= REPORTED_PERCENTILE else None
    return True if percentile <= REPORTED_PERCENTILE else None

"""Estimates of the offered rates and event sizes of topics, from counts of the gateway. Pure.

The estimate is an exponentially weighted mean: a window of ``w`` seconds has the weight
1 − exp(−w / MEMORY). Its standard deviation is that of a Poisson count, or the deviation between
windows if that is larger. Delivered rates are not used: they depend on the plan, and plans based on
them would oscillate.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from firedex.wire.values import Amount, value

__all__ = [
    "STALE_SECONDS",
    "OfferedRate",
    "RateSnapshot",
    "SnapshotRate",
    "Window",
    "confidence",
    "differs_enough",
    "half_width",
    "has_drifted",
    "is_reliable",
    "is_stale",
    "observe",
    "spread",
]

MEMORY_SECONDS = 60.0
RELIABLE_SECONDS = MEMORY_SECONDS * (1 - math.exp(-1))
"""Weighted seconds of observation after MEMORY_SECONDS; an estimate of this age is reliable."""
FEWEST_EVENTS = 30.0
"""A rate estimated from fewer events is not used."""
SMALLEST_DRIFT = 0.10
"""A smaller relative drift does not trigger a plan (hysteresis, first part)."""
DEVIATIONS = 4.0
"""A drift must exceed this many standard deviations, so that noise does not trigger plans."""


STALE_SECONDS = 600.0
"""A topic that was not counted for this time falls back to its declared rate."""


@value
class OfferedRate:
    """The estimated rate of a topic, its variance, and the mean size of its events.

    ``seconds`` and ``events`` are observed amounts, weighted like the rate.
    """

    rate_per_second: Amount
    variance: Amount
    event_bytes: Amount
    seconds: Amount
    events: Amount
    at_seconds: Amount


@value
class SnapshotRate:
    """The rate used by a plan, its standard deviation, and the size (None: as declared)."""

    rate_per_second: Amount
    spread: Amount = 0.0
    event_bytes: Amount | None = None


@dataclass(frozen=True, slots=True)
class RateSnapshot:
    """The measured rates that a plan was made with; other topics have their declared rates."""

    rates: Mapping[str, SnapshotRate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Events and payload bytes of one topic, counted over some seconds."""

    events: int
    payload_bytes: int
    seconds: float
    at_seconds: float


def observe(estimate: OfferedRate | None, window: Window) -> OfferedRate:
    """Return the estimate after one more window."""
    rate = window.events / window.seconds
    size = window.payload_bytes / window.events if window.events else 0.0
    if estimate is None:
        return OfferedRate(
            rate_per_second=rate,
            variance=rate / window.seconds,
            event_bytes=size,
            seconds=window.seconds,
            events=float(window.events),
            at_seconds=window.at_seconds,
        )
    keep = math.exp(-window.seconds / MEMORY_SECONDS)
    seconds = keep * estimate.seconds + window.seconds
    # At first this is the plain mean, later the exponentially weighted one.
    weight = max(window.seconds / seconds, 1.0 - keep)
    deviation = rate - estimate.rate_per_second
    mean = estimate.rate_per_second + weight * deviation
    events = keep * estimate.events + window.events
    share = window.events / events if events > 0 else 0.0
    return OfferedRate(
        rate_per_second=max(mean, 0.0),
        variance=(1 - weight) * (estimate.variance + weight * deviation**2),
        event_bytes=estimate.event_bytes + share * (size - estimate.event_bytes)
        if window.events
        else estimate.event_bytes,
        seconds=seconds,
        events=events,
        at_seconds=window.at_seconds,
    )


def spread(estimate: OfferedRate) -> float:
    """Return the standard deviation of the estimated rate."""
    poisson = estimate.rate_per_second / max(estimate.seconds, 1e-9)
    # The variance of one window, scaled to the variance of the mean.
    windows = estimate.variance * min(1.0, 10.0 / max(estimate.seconds, 10.0))
    return math.sqrt(max(poisson, windows))


def half_width(estimate: OfferedRate) -> float:
    """Return half the width of the 95 % confidence interval of the rate."""
    return 1.96 * spread(estimate)


def confidence(estimate: OfferedRate) -> float:
    """Return one minus the relative half width of the confidence interval, at least 0."""
    if estimate.events < 1:
        return 0.0
    return min(max(1.0 - half_width(estimate) / max(estimate.rate_per_second, 1e-12), 0.0), 1.0)


def is_reliable(estimate: OfferedRate, expected_rate: float) -> bool:
    """Return True if the estimate is good enough for planning.

    A rate above the expected one is used soon, a lower one only after one memory time: a publisher
    may not have started yet, or may pause.
    """
    if estimate.seconds >= RELIABLE_SECONDS:
        return True
    return estimate.events >= FEWEST_EVENTS and estimate.rate_per_second >= expected_rate


def has_drifted(estimate: OfferedRate, planned_rate: float, planned_spread: float) -> bool:
    """Return True if the rate differs from the planned one by more than the noise of both.

    ``planned_spread``: standard deviation of the planned rate; 0 for a declared one.
    """
    if not is_reliable(estimate, planned_rate):
        return False
    noise = DEVIATIONS * math.hypot(spread(estimate), planned_spread)
    off = abs(estimate.rate_per_second - planned_rate)
    return off > noise and differs_enough(estimate.rate_per_second, planned_rate)


def differs_enough(one: float, other: float) -> bool:
    """Return True if two rates differ enough to trigger a plan."""
    return abs(one - other) > SMALLEST_DRIFT * max(one, other)


def is_stale(estimate: OfferedRate, now_seconds: float) -> bool:
    """Return True if the topic was not counted for STALE_SECONDS, so its rate is unknown."""
    return estimate.at_seconds <= now_seconds - STALE_SECONDS

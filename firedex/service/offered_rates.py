"""Offered rates and sizes of topics, from counts of the gateway. Pure.

An exponentially weighted mean over time: a window of ``w`` seconds has the weight
1 − exp(−w / MEMORY). The spread is that of a Poisson count, or what is seen between windows if that
is more. Delivered rates never enter: they follow from the plan, and plans made from them oscillate.
"""

import math
from dataclasses import dataclass

from firedex.wire.values import Amount, value

__all__ = [
    "OfferedRate",
    "Window",
    "believed",
    "confidence",
    "drifted",
    "far_off",
    "half_width",
    "observe",
    "spread",
]

MEMORY_SECONDS = 60.0
SEEN_OF_ONE_MEMORY_SECONDS = MEMORY_SECONDS * (1 - math.exp(-1))
"""What remains of the seconds seen after one memory's time."""
FEWEST_EVENTS = 30.0
"""Before so many events a rate is not believed."""
SMALLEST_DRIFT = 0.10
"""What is off by less than this part is not worth a plan: the first half of the hysteresis."""
SPREADS = 4.0
"""How many standard deviations a drift must be outside of: the noise of hundreds of rounds."""


@value
class OfferedRate:
    """What is known of a topic: its rate, how far that may be off, and the mean size.

    ``seconds`` and ``events`` are what has been seen, forgotten at the same pace.
    """

    rate_per_second: Amount
    variance: Amount
    event_bytes: Amount
    seconds: Amount
    events: Amount
    at_seconds: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Events of one topic counted over some seconds, and the bytes of their payloads."""

    events: int
    payload_bytes: int
    seconds: float
    at_seconds: float


def observe(known: OfferedRate | None, window: Window) -> OfferedRate:
    """What is known after one more window."""
    rate = window.events / window.seconds
    size = window.payload_bytes / window.events if window.events else 0.0
    if known is None:
        return OfferedRate(
            rate_per_second=rate,
            variance=rate / window.seconds,
            event_bytes=size,
            seconds=window.seconds,
            events=float(window.events),
            at_seconds=window.at_seconds,
        )
    keep = math.exp(-window.seconds / MEMORY_SECONDS)
    seconds = keep * known.seconds + window.seconds
    # While little is known this is the plain mean; later the exponential one.
    weight = max(window.seconds / seconds, 1.0 - keep)
    surprise = rate - known.rate_per_second
    mean = known.rate_per_second + weight * surprise
    events = keep * known.events + window.events
    share = window.events / events if events > 0 else 0.0
    return OfferedRate(
        rate_per_second=max(mean, 0.0),
        variance=(1 - weight) * (known.variance + weight * surprise**2),
        event_bytes=known.event_bytes + share * (size - known.event_bytes)
        if window.events
        else known.event_bytes,
        seconds=seconds,
        events=events,
        at_seconds=window.at_seconds,
    )


def spread(known: OfferedRate) -> float:
    """The standard deviation of the rate that is known."""
    poisson = known.rate_per_second / max(known.seconds, 1e-9)
    # Of one window, brought down to the mean's: half of the windows' weight remains in memory.
    windows = known.variance * min(1.0, 10.0 / max(known.seconds, 10.0))
    return math.sqrt(max(poisson, windows))


def half_width(known: OfferedRate) -> float:
    """Of the rate's 95 % confidence interval."""
    return 1.96 * spread(known)


def confidence(known: OfferedRate) -> float:
    """1 for certain, 0 for anything: one minus the relative half width."""
    if known.events < 1:
        return 0.0
    return min(max(1.0 - half_width(known) / max(known.rate_per_second, 1e-12), 0.0), 1.0)


def believed(known: OfferedRate, expected_rate: float) -> bool:
    """Whether enough was seen to plan with.

    More than expected is believed soon, less only after a memory's time: a publisher that has not
    begun yet, or pauses, is still to be reckoned with.
    """
    if known.seconds >= SEEN_OF_ONE_MEMORY_SECONDS:
        return True
    return known.events >= FEWEST_EVENTS and known.rate_per_second >= expected_rate


def drifted(known: OfferedRate, basis_rate: float, basis_spread: float) -> bool:
    """Whether the rate has left what a plan was made with, beyond noise of both.

    ``basis_spread``: what the basis itself may be off by; 0 for a declared one.
    """
    if not believed(known, basis_rate):
        return False
    noise = SPREADS * math.hypot(spread(known), basis_spread)
    off = abs(known.rate_per_second - basis_rate)
    return off > noise and far_off(known.rate_per_second, basis_rate)


def far_off(one: float, other: float) -> bool:
    """Whether two rates are so different that it is worth a plan."""
    return abs(one - other) > SMALLEST_DRIFT * max(one, other)

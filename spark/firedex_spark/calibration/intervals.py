"""95 % intervals of estimates, and p-values of their difference to a declared value. Pure.

Counts have exact intervals (Poisson; Clopper and Pearson 1934), which are not empty when nothing
was observed. Estimates from blocks of time use the variance of the blocks. A maximum (a burst) is a
lower bound; its upper limit follows from the two highest blocks (Robson and Whitlock 1964).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import (
    bdtr,
    bdtrc,
    betaincinv,
    gammaincinv,
    ndtr,
    pdtr,
    pdtrc,
    stdtr,
    stdtrit,
)

__all__ = [
    "Uncertainty",
    "block_interval",
    "count_interval",
    "fraction_interval",
    "maximum_interval",
    "mean_interval",
]

LEVEL = 0.05
Z = 1.959963984540054
MIN_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """A 95 % interval, and the p-value of the difference to the declared value."""

    interval: tuple[float, float]
    p_value: float


def mean_interval(estimated: float, error: float, declared: float) -> Uncertainty:
    """Return the interval of a mean with its standard error (normal distribution)."""
    difference = abs(estimated - declared)
    p_value = 2 * float(ndtr(-difference / error)) if error > 0 else float(difference == 0)
    return Uncertainty((estimated - Z * error, estimated + Z * error), p_value)


def count_interval(count: float, expected: float) -> Uncertainty:
    """Return the exact interval of the mean of a Poisson count."""
    low = float(gammaincinv(count, LEVEL / 2)) if count > 0 else 0.0
    high = float(gammaincinv(count + 1, 1 - LEVEL / 2))
    tail = min(pdtr(count, expected), pdtrc(count - 1, expected) if count >= 1 else 1.0)
    return Uncertainty((low, high), min(2 * float(tail), 1.0))


def fraction_interval(count: int, of: int, declared: float) -> Uncertainty:
    """Return the exact interval of a proportion (Clopper and Pearson)."""
    low = float(betaincinv(count, of - count + 1, LEVEL / 2)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - LEVEL / 2)) if count < of else 1.0
    tail = min(bdtr(count, of, declared), bdtrc(count - 1, of, declared) if count else 1.0)
    return Uncertainty((low, high), min(2 * float(tail), 1.0))


def block_interval(
    estimated: float, blocks: Sequence[float], declared: float, common_error: float = 0.0
) -> Uncertainty | None:
    """Return the interval of an average of blocks of time; None if there are too few.

    ``common_error``: possible common error of all blocks.
    """
    if len(blocks) < MIN_BLOCKS:
        return None
    error, free = float(np.std(blocks, ddof=1) / np.sqrt(len(blocks))), len(blocks) - 1
    half = float(stdtrit(free, 1 - LEVEL / 2)) * error + common_error
    difference = max(abs(estimated - declared) - common_error, 0.0)
    p_value = 2 * float(stdtr(free, -difference / error)) if error > 0 else float(difference == 0)
    return Uncertainty((estimated - half, estimated + half), p_value)


def maximum_interval(
    estimated: float, blocks: Sequence[float], declared: float
) -> Uncertainty | None:
    """Return the interval of a maximum from the maxima of blocks; None if there are too few."""
    if len(blocks) < MIN_BLOCKS:
        return None
    second, highest = sorted(blocks)[-2:]
    low, highest = min(estimated, highest), max(estimated, highest)
    distance = highest - second
    high = highest + (1 / LEVEL - 1) * distance
    if low <= declared <= highest:
        return Uncertainty((low, high), 1.0)
    above = declared > highest and distance > 0
    return Uncertainty((low, high), 1 / (1 + (declared - highest) / distance) if above else 0.0)

"""How sure an estimate is: its 95 % interval, and whether chance explains what was declared. Pure.

Counts have the exact intervals of Poisson and of Clopper and Pearson, so that nothing seen is not
taken for nothing there. What comes of blocks of time has the interval of their scatter. The most
that was ever seen (a burst) is no more than a lower bound: how far above it the truth may be
follows from the distance of the two highest blocks (Robson and Whitlock).
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

__all__ = ["Uncertainty", "of_blocks", "of_count", "of_highest", "of_mean", "of_part"]

LEVEL = 0.05
Z = 1.959963984540054
FEWEST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """A 95 % interval; and how likely an estimate so far from what was declared is by chance."""

    interval: tuple[float, float]
    chance: float


def of_mean(estimated: float, error: float, declared: float) -> Uncertainty:
    """Of a mean over many, with its standard error."""
    off = abs(estimated - declared)
    chance = 2 * float(ndtr(-off / error)) if error > 0 else float(off == 0)
    return Uncertainty((estimated - Z * error, estimated + Z * error), chance)


def of_count(count: float, expected: float) -> Uncertainty:
    """Of a number of independent events: between which means it lies."""
    low = float(gammaincinv(count, LEVEL / 2)) if count > 0 else 0.0
    high = float(gammaincinv(count + 1, 1 - LEVEL / 2))
    tail = min(pdtr(count, expected), pdtrc(count - 1, expected) if count >= 1 else 1.0)
    return Uncertainty((low, high), min(2 * float(tail), 1.0))


def of_part(count: int, of: int, declared: float) -> Uncertainty:
    """Of a part of so many: exact, whether none or all of them were seen."""
    low = float(betaincinv(count, of - count + 1, LEVEL / 2)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - LEVEL / 2)) if count < of else 1.0
    tail = min(bdtr(count, of, declared), bdtrc(count - 1, of, declared) if count else 1.0)
    return Uncertainty((low, high), min(2 * float(tail), 1.0))


def of_blocks(
    estimated: float, blocks: Sequence[float], declared: float, alike: float = 0.0
) -> Uncertainty | None:
    """Of something that every block of time shows; None if there are too few of them.

    ``alike``: by how much all of them may be off together.
    """
    if len(blocks) < FEWEST_BLOCKS:
        return None
    error, free = float(np.std(blocks, ddof=1) / np.sqrt(len(blocks))), len(blocks) - 1
    half = float(stdtrit(free, 1 - LEVEL / 2)) * error + alike
    off = max(abs(estimated - declared) - alike, 0.0)
    chance = 2 * float(stdtr(free, -off / error)) if error > 0 else float(off == 0)
    return Uncertainty((estimated - half, estimated + half), chance)


def of_highest(estimated: float, blocks: Sequence[float], declared: float) -> Uncertainty | None:
    """Of a most, from the most of each block; None if there are too few of them."""
    if len(blocks) < FEWEST_BLOCKS:
        return None
    second, highest = sorted(blocks)[-2:]
    low, highest = min(estimated, highest), max(estimated, highest)
    apart = highest - second
    high = highest + (1 / LEVEL - 1) * apart
    if low <= declared <= highest:
        return Uncertainty((low, high), 1.0)
    above = declared > highest and apart > 0
    return Uncertainty((low, high), 1 / (1 + (declared - highest) / apart) if above else 0.0)

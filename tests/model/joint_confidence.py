"""Means of replications with confidence intervals that hold for a whole test file at once.

How many replications: Stein's two stages. A pilot of fixed size gives the variance; from it, and
from nothing else, follows how many there must be; the interval uses the pilot's variance and
degrees of freedom. Unlike stopping once the interval looks narrow, this does not bend the level.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]
JOINT_LEVEL = 0.999
"""All intervals of one test file hold together this surely (Bonferroni)."""


class TooManyReplications(AssertionError):
    """The half-width that was asked for is not within the stated cap of replications."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    mean: Floats
    half_width: Floats
    replications: int

    def error_of(self, predicted: Floats) -> Floats:
        """Relative difference of a prediction from the simulated mean."""
        return predicted / self.mean - 1.0

    def excess_of(self, predicted: Floats) -> Floats:
        """By how much a prediction is off beyond what the interval grants, relatively."""
        return np.maximum(np.abs(predicted - self.mean) - self.half_width, 0.0) / self.mean


def critical_value(*, comparisons: int, replications: int) -> float:
    tail = (1.0 - JOINT_LEVEL) / (2 * comparisons)
    return float(student.isf(tail, replications - 1))


def estimate(
    replicate: Callable[[range], Floats],
    *,
    comparisons: int,
    relative_half_width: Floats | float,
    pilot: int,
    most: int,
) -> Estimate:
    """Estimate the means of what ``replicate`` returns (replication numbers → rows of values).

    ``comparisons``: of the whole file. ``most``: the cap on replications; beyond it, fail.
    """
    first = replicate(range(pilot))
    deviation = first.std(axis=0, ddof=1)
    critical = critical_value(comparisons=comparisons, replications=pilot)
    # The pilot's mean stands in for the final one here: aim a little below the bar.
    target = 0.95 * relative_half_width * first.mean(axis=0)
    needed = max(pilot, math.ceil(float(((critical * deviation / target) ** 2).max())))
    if needed > most:
        raise TooManyReplications(f"{needed} replications are needed; at most {most} are allowed")
    rows = first if needed == pilot else np.concatenate([first, replicate(range(pilot, needed))])
    found = Estimate(
        mean=rows.mean(axis=0),
        half_width=critical * deviation / math.sqrt(needed),
        replications=needed,
    )
    relative = found.half_width / found.mean
    assert (relative <= relative_half_width).all(), f"half-widths {relative} are above the bar"
    return found

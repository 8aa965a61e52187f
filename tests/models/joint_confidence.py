"""Means of replications with confidence intervals that hold jointly for a whole test file.

The number of replications follows from Stein's two-stage procedure: a pilot of fixed size gives the
variance, and this variance alone determines the number of replications. The interval uses the
variance and degrees of freedom of the pilot. Unlike a rule that stops as soon as the interval is
narrow enough, this procedure keeps the confidence level.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]
JOINT_LEVEL = 0.999
"""Joint confidence level of all intervals of one test file (Bonferroni correction)."""


class TooManyReplications(AssertionError):
    """The requested half-width needs more replications than allowed."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    mean: Floats
    half_width: Floats
    replications: int

    def relative_error(self, predicted: Floats) -> Floats:
        """Return the relative difference of a prediction from the simulated mean."""
        return predicted / self.mean - 1.0

    def error_beyond_interval(self, predicted: Floats) -> Floats:
        """Return the relative error of a prediction outside the confidence interval."""
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
    max_replications: int,
) -> Estimate:
    """Estimate the means of the rows that ``replicate`` returns for replication numbers.

    ``comparisons``: number of comparisons in the whole test file. ``max_replications``: if more
    replications are needed, the test fails.
    """
    first = replicate(range(pilot))
    deviation = first.std(axis=0, ddof=1)
    critical = critical_value(comparisons=comparisons, replications=pilot)
    # The final mean is not known yet: use the mean of the pilot and a slightly smaller target.
    target = 0.95 * relative_half_width * first.mean(axis=0)
    needed = max(pilot, math.ceil(float(((critical * deviation / target) ** 2).max())))
    if needed > max_replications:
        raise TooManyReplications(
            f"{needed} replications are needed; at most {max_replications} are allowed"
        )
    rows = first if needed == pilot else np.concatenate([first, replicate(range(pilot, needed))])
    result = Estimate(
        mean=rows.mean(axis=0),
        half_width=critical * deviation / math.sqrt(needed),
        replications=needed,
    )
    relative = result.half_width / result.mean
    assert (relative <= relative_half_width).all(), f"half-widths {relative} are too large"
    return result

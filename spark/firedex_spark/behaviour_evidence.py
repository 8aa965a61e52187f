"""What people do, as evidence of worth: acknowledging, dwelling, choosing. Pure.

Each kind gives cells a score and its variance. What a score means on the scale of ratings is learnt
from the cells that have both, by a straight line: scores follow worths, and how far they scatter
around the line goes into the variance, so that a kind which says little counts for little. Where
the line is follows from ratings alone: a kind says how cells compare, and nothing of their level;
its slope's uncertainty is an error that cells and kinds share. What one person does again and again
counts for less than what as many do. Without ratings a score is spread over the middle of the
scale, and the result says so.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from firedex_spark.rating_model import MIDDLE_OF_SCALE, Evidence

__all__ = [
    "Scores",
    "acknowledgement_scores",
    "choice_scores",
    "dwell_scores",
    "linked",
    "repeated",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FEWEST_CELLS = 8
ASSUMED_ERROR = 0.7
"""Of a worth that rests on no rating at all, in points."""
RIDGE = 0.1
ANY_LEVEL = 10.0
"""In points: more than the scale has, so that nothing is said of it."""
LINK_ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """A score for some cells; scores of different ``group`` s have no common zero."""

    cell: Integers
    score: Floats
    variance: Floats
    group: Integers


def repeated(count: Floats, together: Floats, alike: float) -> Floats:
    """How many times a variance is that of as many people, if some did it again and again.

    ``together``: the sum of the squares of each one's number (Kish's design effect).
    """
    return 1 + (together / count - 1) * alike


def acknowledgement_scores(
    cell: Integers, shown: Floats, acknowledged: Floats, wider: Floats
) -> Scores:
    """From how many of the events shown were acknowledged; ``wider``: see ``repeated``."""
    part = (acknowledged + 0.5) / (shown + 1.0)
    score = ndtri(part)
    density = np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi)
    variance = wider * part * (1 - part) / (shown + 1.0) / density**2
    return Scores(cell=cell, score=score, variance=variance, group=np.zeros_like(cell))


def dwell_scores(
    cell: Integers, count: Floats, total: Floats, squares: Floats, wider: Floats
) -> Scores:
    """From the logarithms of the times spent; cells seen once borrow the others' variance."""
    mean = total / count
    spread = float((squares - count * mean**2).sum() / max((count - 1).sum(), 1.0))
    variance = wider * np.maximum(spread, 1e-6) / count
    return Scores(cell=cell, score=mean, variance=variance, group=np.zeros_like(cell))


def choice_scores(won: Integers, lost: Integers, count: Floats, phase_of_cell: Integers) -> Scores:
    """From who was preferred to whom (Thurstone): least squares on differences, phase by phase."""
    cells = np.unique(np.concatenate([won, lost]))
    place = {int(cell): row for row, cell in enumerate(cells)}
    wins = np.zeros((len(cells), len(cells)))
    rows = [place[int(c)] for c in won], [place[int(c)] for c in lost]
    np.add.at(wins, rows, count)
    games = wins + wins.T
    part = (wins + 0.5) / (games + 1.0)
    ahead = np.where(games > 0, ndtri(part), 0.0)
    # the variance of a probit is about 1.6 over the number of games
    weight = games / 1.6
    information = np.diag(weight.sum(axis=1) + RIDGE) - weight
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64)
    score = covariance @ (weight * ahead).sum(axis=1)
    group = phase_of_cell[cells]
    return Scores(
        cell=cells,
        score=score,
        variance=_apart(covariance, group),
        group=group,
    )


def _apart(covariance: Floats, group: Integers) -> Floats:
    """Variances of how far cells are from the mean of their group."""
    alike = group[:, None] == group
    mean = alike / alike.sum(axis=1)
    off = np.eye(len(group)) - mean
    return np.maximum(np.diag(off @ covariance @ off.T), 1e-9)


def linked(
    scores: Scores, worth: Floats, error: Floats, rated: NDArray[np.bool_]
) -> Evidence | None:
    """Scores on the scale of ratings; ``worth`` and ``error`` count for ``rated`` cells only.

    ``error`` is of how cells compare. None if worth does not show in the scores at all.
    """
    both = rated[scores.cell]
    levels = np.eye(int(scores.group.max(initial=0)) + 1)[scores.group]
    if both.sum() < FEWEST_CELLS:
        return _assumed(scores, levels)
    known = np.where(both, worth[scores.cell], 0.0)
    middle = _by_group(known, scores.group, both)
    x, y = scores.score - _by_group(scores.score, scores.group, both), known - middle
    line = _line(x[both], y[both], scores.variance[both], error[scores.cell[both]] ** 2)
    if line.slope <= 0:
        return None
    made = x / line.slope
    return Evidence(
        cell=scores.cell,
        worth=middle + made,
        variance=(scores.variance + line.scatter) / line.slope**2,
        shared=ANY_LEVEL * levels,
        stretched=made * line.slope_error / line.slope,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    slope: float
    slope_error: float
    scatter: float


def _line(score: Floats, worth: Floats, variance: Floats, worth_variance: Floats) -> _Line:
    """How scores follow worths; ``scatter``: more than either's own variance explains.

    Worths of few ratings are drawn to their class, by a part that is itself uncertain: so much of
    the slope is uncertain beside its own error.
    """
    slope, scatter = float((score * worth).sum() / max((worth**2).sum(), 1e-12)), 0.0
    free = len(score) / max(len(score) - 2, 1)
    for _ in range(LINK_ROUNDS):
        expected = variance + slope**2 * worth_variance
        weight = 1 / (expected + scatter)
        information = max(float((weight * worth**2).sum()), 1e-12)
        slope = float((weight * score * worth).sum()) / information
        off = free * (score - slope * worth) ** 2 - expected
        scatter = max(float((weight * off).sum() / weight.sum()), 0.0)
    drawn = worth_variance.mean() / (worth_variance.mean() + (worth**2).mean())
    return _Line(slope, float(np.hypot(np.sqrt(1 / information), drawn * slope)), scatter)


def _assumed(scores: Scores, levels: Floats) -> Evidence:
    """Without ratings to learn from: spread over the middle of the scale."""
    off = scores.score - _by_group(scores.score, scores.group, np.ones(len(levels), dtype=bool))
    spread = float(off.std()) or 1.0
    return Evidence(
        cell=scores.cell,
        worth=MIDDLE_OF_SCALE + off / spread,
        variance=scores.variance / spread**2 + ASSUMED_ERROR**2,
        shared=ASSUMED_ERROR * levels,
        stretched=ASSUMED_ERROR * off / spread,
    )


def _by_group(values: Floats, group: Integers, used: NDArray[np.bool_]) -> Floats:
    """The mean over the used cells of each one's group; of all used ones where there are none."""
    number = int(group.max(initial=0)) + 1
    count = np.bincount(group[used], minlength=number)
    total = np.bincount(group[used], values[used], number)
    overall = float(values[used].mean()) if used.any() else 0.0
    means = np.where(count > 0, total / np.maximum(count, 1), overall)
    return means[group]

"""What people do, as evidence of worth: acknowledging, dwelling, choosing. Pure.

Each kind gives cells a score and its variance. What a score means on the scale of ratings is learnt
from the cells that have both, by a straight line; how far cells scatter around the line goes into
the variance, so that a kind which says little counts for little. Without ratings a score is spread
over the middle of the scale, and the result says so.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from firedex_spark.rating_model import MIDDLE_OF_SCALE, Evidence

__all__ = ["Scores", "acknowledgement_scores", "choice_scores", "dwell_scores", "linked"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FEWEST_CELLS = 8
ASSUMED_ERROR = 0.7
"""Of a worth that rests on no rating at all, in points."""
RIDGE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """A score for some cells; scores of different ``group`` s have no common zero."""

    cell: Integers
    score: Floats
    variance: Floats
    group: Integers


def acknowledgement_scores(cell: Integers, shown: Floats, acknowledged: Floats) -> Scores:
    """From how many of the events shown were acknowledged."""
    part = (acknowledged + 0.5) / (shown + 1.0)
    score = ndtri(part)
    density = np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi)
    variance = part * (1 - part) / (shown + 1.0) / density**2
    return Scores(cell=cell, score=score, variance=variance, group=np.zeros_like(cell))


def dwell_scores(cell: Integers, count: Floats, total: Floats, squares: Floats) -> Scores:
    """From the logarithms of the times spent; cells seen once borrow the others' variance."""
    mean = total / count
    spread = float((squares - count * mean**2).sum() / max((count - 1).sum(), 1.0))
    variance = np.maximum(spread, 1e-6) / count
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
    covariance = np.linalg.inv(information)
    score = covariance @ (weight * ahead).sum(axis=1)
    return Scores(
        cell=cells,
        score=score,
        variance=np.diag(covariance).copy(),
        group=phase_of_cell[cells],
    )


def linked(scores: Scores, worth: Floats, error: Floats, rated: NDArray[np.bool_]) -> Evidence:
    """Scores on the scale of ratings; ``worth`` and ``error`` count for ``rated`` cells only."""
    both = rated[scores.cell]
    score, group = scores.score, scores.group
    if both.sum() < FEWEST_CELLS:
        off = score - _by_group(score, group, np.ones(len(score), dtype=bool))
        spread = float(off.std()) or 1.0
        variance = scores.variance / spread**2 + ASSUMED_ERROR**2
        return Evidence(cell=scores.cell, worth=MIDDLE_OF_SCALE + off / spread, variance=variance)
    known = worth[scores.cell]
    x = score - _by_group(score, group, both)
    y = known - _by_group(known, group, both)
    weight = np.where(both, 1 / (error[scores.cell] ** 2 + 0.05), 0.0)
    slope = float((weight * x * y).sum() / max((weight * x * x).sum(), 1e-12))
    slope = max(slope, 0.0)
    off = (y - slope * x)[both]
    scatter = float((off**2).sum() / max(both.sum() - 2, 1))
    made = _by_group(known, group, both) + slope * x
    return Evidence(cell=scores.cell, worth=made, variance=slope**2 * scores.variance + scatter)


def _by_group(values: Floats, group: Integers, used: NDArray[np.bool_]) -> Floats:
    """The mean over the used cells of each one's group; of all used ones where there are none."""
    number = int(group.max(initial=0)) + 1
    count = np.bincount(group[used], minlength=number)
    total = np.bincount(group[used], values[used], number)
    overall = float(values[used].mean()) if used.any() else 0.0
    means = np.where(count > 0, total / np.maximum(count, 1), overall)
    return means[group]

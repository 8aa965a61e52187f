"""The worths of one role from all its feedback: ratings, and behaviour as evidence. Pure.

Behaviour is acknowledging, dwelling and choosing. Each kind gives cells a score with a variance.
Scores are converted to the scale of ratings by a straight line through the cells that have both;
the residual variance around the line is added, so that a kind with little information has little
weight. Scores compare cells but do not determine their common level, which comes from ratings
alone; the error of the slope is common to all cells. Repeated actions of one person count less than
those of different people. Without ratings, scores are spread over the middle of the scale.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from firedex_spark.weights.rating_model import (
    MIDDLE_OF_SCALE,
    Evidence,
    FittedWorth,
    RatingCounts,
    fit_worth,
)

__all__ = [
    "STATISTICS",
    "BehaviourScores",
    "FitTooLarge",
    "LearntWorth",
    "acknowledgement_scores",
    "choice_scores",
    "class_of_topic",
    "design_effect",
    "dwell_scores",
    "fit_role",
    "scores_to_evidence",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MIN_CELLS = 8
ASSUMED_ERROR = 0.7
"""Standard error, in points, of a worth without any rating."""
RIDGE = 0.1
LEVEL_ERROR = 10.0
"""Standard error of an unknown level, in points; larger than the scale."""
LINK_ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourScores:
    """A score for some cells; scores of different groups have no common zero."""

    cell: Integers
    score: Floats
    variance: Floats
    group: Integers


def design_effect(count: Floats, together: Floats, correlation: float) -> Floats:
    """Return the factor of the variance if some people acted repeatedly (Kish 1965).

    ``together``: sum of the squared number of actions of each person; ``correlation``:
    that of the actions of one person.
    """
    return 1 + (together / count - 1) * correlation


def acknowledgement_scores(
    cell: Integers, shown: Floats, acknowledged: Floats, variance_factor: Floats
) -> BehaviourScores:
    """Return probits of the fraction acknowledged; ``variance_factor``: see ``design_effect``."""
    part = (acknowledged + 0.5) / (shown + 1.0)
    score = ndtri(part)
    density = np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi)
    variance = variance_factor * part * (1 - part) / (shown + 1.0) / density**2
    return BehaviourScores(cell=cell, score=score, variance=variance, group=np.zeros_like(cell))


def dwell_scores(
    cell: Integers, count: Floats, total: Floats, squares: Floats, variance_factor: Floats
) -> BehaviourScores:
    """Return mean logarithms of dwell times, with a pooled variance."""
    mean = total / count
    spread = float((squares - count * mean**2).sum() / max((count - 1).sum(), 1.0))
    variance = variance_factor * np.maximum(spread, 1e-6) / count
    return BehaviourScores(cell=cell, score=mean, variance=variance, group=np.zeros_like(cell))


def choice_scores(
    won: Integers, lost: Integers, count: Floats, phase_of_cell: Integers
) -> BehaviourScores:
    """Return scores from paired comparisons (Thurstone's model), least squares by phase."""
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
    return BehaviourScores(
        cell=cells,
        score=score,
        variance=_variance_within_group(covariance, group),
        group=group,
    )


def _variance_within_group(covariance: Floats, group: Integers) -> Floats:
    """Return the variance of the difference between each cell and the mean of its group."""
    correlation = group[:, None] == group
    mean = correlation / correlation.sum(axis=1)
    deviation = np.eye(len(group)) - mean
    return np.maximum(np.diag(deviation @ covariance @ deviation.T), 1e-9)


def scores_to_evidence(
    scores: BehaviourScores, worth: Floats, error: Floats, rated: NDArray[np.bool_]
) -> Evidence | None:
    """Convert scores to the scale of ratings; None if they do not increase with worth.

    ``worth`` and ``error`` are used for ``rated`` cells only; ``error`` excludes shared errors.
    """
    both = rated[scores.cell]
    levels = np.eye(int(scores.group.max(initial=0)) + 1)[scores.group]
    if both.sum() < MIN_CELLS:
        return _assumed_evidence(scores, levels)
    known = np.where(both, worth[scores.cell], 0.0)
    middle = _group_means(known, scores.group, both)
    x, y = scores.score - _group_means(scores.score, scores.group, both), known - middle
    line = _line(x[both], y[both], scores.variance[both], error[scores.cell[both]] ** 2)
    if line.slope <= 0:
        return None
    deviation = x / line.slope
    return Evidence(
        cell=scores.cell,
        worth=middle + deviation,
        variance=(scores.variance + line.scatter) / line.slope**2,
        shared=LEVEL_ERROR * levels,
        stretched=deviation * line.slope_error / line.slope,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    slope: float
    slope_error: float
    scatter: float


def _line(score: Floats, worth: Floats, variance: Floats, worth_variance: Floats) -> _Line:
    """Fit how scores follow worths; ``scatter`` is the variance that neither error explains.

    Worths with few ratings are shrunk to their class by an uncertain amount, which adds to the
    error of the slope.
    """
    slope, scatter = float((score * worth).sum() / max((worth**2).sum(), 1e-12)), 0.0
    free = len(score) / max(len(score) - 2, 1)
    for _ in range(LINK_ROUNDS):
        expected = variance + slope**2 * worth_variance
        weight = 1 / (expected + scatter)
        information = max(float((weight * worth**2).sum()), 1e-12)
        slope = float((weight * score * worth).sum()) / information
        deviation = free * (score - slope * worth) ** 2 - expected
        scatter = max(float((weight * deviation).sum() / weight.sum()), 0.0)
    shrinkage = worth_variance.mean() / (worth_variance.mean() + (worth**2).mean())
    return _Line(slope, float(np.hypot(np.sqrt(1 / information), shrinkage * slope)), scatter)


def _assumed_evidence(scores: BehaviourScores, levels: Floats) -> Evidence:
    """Return evidence without ratings to learn from: spread over the middle of the scale."""
    deviation = scores.score - _group_means(
        scores.score, scores.group, np.ones(len(levels), dtype=bool)
    )
    spread = float(deviation.std()) or 1.0
    return Evidence(
        cell=scores.cell,
        worth=MIDDLE_OF_SCALE + deviation / spread,
        variance=scores.variance / spread**2 + ASSUMED_ERROR**2,
        shared=ASSUMED_ERROR * levels,
        stretched=ASSUMED_ERROR * deviation / spread,
    )


def _group_means(values: Floats, group: Integers, used: NDArray[np.bool_]) -> Floats:
    """Return the mean over the used cells of each group, or over all used cells."""
    number = int(group.max(initial=0)) + 1
    count = np.bincount(group[used], minlength=number)
    total = np.bincount(group[used], values[used], number)
    overall = float(values[used].mean()) if used.any() else 0.0
    means = np.where(count > 0, total / np.maximum(count, 1), overall)
    return means[group]


STATISTICS = (
    "role",
    "phase",
    "topic",
    "other_topic",
    "kind",
    "site",
    "rater",
    "rating",
    "count",
    "total",
    "squares",
    "together",
)
"""The columns of the statistics of feedback. Only ratings have ``site``, ``rater`` and ``rating``
(a rater is identified by site and name). Sums are of acknowledgements and of logarithms of dwells.
``together``: the sum over raters of the squared number of actions."""
DWELLS = ("count", "total", "squares", "together")
Z = 1.959963984540054
MAX_CELLS = 4_000
MAX_PAIRS = 40_000_000
"""Limits of memory: a fit holds tables of cells by cells and of cells by raters."""


class FitTooLarge(Exception):
    """A role with more topics or raters than a fit can hold in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntWorth:
    """The worth of a topic, or of a class of topics (``topic`` None), for a role in a phase.

    ``shrinkage``: how far it was moved from its own ratings (0) towards its class (1).
    """

    role: str
    phase: str
    topic_class: str
    topic: str | None
    worth: float
    error: float
    ratings: int
    raters: int
    other_feedback: int
    shrinkage: float | None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval."""
        return self.worth - Z * self.error, self.worth + Z * self.error


def class_of_topic(topic: str) -> str:
    """Return the first level of a topic name."""
    return topic.split("/", 1)[0]


def fit_role(role: str, statistics: pd.DataFrame) -> tuple[list[LearntWorth], FittedWorth]:
    """Return the worths of one role; rows have the columns ``STATISTICS``, in any order."""
    return _RoleFeedback(role, statistics).fit()


class _RoleFeedback:
    def __init__(self, role: str, statistics: pd.DataFrame) -> None:
        order = ["phase", "topic", "other_topic", "kind", "site", "rater", "rating"]
        blank = {"other_topic": "", "site": "", "rater": ""}
        self._rows = statistics.fillna(blank).sort_values(order)
        self._role = role
        chosen = self._rows[self._rows.kind == "choice"]
        seen = {*zip(self._rows.phase, self._rows.topic, strict=True)}
        seen |= {*zip(chosen.phase, chosen.other_topic, strict=True)}
        self._cells = sorted(seen)
        self._place = {cell: number for number, cell in enumerate(self._cells)}
        self._phases = sorted({phase for phase, _ in self._cells})
        self._classes = sorted({(phase, class_of_topic(topic)) for phase, topic in self._cells})
        place = {name: number for number, name in enumerate(self._classes)}
        self._class = np.array([place[p, class_of_topic(t)] for p, t in self._cells])

    def fit(self) -> tuple[list[LearntWorth], FittedWorth]:
        counts, raters = self._ratings()
        cells = len(self._cells)
        if cells > MAX_CELLS or cells * raters > MAX_PAIRS:
            raise FitTooLarge(
                f"{cells} cells (topic and phase) with {raters} raters are too many; limits: "
                f"{MAX_CELLS} cells, and {MAX_PAIRS // max(cells, 1)} raters for {cells} cells"
            )
        rated = np.bincount(counts.cell, counts.count, len(self._cells)) > 0
        first = fit_worth(counts, self._class, raters=raters)
        evidence = self._evidence(first, rated)
        final = first
        if evidence:
            final = fit_worth(counts, self._class, raters=raters, evidence=evidence)
        return [*self._topics(final, counts), *self._class_rows(final, counts)], final

    def _rows_of_kind(self, kind: str) -> pd.DataFrame:
        return self._rows[self._rows.kind == kind]

    def _cell(self, rows: pd.DataFrame, topic: str = "topic") -> NDArray[np.int64]:
        pairs = zip(rows.phase, rows[topic], strict=True)
        return np.array([self._place[pair] for pair in pairs], dtype=np.int64)

    def _ratings(self) -> tuple[RatingCounts, int]:
        rows = self._rows_of_kind("rating")
        rater = rows.groupby(["site", "rater"]).ngroup().to_numpy(dtype=np.int64)
        counts = RatingCounts(
            cell=self._cell(rows),
            rater=rater,
            rating=rows.rating.to_numpy(dtype=np.int64),
            count=rows["count"].to_numpy(dtype=np.int64),
        )
        return counts, int(rater.max(initial=-1)) + 1

    def _evidence(self, fit: FittedWorth, rated: NDArray[np.bool_]) -> list[Evidence]:
        correlation = fit.rater_spread**2 / (fit.rater_spread**2 + fit.noise**2)
        scores = self._scores(correlation)
        found = [scores_to_evidence(one, fit.worth, fit.own_error, rated) for one in scores]
        return [evidence for evidence in found if evidence is not None]

    def _scores(self, correlation: float) -> list[BehaviourScores]:
        """Return scores of all kinds; ``correlation``: correlation of the actions of one person."""
        scores = []
        if len(rows := self._rows_of_kind("acknowledgement")):
            shown, acknowledged, together = _numbers(rows, "count", "total", "together")
            variance_factor = design_effect(shown, together, correlation)
            scores.append(
                acknowledgement_scores(self._cell(rows), shown, acknowledged, variance_factor)
            )
        if len(rows := self._rows_of_kind("dwell")):
            count, total, squares, together = _numbers(rows, *DWELLS)
            variance_factor = design_effect(count, together, correlation)
            scores.append(dwell_scores(self._cell(rows), count, total, squares, variance_factor))
        if len(rows := self._rows_of_kind("choice")):
            phase = np.array([self._phases.index(p) for p, _ in self._cells])
            won, lost = self._cell(rows), self._cell(rows, "other_topic")
            scores.append(choice_scores(won, lost, _numbers(rows, "count")[0], phase))
        return scores

    def _topics(self, fit: FittedWorth, counts: RatingCounts) -> list[LearntWorth]:
        ratings = np.bincount(counts.cell, counts.count, len(self._cells))
        pairs = np.unique(np.stack([counts.cell, counts.rater]), axis=1)[0]
        raters = np.bincount(pairs, minlength=len(self._cells))
        other = self._rows[self._rows.kind != "rating"]
        others = np.bincount(self._cell(other), other["count"], len(self._cells))
        rows = []
        for number, (phase, topic) in enumerate(self._cells):
            rows.append(
                LearntWorth(
                    role=self._role,
                    phase=phase,
                    topic_class=class_of_topic(topic),
                    topic=topic,
                    worth=float(fit.worth[number]),
                    error=float(fit.error[number]),
                    ratings=int(ratings[number]),
                    raters=int(raters[number]),
                    other_feedback=int(others[number]),
                    shrinkage=float(fit.shrinkage[number]),
                )
            )
        return rows

    def _class_rows(self, fit: FittedWorth, counts: RatingCounts) -> list[LearntWorth]:
        ratings = np.bincount(self._class[counts.cell], counts.count, len(self._classes))
        return [
            LearntWorth(
                role=self._role,
                phase=phase,
                topic_class=name,
                topic=None,
                worth=float(fit.class_worth[number]),
                error=float(fit.new_topic_error[number]),
                ratings=int(ratings[number]),
                raters=0,
                other_feedback=0,
                shrinkage=None,
            )
            for number, (phase, name) in enumerate(self._classes)
        ]


def _numbers(rows: pd.DataFrame, *names: str) -> list[Any]:
    return [rows[name].to_numpy(dtype=np.float64) for name in names]

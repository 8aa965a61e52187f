"""The worth of topics from ratings by people who rate differently. Pure.

An opinion is the worth of a cell (phase and topic) for a role, plus the bias of the rater, plus
noise. The rating is the opinion rounded to five points: below 1.5 is a 1, from 4.5 on a 5. Raters
of a second kind use only the top two points: below 4.5 is a 4. The kind of a rater is inferred from
the ratings. The worth is the mean over raters of both kinds, so biases of each kind have mean 0: a
separate mean for one kind would leave the level to the other kind alone. Worths of topics are
normal around their class in the phase, and those around the role: with few ratings a cell is near
its class, with many it follows its own ratings (partial pooling).

Counts of (cell, rater, rating) are sufficient statistics. The posterior mode is found with Newton's
method (Laplace approximation), alternating with closed-form (EM) steps for the variances and the
kinds of raters. Raters are eliminated first, so the linear system has the size of the cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["Evidence", "FittedWorth", "RatingCounts", "fit_worth"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UPPER = np.array([1.5, 2.5, 3.5, 4.5, np.inf])
LOWER = np.array([-np.inf, 1.5, 2.5, 3.5, 4.5])
LOWEST_OF_TOP = 4
MAX_ROUNDS = 40
CONVERGED = 1e-4
BIAS_GRID = np.linspace(-3.0, 3.0, 25)
MIN_VARIANCE = 1e-4
MIDDLE_OF_SCALE, ROLE_SPREAD = 3.0, 3.0
"""Prior mean and standard deviation of the worth of a role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingCounts:
    """How often (``count``) a rater gave a cell a rating of 1 to 5; rows are distinct."""

    cell: Integers
    rater: Integers
    rating: Integers
    count: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What other feedback of one kind implies for cells: a worth and its variance for each cell.

    ``shared``: standard deviations of errors that all cells have in common, one column for each.
    ``stretched``: the error of each cell if the scale of this kind is wrong; that error is common
    to all kinds, since they are scaled by the same ratings. It is used for errors only: if the
    scale were fitted too, worths of zero would fit best.
    """

    cell: Integers
    worth: Floats
    variance: Floats
    shared: Floats
    stretched: Floats

    def precision(self) -> Floats:
        """Return the inverse covariance of the evidence (Woodbury identity)."""
        alone = 1 / self.variance
        weighed = self.shared * alone[:, None]
        middle = np.eye(self.shared.shape[1]) + self.shared.T @ weighed
        precision: Floats = np.diag(alone) - weighed @ np.linalg.solve(middle, weighed.T)
        return precision


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWorth:
    """Worths of cells and classes with standard errors, on the scale of ratings.

    ``own_error`` excludes errors that all cells share. A new topic of a class has ``class_worth``
    with ``new_topic_error``. ``shrinkage``: how far a cell was moved from its own ratings (0)
    towards its class (1).
    """

    worth: Floats
    error: Floats
    own_error: Floats
    class_worth: Floats
    class_error: Floats
    new_topic_error: Floats
    shrinkage: Floats
    role_worth: float
    role_error: float
    topic_spread: float
    class_spread: float
    rater_spread: float
    noise: float
    top_share: float
    top_probability: Floats = field(repr=False)


def fit_worth(
    counts: RatingCounts,
    class_of_cell: Sequence[int] | Integers,
    *,
    raters: int,
    evidence: Sequence[Evidence] = (),
    shrink: bool = True,
) -> FittedWorth:
    """Fit one role. Without ``shrink`` each cell is fitted without its class."""
    fit = _Fit(counts, np.asarray(class_of_cell), raters, evidence, shrink)
    for _ in range(MAX_ROUNDS):
        if fit.round() < CONVERGED:
            break
    return fit.result()


class _Fit:
    """The state of one fit."""

    def __init__(
        self,
        counts: RatingCounts,
        class_of_cell: Integers,
        raters: int,
        evidence: Sequence[Evidence],
        shrink: bool,
    ) -> None:
        self._counts, self._class, self._raters = counts, class_of_cell, raters
        self._evidence, self._shrink = (
            [(evidence_of_kind, evidence_of_kind.precision()) for evidence_of_kind in evidence],
            shrink,
        )
        self._cells, self._classes = len(class_of_cell), int(class_of_cell.max(initial=-1)) + 1
        self._noise, self._rater_variance = 1.0, 1.0
        self._topic_variance = 1.0 if shrink else 100.0
        self._class_variance = 1.0 if shrink else MIN_VARIANCE
        lowest = np.full(raters, 5)
        np.minimum.at(lowest, counts.rater, counts.rating)
        self._could_be_top = lowest >= LOWEST_OF_TOP
        self._top = np.where(self._could_be_top, 0.5, 0.0)
        self._top_share, self._top_variance = 0.2, 1.0
        self._worth = np.full(self._cells, MIDDLE_OF_SCALE)
        self._bias = np.zeros(raters)
        self._effects = np.zeros(self._cells + self._classes + 1)
        self._effects[-1] = MIDDLE_OF_SCALE

    def round(self) -> float:
        """Run one iteration; return the largest change of a worth."""
        before = self._worth
        self._newton()
        self._update_spreads()
        self._update_kinds()
        return float(np.abs(self._worth - before).max(initial=0.0))

    def _newton(self) -> None:
        """Solve for cells, classes, role and raters (one Newton step)."""
        slope, weight = self._slopes()
        cell, rater = self._counts.cell, self._counts.rater
        prior = (1 - self._top) / self._rater_variance + self._top / self._top_variance
        of_rater = np.bincount(rater, weight, self._raters) + prior
        table = np.zeros((self._cells, self._raters))
        np.add.at(table, (cell, rater), weight)
        slope_rater = np.bincount(rater, slope, self._raters) - prior * self._bias
        slope_cell = np.bincount(cell, slope, self._cells)
        reduced = np.diag(table.sum(axis=1)) - (table / of_rater) @ table.T
        right = slope_cell - table @ (slope_rater / of_rater)
        for evidence_of_kind, precision_of_kind in self._evidence:
            reduced[np.ix_(evidence_of_kind.cell, evidence_of_kind.cell)] += precision_of_kind
            right[evidence_of_kind.cell] += precision_of_kind @ (
                evidence_of_kind.worth - self._worth[evidence_of_kind.cell]
            )
        design = self._design()
        precision = self._precision()
        information = design.T @ reduced @ design + np.diag(precision)
        gradient = design.T @ right - precision * (self._effects - self._prior_mean())
        self._covariance = np.linalg.inv(information)
        step = np.clip(self._covariance @ gradient, -1.0, 1.0)
        self._effects = self._effects + step
        worth_step = design @ step
        self._worth = design @ self._effects
        self._bias = self._bias + np.clip(
            (slope_rater - table.T @ worth_step) / of_rater, -1.0, 1.0
        )
        # the variance of a bias has its own part and a part from the estimated cells
        through = (table.T @ design) / of_rater[:, None]
        alone, shared = 1 / of_rater, design @ self._covariance
        with_cells = ((through @ self._covariance) * through).sum(axis=1)
        self._bias_variance = alone + with_cells
        of_cell = (shared * design).sum(axis=1)
        self._sum_variance = of_cell[:, None] + self._bias_variance - 2 * shared @ through.T

    def _design(self) -> Floats:
        """Return the matrix of: cell = own deviation + class + role."""
        design = np.zeros((self._cells, self._cells + self._classes + 1))
        rows = np.arange(self._cells)
        design[rows, rows] = 1.0
        design[rows, self._cells + self._class] = 1.0
        design[:, -1] = 1.0
        return design

    def _precision(self) -> Floats:
        return np.concatenate(
            [
                np.full(self._cells, 1 / self._topic_variance),
                np.full(self._classes, 1 / self._class_variance),
                [1 / ROLE_SPREAD**2],
            ]
        )

    def _prior_mean(self) -> Floats:
        mean = np.zeros(self._cells + self._classes + 1)
        mean[-1] = MIDDLE_OF_SCALE
        return mean

    def _slopes(self) -> tuple[Floats, Floats]:
        """Return the first and negative second derivative of the log-likelihood by worth + bias."""
        counts = self._counts
        middle = self._worth[counts.cell] + self._bias[counts.rater]
        upper = UPPER[counts.rating - 1]
        top = self._top[counts.rater]
        common = _log_probability_derivatives(LOWER[counts.rating - 1], upper, middle, self._noise)
        low_of_top = np.where(counts.rating <= LOWEST_OF_TOP, -np.inf, LOWER[counts.rating - 1])
        of_top = _log_probability_derivatives(low_of_top, upper, middle, self._noise)
        slope = counts.count * ((1 - top) * common[0] + top * of_top[0])
        weight = counts.count * ((1 - top) * common[1] + top * of_top[1])
        return slope, np.maximum(weight, 1e-9)

    def _update_spreads(self) -> None:
        variance = np.diag(self._covariance)
        square = (self._effects - self._prior_mean()) ** 2 + variance
        if self._shrink:
            cells, classes = slice(0, self._cells), slice(self._cells, -1)
            self._topic_variance = max(float(square[cells].mean()), MIN_VARIANCE)
            if self._classes > 1:
                self._class_variance = max(float(square[classes].mean()), MIN_VARIANCE)
        off = self._bias**2 + self._bias_variance
        common = 1 - self._top
        if common.sum() > 1:
            self._rater_variance = max(float((common * off).sum() / common.sum()), MIN_VARIANCE)
        if self._top.sum() > 1:
            self._top_variance = max(float((self._top * off).sum() / self._top.sum()), 0.05)
        self._update_noise()

    def _update_noise(self) -> None:
        """Update the noise: its mean square given the observed intervals (EM step)."""
        counts = self._counts
        middle = self._worth[counts.cell] + self._bias[counts.rater]
        upper = UPPER[counts.rating - 1]
        use = counts.count * (1 - self._top[counts.rater])
        if use.sum() < 1:
            return
        low = (LOWER[counts.rating - 1] - middle) / self._noise
        high = (upper - middle) / self._noise
        inside = np.maximum(ndtr(high) - ndtr(low), 1e-12)
        edges = _times_density(low) - _times_density(high)
        square = self._noise**2 * (1 + edges / inside)
        # the fitted point is nearer to the data than the truth is
        weight = np.maximum(
            _log_probability_derivatives(LOWER[counts.rating - 1], upper, middle, self._noise)[1],
            0.0,
        )
        square = square + weight * self._noise**2 * self._sum_variance[counts.cell, counts.rater]
        noise_variance = float((use * square).sum() / use.sum())
        self._noise = float(np.sqrt(np.clip(noise_variance, 0.05, 9.0)))

    def _update_kinds(self) -> None:
        """Update the probability that each rater uses only the top of the scale."""
        if not self._could_be_top.any():
            return
        counts = self._counts
        some = self._could_be_top[counts.rater]
        rating, rater = counts.rating[some], counts.rater[some]
        worth, count = self._worth[counts.cell[some]], counts.count[some]
        common = np.zeros((self._raters, len(BIAS_GRID)))
        of_top = np.zeros_like(common)
        for number, bias in enumerate(BIAS_GRID):
            at = (UPPER[rating - 1] - worth) / self._noise
            for kind, scale, into in (
                ("common", np.sqrt(self._rater_variance), common),
                ("top", np.sqrt(self._top_variance), of_top),
            ):
                shift = bias * scale / self._noise
                high = at - shift
                low = (LOWER[rating - 1] - worth) / self._noise - shift
                if kind == "top":
                    low = np.where(rating <= LOWEST_OF_TOP, -np.inf, low)
                chance = np.log(np.maximum(ndtr(high) - ndtr(low), 1e-12))
                into[:, number] = np.bincount(rater, count * chance, self._raters)
        density = -(BIAS_GRID**2) / 2
        seen_common = _log_sum(common + density) + np.log(1 - self._top_share)
        seen_top = _log_sum(of_top + density) + np.log(self._top_share)
        odds = np.clip(seen_common - seen_top, -50, 50)
        self._top = np.where(self._could_be_top, 1 / (1 + np.exp(odds)), 0.0)
        self._top_share = float(np.clip(self._top.mean(), 0.01, 0.9))

    def result(self) -> FittedWorth:
        """Return the fitted worths with their errors."""
        covariance, design = self._covariance, self._design()
        of_cells = design @ covariance @ design.T
        stretched = np.zeros(self._cells)
        for evidence_of_kind, precision_of_kind in self._evidence:
            stretched += of_cells[:, evidence_of_kind.cell] @ (
                precision_of_kind @ evidence_of_kind.stretched
            )
        of_cells = of_cells + np.outer(stretched, stretched)
        variance, together = np.diag(of_cells), of_cells.mean(axis=0)
        own = np.maximum(variance - 2 * together + together.mean(), 0.0)
        classes = np.arange(self._cells, self._cells + self._classes)
        role = len(covariance) - 1
        of_class = (
            np.diag(covariance)[classes] + covariance[role, role] + 2 * covariance[classes, role]
        )
        return FittedWorth(
            worth=self._worth,
            error=np.sqrt(variance),
            own_error=np.sqrt(own),
            class_worth=self._effects[classes] + self._effects[-1],
            class_error=np.sqrt(of_class),
            new_topic_error=np.sqrt(of_class + self._topic_variance),
            shrinkage=np.minimum(np.diag(covariance)[: self._cells] / self._topic_variance, 1.0),
            role_worth=float(self._effects[-1]),
            role_error=float(np.sqrt(covariance[role, role])),
            topic_spread=float(np.sqrt(self._topic_variance)),
            class_spread=float(np.sqrt(self._class_variance)),
            rater_spread=float(np.sqrt(self._rater_variance)),
            noise=self._noise,
            top_share=float(self._top.mean()) if self._raters else 0.0,
            top_probability=self._top,
        )


def _log_probability_derivatives(
    lower: Floats, upper: Floats, middle: Floats, noise: float
) -> tuple[Floats, Floats]:
    """Return derivative and negative second derivative of log P(lower < middle + noise < upper)."""
    low, high = (lower - middle) / noise, (upper - middle) / noise
    inside = np.maximum(ndtr(high) - ndtr(low), 1e-12)
    slope = (_density(low) - _density(high)) / inside
    curve = slope**2 - (_times_density(low) - _times_density(high)) / inside
    return slope / noise, curve / noise**2


def _density(at: Floats) -> Floats:
    value: Floats = np.exp(-np.minimum(at**2, 1e4) / 2) / np.sqrt(2 * np.pi)
    return value


def _times_density(at: Floats) -> Floats:
    return np.where(np.isfinite(at), at, 0.0) * _density(at)


def _log_sum(values: Floats) -> Floats:
    most = values.max(axis=1)
    total: Floats = most + np.log(np.exp(values - most[:, None]).sum(axis=1))
    return total

"""Means, confidence intervals and drift of an autocorrelated series. Pure.

A series is given as sums over slices of time, which are joined into batches of equal time. The
variance of the mean and of the slope is estimated from the lowest-frequency cosine coefficients of
the batch residuals: autocorrelation makes high-frequency coefficients smaller and leaves the lowest
ones equal. As many of the lowest as are equal are averaged, and their number is the number of
degrees of freedom (equally weighted cosine estimator; Lazarus, Lewis, Stock and Watson, "HAR
Inference", 2018). With many runs each run is one observation, and nothing is assumed about it.

If the lowest coefficients are much larger than the next ones, the series *wanders*: the run has
fewer than about thirty correlation times, and no test can tell that from a drift.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.special import ndtri, stdtr, stdtrit

__all__ = [
    "MIN_OBSERVATIONS_PER_BATCH",
    "Batches",
    "Mean",
    "drift",
    "estimate_mean",
    "holm_adjusted",
    "make_batches",
    "wilson_half_width",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_BATCHES = 64
MIN_BATCHES = 8
MIN_OBSERVATIONS_PER_BATCH = 20
MIN_BATCHES_PER_RUN = 8
"""Each run has at least this many batches; with fewer, a drift within a run does not show."""
MIN_RUNS = 8
"""From this number of runs of equal weight on, each run is one batch."""
WARM_UP = 0.1
"""Fraction at the beginning of each run that is ignored, because queues still fill."""
MAX_WAVES, MIN_WAVES = 32, 8
MAX_POWER_RATIO = 1.3
"""Maximum ratio of the power of the slowest quarter of the waves to that of the others."""
RANDOM_WALK_FACTOR = 4.0
"""Factor of the error of the slope for a random walk, relative to the error from the slowest eight
waves. A random walk is the slowest possible variation."""
SLOW_WAVE_COUNTS = ((4, 5), (10, 6))
"""Pairs (n, k): the power of the slowest n waves is compared with that of the slowest n * k."""
SLOW_SHARES = (0.45, 0.33)
"""The series wanders if a share is larger; with equal powers the shares are 0.2 and 0.17."""
ROUNDING = 1e-20
"""Relative rounding error of squares; smaller values count as 0."""
RUN_LEVEL_RATIO = 4.0
"""Runs differ in level if the variance of their means is this many times that within runs."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Batches of slices: number of observations and their sum, one row for each run.

    Every run has the same number of batches of equal time; some may be empty.
    """

    count: Floats
    total: Floats

    @property
    def mean(self) -> float:
        """Return the mean of all observations."""
        return float(self.total.sum() / self.count.sum())

    @property
    def has_enough_data(self) -> bool:
        """Return whether there is enough data to estimate the uncertainty."""
        some = int((self.count > 0).sum())
        return some >= MIN_BATCHES and self.count.sum() >= MIN_BATCHES * MIN_OBSERVATIONS_PER_BATCH

    @property
    def means(self) -> tuple[float, ...]:
        """Return the batch means by run and time.

        On average, each batch has at least 20 observations.
        """
        count, total = self.count, self.total
        while count.shape[1] > 1 and count.mean() < MIN_OBSERVATIONS_PER_BATCH:
            even = count.shape[1] // 2 * 2
            count, total = (
                np.concatenate([of[:, :even:2] + of[:, 1:even:2], of[:, even:]], axis=1)
                for of in (count, total)
            )
        some = count > 0
        return tuple((total[some] / count[some]).tolist())

    @property
    def has_many_runs(self) -> bool:
        """Return whether there are enough runs to treat each as one observation."""
        return _effective_runs(self.count.sum(axis=1)) >= MIN_RUNS

    @property
    def wanders(self) -> bool:
        """Return whether the series varies too slowly to tell a drift from it."""
        return any(found > limit for found, limit in zip(self.slowness, SLOW_SHARES, strict=True))

    @cached_property
    def slowness(self) -> tuple[float, ...]:
        """Return the shares of the lowest frequencies in the residual variance.

        There is one share for each pair in SLOW_WAVE_COUNTS. A linear trend is removed first. With
        many runs the shares are 0.
        """
        waves = _wave_powers(_fit_line(self).residuals, first=2)
        if self.has_many_runs or waves.sum() <= ROUNDING * float((self.total**2).sum()):
            return tuple(0.0 for _ in SLOW_WAVE_COUNTS)
        runs = _effective_runs(self.count.sum(axis=1))
        numbers = [(_share_of_run(slow, runs), times) for slow, times in SLOW_WAVE_COUNTS]
        return tuple(float(waves[:n].sum() / waves[: n * times].sum()) for n, times in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean with its standard error; ``freedom``: degrees of freedom of Student's distribution."""

    value: float
    error: float
    freedom: float

    def half_width(self, confidence: float) -> float:
        """Return half the width of the confidence interval."""
        return float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error

    def p_value_beyond(self, distance: float) -> float:
        """Return the p-value of a one-sided test: this mean exceeds a bound by ``distance``."""
        if distance <= 0:
            return 1.0
        if self.error == 0:
            return 0.0
        return float(stdtr(self.freedom, -distance / self.error))


def make_batches(run: Integers, slice_: Integers, count: Integers, total: Floats) -> Batches:
    """Return the batches of the slices of one or more runs, without the warm-up of each.

    The last, incomplete slice of a run is dropped if there are enough others.
    """
    parts = [
        _without_warm_up(slice_[run == r], count[run == r], total[run == r]) for r in np.unique(run)
    ]
    parts = [part for part in parts if len(part[0])]
    runs = _effective_runs(np.array([count.sum() for _, count, _ in parts]))
    each = max(_share_of_run(MAX_BATCHES, runs), MIN_BATCHES_PER_RUN)
    counts, totals = np.zeros((2, len(parts), each))
    for number, (times, of, sums) in enumerate(parts):
        batch = np.minimum((times * each).astype(np.int64), each - 1)
        counts[number] = np.bincount(batch, of, minlength=each)
        totals[number] = np.bincount(batch, sums, minlength=each)
    return Batches(count=counts, total=totals)


def _without_warm_up(
    slice_: Integers, count: Integers, total: Floats
) -> tuple[Floats, Floats, Floats]:
    order = np.argsort(slice_, kind="stable")
    slice_, count, total = slice_[order], count[order], total[order]
    first, last = int(slice_[0]), int(slice_[-1])
    from_ = first + int(np.ceil(WARM_UP * (last - first)))
    kept = slice_ >= from_
    if last - first > MIN_BATCHES:
        kept &= slice_ < last
    span = max(last - from_, 1)
    times = (slice_[kept] - from_ + 0.5) / span
    return times, count[kept].astype(np.float64), total[kept].astype(np.float64)


def _wave_powers(residuals: Floats, first: int) -> Floats:
    """Return the power of the cosine coefficients from ``first`` on, averaged over runs."""
    return np.asarray((dct(residuals, norm="ortho", axis=1)[:, first:] ** 2).mean(axis=0))


def _batch_variance(waves: Floats, runs: float, wandering: bool) -> tuple[float, float]:
    """Return the variance of a batch from its lowest frequencies, and the degrees of freedom."""
    number, fewest = _share_of_run(MAX_WAVES, runs), _share_of_run(MIN_WAVES, runs)
    while number > fewest:
        slow = max(number // 4, 1)
        if not wandering and waves[:slow].mean() <= MAX_POWER_RATIO * waves[slow:number].mean():
            break
        number //= 2
    number = min(max(number, fewest), len(waves))
    widened = RANDOM_WALK_FACTOR**2 if wandering else 1.0
    return widened * float(waves[:number].mean()), number * runs


def _effective_runs(weight: Floats) -> float:
    """Return the effective number of runs of equal weight (Kish)."""
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square > 0 else 1.0


def _share_of_run(number: int, runs: float) -> int:
    """Return how many of ``number`` each run gets."""
    return max(number // max(round(runs), 1), 1)


def estimate_mean(batches: Batches, *, wandering: bool = False) -> Mean:
    """Return the mean of all observations with its error, as a ratio of sums.

    ``wandering``: assume that the series may be a random walk.
    """
    residuals = batches.total - batches.mean * batches.count
    run_sums = residuals.sum(axis=1)
    runs, count = len(run_sums), batches.count.sum()
    variance_between = runs / max(runs - 1, 1) * float((run_sums**2).sum()) if runs > 1 else 0.0
    amount = _effective_runs(batches.count.sum(axis=1))
    mean_of_runs = Mean(
        value=batches.mean,
        error=float(np.sqrt(variance_between) / count),
        freedom=max(amount - 1, 1),
    )
    if amount >= MIN_RUNS:
        return mean_of_runs
    noise, freedom = _batch_variance(_wave_powers(residuals, first=1), amount, wandering)
    variance_within = noise * residuals.size
    if variance_between > RUN_LEVEL_RATIO * variance_within:
        return mean_of_runs
    return Mean(value=batches.mean, error=float(np.sqrt(variance_within) / count), freedom=freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A straight line through the batches; ``times``: time from the middle of the run."""

    slope: float
    times: Floats
    residuals: Floats
    spread: Floats


def _fit_line(batches: Batches) -> _Line:
    """Fit one slope for all runs, with a level for each run."""
    count = batches.count
    each = count.shape[1]
    of_run = np.maximum(count.sum(axis=1, keepdims=True), 1e-300)
    times = np.broadcast_to((np.arange(each) + 0.5) / each, count.shape)
    times = times - (count * times).sum(axis=1, keepdims=True) / of_run
    level = batches.total.sum(axis=1, keepdims=True) / of_run
    spread = (count * times**2).sum(axis=1)
    rise = float((batches.total * times).sum())
    slope = rise / float(spread.sum()) if spread.sum() > 0 else 0.0
    residuals = batches.total - (level + slope * times) * count
    return _Line(slope=slope, times=times, residuals=residuals, spread=spread)


def drift(batches: Batches, bound: float = 0.0, *, wandering: bool = False) -> tuple[float, float]:
    """Return the relative rise of the mean during a run, and the p-value of the drift test.

    The null hypothesis is a rise or fall of at most ``bound``; ``wandering`` as in
    ``estimate_mean``.
    """
    line, mean = _fit_line(batches), batches.mean
    information = float(line.spread.sum())
    if information == 0 or mean == 0:
        return 0.0, 1.0
    amount = _effective_runs(line.spread)
    if amount >= MIN_RUNS:
        run_sums = (line.residuals * line.times).sum(axis=1)
        runs = len(run_sums)
        square, freedom = runs / (runs - 1) * float((run_sums**2).sum()), amount - 1
    else:
        noise, freedom = _batch_variance(_wave_powers(line.residuals, first=2), amount, wandering)
        square = noise * float((line.times**2).sum())
    rise, error = line.slope / mean, float(np.sqrt(square)) / information / abs(mean)
    if error == 0:
        return rise, 1.0 if abs(rise) <= bound else 0.0
    near, far = abs(rise) - bound, abs(rise) + bound
    chance = stdtr(freedom, -near / error) + stdtr(freedom, -far / error)
    return rise, min(float(chance), 1.0)


def wilson_half_width(part: float, number: float, confidence: float) -> float:
    """Return half the width of Wilson's interval for a proportion; it is never 0."""
    z = float(ndtri((1 + confidence) / 2))
    part = min(max(part, 0.0), 1.0)
    root = float(np.sqrt(part * (1 - part) / number + (z / (2 * number)) ** 2))
    return z / (1 + z**2 / number) * root


def holm_adjusted(p_values: Floats) -> Floats:
    """Return the p-values adjusted for multiple tests by the method of Holm (1979)."""
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted

"""Means, intervals and drift of a series whose neighbours resemble each other. Pure.

A series comes as sums over slices of time, which are joined into batches of equal time. How far
chance moves a mean or a slope is what the slowest waves of the batches' scatter hold: cosines over
the run, of which neighbours' resemblance leaves the slow ones alike and makes the fast ones
smaller. So many of the slowest are taken as are alike, and as many are the degrees of freedom
(equally weighted cosines; Lazarus, Lewis, Stock and Watson 2018). Of many runs each is a batch
alone, and nothing need be known of what happens inside.

If the slowest waves hold much more than the next, the series wanders: the run has fewer than about
thirty correlation times, and no test tells that from a drift.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.special import ndtri, stdtr, stdtrit

__all__ = [
    "FEWEST_OF_A_BATCH",
    "Batches",
    "Mean",
    "batches_of",
    "drift",
    "holm",
    "mean_of",
    "wilson_half_width",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_BATCHES = 64
FEWEST_BATCHES = 8
FEWEST_OF_A_BATCH = 20
FEWEST_OF_A_RUN = 8
"""However many runs there are: a drift within them shows in no fewer."""
FEWEST_RUNS = 8
"""So many of about the same weight, and each is a batch alone."""
WARM_UP = 0.1
"""The part of each run at its beginning that is not looked at: queues still fill."""
MOST_WAVES, FEWEST_WAVES = 32, 8
ALIKE = 1.3
"""The slowest quarter of the waves may hold so many times what the others do."""
RANDOM_WALK = 4.0
"""By so many times what the slowest eight waves say chance moves the slope of a level that never
comes back; the slowest thinkable wandering."""
SLOWEST = ((4, 5), (10, 6))
"""So many of the slowest waves, of so many times as many: few, in noise; more, if there is none."""
SLOW = (0.45, 0.33)
"""If these hold so much of the scatter the series wanders; if all are alike, 0.2 and 0.17."""
ROUNDING = 1e-20
"""Of squares: what is left of numbers that are all the same."""
APART = 4.0
"""Runs whose means differ by so many times the variance that they show inside differ in level."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Batches of slices: how many observations each holds and their sum, by run and time.

    A row for each run; every run has as many batches, of equal time, some of them empty.
    """

    count: Floats
    total: Floats

    @property
    def mean(self) -> float:
        """Of all observations."""
        return float(self.total.sum() / self.count.sum())

    @property
    def enough(self) -> bool:
        """Whether anything can be said of uncertainty."""
        some = int((self.count > 0).sum())
        return some >= FEWEST_BATCHES and self.count.sum() >= FEWEST_BATCHES * FEWEST_OF_A_BATCH

    @property
    def means(self) -> tuple[float, ...]:
        """In the order of runs and time, joined until there are enough observations in each."""
        count, total = self.count, self.total
        while count.shape[1] > 1 and count.mean() < FEWEST_OF_A_BATCH:
            even = count.shape[1] // 2 * 2
            count, total = (
                np.concatenate([of[:, :even:2] + of[:, 1:even:2], of[:, even:]], axis=1)
                for of in (count, total)
            )
        some = count > 0
        return tuple((total[some] / count[some]).tolist())

    @property
    def many(self) -> bool:
        """Whether there are so many runs that each counts as one observation."""
        return _amount(self.count.sum(axis=1)) >= FEWEST_RUNS

    @property
    def wanders(self) -> bool:
        """Whether it comes and goes too slowly for a drift to be told from that."""
        return any(found > limit for found, limit in zip(self.slowness, SLOW, strict=True))

    @cached_property
    def slowness(self) -> tuple[float, ...]:
        """Which part of the slow waves' scatter is in the slowest, for each way to ask (SLOWEST).

        Apart from a straight trend. Of many runs there is nothing to ask.
        """
        waves = _waves(_line(self).left, first=2)
        if self.many or waves.sum() <= ROUNDING * float((self.total**2).sum()):
            return tuple(0.0 for _ in SLOWEST)
        runs = _amount(self.count.sum(axis=1))
        numbers = [(_of_a_run(slow, runs), times) for slow, times in SLOWEST]
        return tuple(float(waves[:n].sum() / waves[: n * times].sum()) for n, times in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean with its standard error; ``freedom``: of Student's distribution."""

    value: float
    error: float
    freedom: float

    def half_width(self, confidence: float) -> float:
        """Half the width of the confidence interval."""
        return float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error

    def beyond(self, distance: float) -> float:
        """How likely a mean so far out is, if the truth is ``distance`` nearer."""
        if distance <= 0:
            return 1.0
        if self.error == 0:
            return 0.0
        return float(stdtr(self.freedom, -distance / self.error))


def batches_of(run: Integers, slice_: Integers, count: Integers, total: Floats) -> Batches:
    """Batches of the slices of one or more runs, each without its beginning.

    The last slice of a run ends somewhere within: it is left out too where there are enough.
    """
    parts = [_kept(slice_[run == r], count[run == r], total[run == r]) for r in np.unique(run)]
    parts = [part for part in parts if len(part[0])]
    runs = _amount(np.array([count.sum() for _, count, _ in parts]))
    each = max(_of_a_run(MOST_BATCHES, runs), FEWEST_OF_A_RUN)
    counts, totals = np.zeros((2, len(parts), each))
    for number, (when, of, sums) in enumerate(parts):
        batch = np.minimum((when * each).astype(np.int64), each - 1)
        counts[number] = np.bincount(batch, of, minlength=each)
        totals[number] = np.bincount(batch, sums, minlength=each)
    return Batches(count=counts, total=totals)


def _kept(slice_: Integers, count: Integers, total: Floats) -> tuple[Floats, Floats, Floats]:
    order = np.argsort(slice_, kind="stable")
    slice_, count, total = slice_[order], count[order], total[order]
    first, last = int(slice_[0]), int(slice_[-1])
    from_ = first + int(np.ceil(WARM_UP * (last - first)))
    kept = slice_ >= from_
    if last - first > FEWEST_BATCHES:
        kept &= slice_ < last
    span = max(last - from_, 1)
    when = (slice_[kept] - from_ + 0.5) / span
    return when, count[kept].astype(np.float64), total[kept].astype(np.float64)


def _waves(left: Floats, first: int) -> Floats:
    """What waves hold, of all runs together, slow ones first; those before ``first`` left out."""
    return np.asarray((dct(left, norm="ortho", axis=1)[:, first:] ** 2).mean(axis=0))


def _noise(waves: Floats, runs: float, wandering: bool) -> tuple[float, float]:
    """The variance of a batch as slow waves have it, and with how many degrees of freedom."""
    number, fewest = _of_a_run(MOST_WAVES, runs), _of_a_run(FEWEST_WAVES, runs)
    while number > fewest:
        slow = max(number // 4, 1)
        if not wandering and waves[:slow].mean() <= ALIKE * waves[slow:number].mean():
            break
        number //= 2
    number = min(max(number, fewest), len(waves))
    widened = RANDOM_WALK**2 if wandering else 1.0
    return widened * float(waves[:number].mean()), number * runs


def _amount(weight: Floats) -> float:
    """How many runs of equal weight these amount to."""
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square > 0 else 1.0


def _of_a_run(number: int, runs: float) -> int:
    """What is left for each of so many runs."""
    return max(number // max(round(runs), 1), 1)


def mean_of(batches: Batches, *, wandering: bool = False) -> Mean:
    """The mean of all observations, as a ratio of sums.

    ``wandering``: it is, and may be a random walk for all that is known.
    """
    left = batches.total - batches.mean * batches.count
    of_runs = left.sum(axis=1)
    runs, count = len(of_runs), batches.count.sum()
    between = runs / max(runs - 1, 1) * float((of_runs**2).sum()) if runs > 1 else 0.0
    amount = _amount(batches.count.sum(axis=1))
    apart = Mean(
        value=batches.mean, error=float(np.sqrt(between) / count), freedom=max(amount - 1, 1)
    )
    if amount >= FEWEST_RUNS:
        return apart
    noise, freedom = _noise(_waves(left, first=1), amount, wandering)
    inside = noise * left.size
    if between > APART * inside:
        return apart
    return Mean(value=batches.mean, error=float(np.sqrt(inside) / count), freedom=freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A straight line through batches; ``when``: from each run's middle; ``left``: sums around."""

    slope: float
    when: Floats
    left: Floats
    spread: Floats


def _line(batches: Batches) -> _Line:
    """Of one slope for all runs, each at its own level."""
    count = batches.count
    each = count.shape[1]
    of_run = np.maximum(count.sum(axis=1, keepdims=True), 1e-300)
    when = np.broadcast_to((np.arange(each) + 0.5) / each, count.shape)
    when = when - (count * when).sum(axis=1, keepdims=True) / of_run
    level = batches.total.sum(axis=1, keepdims=True) / of_run
    spread = (count * when**2).sum(axis=1)
    rise = float((batches.total * when).sum())
    slope = rise / float(spread.sum()) if spread.sum() > 0 else 0.0
    left = batches.total - (level + slope * when) * count
    return _Line(slope=slope, when=when, left=left, spread=spread)


def drift(batches: Batches, bound: float = 0.0, *, wandering: bool = False) -> tuple[float, float]:
    """By what part the mean rises over the time of a run, and how likely that is by chance.

    If it truly rises or falls by ``bound`` at most; ``wandering`` as of a mean. A straight line
    through batches.
    """
    line, mean = _line(batches), batches.mean
    information = float(line.spread.sum())
    if information == 0 or mean == 0:
        return 0.0, 1.0
    amount = _amount(line.spread)
    if amount >= FEWEST_RUNS:
        of_runs = (line.left * line.when).sum(axis=1)
        runs = len(of_runs)
        square, freedom = runs / (runs - 1) * float((of_runs**2).sum()), amount - 1
    else:
        noise, freedom = _noise(_waves(line.left, first=2), amount, wandering)
        square = noise * float((line.when**2).sum())
    rise, error = line.slope / mean, float(np.sqrt(square)) / information / abs(mean)
    if error == 0:
        return rise, 1.0 if abs(rise) <= bound else 0.0
    near, far = abs(rise) - bound, abs(rise) + bound
    chance = stdtr(freedom, -near / error) + stdtr(freedom, -far / error)
    return rise, min(float(chance), 1.0)


def wilson_half_width(part: float, number: float, confidence: float) -> float:
    """Half of Wilson's interval of a part of so many independent ones; none is of width 0."""
    z = float(ndtri((1 + confidence) / 2))
    part = min(max(part, 0.0), 1.0)
    root = float(np.sqrt(part * (1 - part) / number + (z / (2 * number)) ** 2))
    return z / (1 + z**2 / number) * root


def holm(likelihoods: Floats) -> Floats:
    """Adjusted for how many there are: all at or below a level are found at that level."""
    order = np.argsort(likelihoods, kind="stable")
    scaled = likelihoods[order] * np.arange(len(likelihoods), 0, -1)
    adjusted = np.empty_like(likelihoods)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted

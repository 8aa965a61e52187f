"""What all replications together say, each figure with its confidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from firedex_models.grouping import group_sums
from firedex_models.network_hops import Hop
from firedex_models.simulation.tally import Tally, bin_edges
from firedex_models.site import Site

__all__ = ["Estimate", "GroupEstimates", "SimulationSummary"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
CONFIDENCE = 0.95
LEVELS = (0.50, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Means over replications, and half the widths of their confidence intervals.

    NaN where there is nothing to average; a half-width needs two replications.
    """

    mean: Floats
    half_width: Floats

    @classmethod
    def of(cls, values: Floats) -> "Estimate":
        """From one row for each replication; replications without a value do not count."""
        known = np.isfinite(values)
        count = known.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            total = np.where(known, values, 0.0).sum(axis=0)
            mean = np.where(count > 0, total / count, np.nan)
            spread = np.where(known, (values - mean) ** 2, 0.0).sum(axis=0)
            error = np.sqrt(spread / (count - 1) / count)
        factor = stdtrit(np.maximum(count - 1, 1), (1 + CONFIDENCE) / 2)
        return cls(mean=mean, half_width=np.where(count > 1, factor * error, np.nan))


@dataclass(frozen=True, kw_only=True)
class GroupEstimates:
    """Subscriptions, or classes of them."""

    offered: Floats
    success_rate: Estimate
    delay_mean_seconds: Estimate
    delay_p50_seconds: Estimate
    delay_p95_seconds: Estimate
    delay_p99_seconds: Estimate
    timely_fraction: Estimate


@dataclass(frozen=True, kw_only=True)
class SimulationSummary:
    """All replications of one site."""

    site: Site
    uplinks: Sequence[Hop]
    tallies: Sequence[Tally]

    @cached_property
    def priority(self) -> Integers:
        """Each subscription's class."""
        return self.site.flows.priority[self.site.subscription_flow]

    @cached_property
    def subscriptions(self) -> GroupEstimates:
        """One row for each subscription."""
        return self._grouped(np.arange(len(self.site.subscriptions)), len(self.site.subscriptions))

    @cached_property
    def classes(self) -> GroupEstimates:
        """One row for each class up to the lowest."""
        return self._grouped(self.priority, int(self.priority.max(initial=-1)) + 1)

    def _grouped(self, group: Integers, groups: int) -> GroupEstimates:
        member = group[self.site.member_subscription]
        stream = self.site.member_stream
        rows: dict[str, list[Floats]] = {}
        offered_in_all = np.zeros(groups)
        for tally in self.tallies:
            offered = group_sums(member, tally.offered[stream].astype(float), groups)
            delivered = group_sums(member, tally.delivered[stream].astype(float), groups)
            delay = group_sums(member, tally.delay[stream], groups)
            timely = group_sums(group, tally.timely.astype(float), groups)
            histogram = np.zeros((groups, tally.histogram.shape[1]))
            np.add.at(histogram, member, tally.histogram[stream])
            offered_in_all += offered
            with np.errstate(invalid="ignore", divide="ignore"):
                rows.setdefault("success", []).append(delivered / offered)
                rows.setdefault("timely", []).append(timely / offered)
                rows.setdefault("mean", []).append(delay / delivered)
            for level in LEVELS:
                rows.setdefault(f"p{level:.2f}", []).append(_percentile(histogram, level))
        estimate = {name: Estimate.of(np.array(values)) for name, values in rows.items()}
        return GroupEstimates(
            offered=offered_in_all,
            success_rate=estimate["success"],
            delay_mean_seconds=estimate["mean"],
            delay_p50_seconds=estimate["p0.50"],
            delay_p95_seconds=estimate["p0.95"],
            delay_p99_seconds=estimate["p0.99"],
            timely_fraction=estimate["timely"],
        )

    def _worth(self, fraction: Floats) -> float:
        heard = self.subscriptions.offered > 0
        worth = self.site.demand.utilities.of(np.nan_to_num(fraction, nan=0.0))
        return float(worth[heard].sum())

    @property
    def utility(self) -> float:
        """ΣU of the success rates."""
        return self._worth(self.subscriptions.success_rate.mean)

    @property
    def timely_utility(self) -> float:
        """ΣU of what arrives within its deadline."""
        return self._worth(self.subscriptions.timely_fraction.mean)

    @property
    def maximum_utility(self) -> float:
        """ΣU if nothing were lost."""
        return self._worth(np.ones(len(self.site.subscriptions)))

    @property
    def achieved_utility_rate(self) -> float:
        """ΣU ÷ ΣÛ; 1 where nothing is worth anything."""
        most = self.maximum_utility
        return min(self.utility / most, 1.0) if most > 0 else 1.0

    @property
    def achieved_utility_rate_per_subscription(self) -> float:
        """The paper's measure: the mean of U ÷ Û."""
        utilities = self.site.demand.utilities
        some = (self.subscriptions.offered > 0) & (utilities.maximum > 0)
        if not some.any():
            return 1.0
        success = np.nan_to_num(self.subscriptions.success_rate.mean, nan=0.0)
        return float((utilities.of(success)[some] / utilities.maximum[some]).mean())

    @property
    def fates(self) -> Integers:
        """How many notifications met each fate (``crossing``), all replications together."""
        total: Integers = np.sum([tally.fates for tally in self.tallies], axis=0)
        return total

    def hop_load(self) -> dict[str, float]:
        """The load that was offered to every hop."""
        return _averaged([tally.hop_load for tally in self.tallies])

    def hop_waiting(self) -> dict[str, float]:
        """Packets that an arrival finds waiting at every hop."""
        return _averaged([tally.hop_waiting for tally in self.tallies])


def _averaged(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name: None for each in figures for name in each}
    return {name: float(np.mean([each.get(name, 0.0) for each in figures])) for name in names}


def _percentile(histogram: Floats, level: float) -> Floats:
    """The delay that a fraction ``level`` stays below; straight lines within a bin."""
    edges = bin_edges()
    total = histogram.sum(axis=1)
    below = np.cumsum(histogram, axis=1)
    wanted = level * total
    cell = np.minimum((below < wanted[:, None]).sum(axis=1), histogram.shape[1] - 1)
    row = np.arange(len(total))
    before = np.where(cell > 0, below[row, np.maximum(cell - 1, 0)], 0.0)
    inside = histogram[row, cell]
    part = np.divide(wanted - before, inside, out=np.zeros(len(total)), where=inside > 0)
    value = edges[cell] + part * (edges[cell + 1] - edges[cell])
    return np.where(total > 0, value, np.nan)

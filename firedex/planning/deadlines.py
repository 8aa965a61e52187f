"""Drop rates that keep deadlines: every class is limited by how long it may wait.

One tolerance ρ̃ for all classes wastes capacity, since under priorities only the low classes feel
the last percent of load, and it promises nothing. Here every class has a limit of its own on the
load of its and all higher classes. The wait of class k goes as 1/(1 − σ_k), so from what the model
predicts at one limit follows which limit the deadline needs; that is repeated until it agrees, and
then tightened until the model confirms every deadline that is called met.

A class that is not held by deadlines keeps to ρ̃. Deadlines that even an empty link would miss are
given up at once. Of the others, some may cost more than they are worth: then the most demanding of
a class are given up as far as that makes what arrives in time worth more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.planning.allocation import Allocation
from firedex_models import PredictionTable
from firedex_models.downlink_loads import DownlinkLoads
from firedex_models.grouping import group_sums
from firedex_models.site import Site

__all__ = ["DeadlinePlan", "keep_deadlines"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LEAST_SPARE = 0.002
"""Of every link so much stays free, whatever deadlines would allow."""
MOST_SPARE = 0.999
AGREEMENT = 1e-3
ROUNDS = 25
TIGHTENINGS = 40
TIGHTER = 1.02
SHARES_GIVEN_UP = (0.02, 0.1, 0.3, 1.0)
"""Which parts of a class's deadlines are tried without, the most demanding first."""

Evaluate = Callable[[Floats], tuple[Allocation, PredictionTable]]
"""Solve with limits (hops × classes) and predict."""


@dataclass(frozen=True, kw_only=True)
class DeadlinePlan:
    """The solution, what is predicted of it, and which deadlines were given up.

    ``spare``: what had to stay free for each class (hops × classes).
    """

    allocation: Allocation
    table: PredictionTable
    given_up: Booleans
    spare: Floats


def keep_deadlines(
    site: Site, loads: DownlinkLoads, tolerance: float, evaluate: Evaluate
) -> DeadlinePlan:
    """The drop rates whose events in time are worth most, of those that were tried."""
    return _Search(site, loads, tolerance, evaluate).run()


class _Search:
    def __init__(
        self, site: Site, loads: DownlinkLoads, tolerance: float, evaluate: Evaluate
    ) -> None:
        self._evaluate = evaluate
        self._tolerance = tolerance
        self._loads = loads
        self._flow_priority = site.flows.priority
        self._priority = site.flows.priority[site.subscription_flow]
        self._hops = len(site.downlinks.hops)
        self._classes = int(site.flows.priority.max(initial=0)) + 1
        self._deadline = site.demand.deadline_seconds
        self._level = site.demand.deadline_percentile
        self._way = site.downlinks.stage[site.demand.subscriber]
        self._heard = loads.ceiling > 0
        self._due = np.isfinite(self._deadline) & self._heard

    def run(self) -> DeadlinePlan:
        best = self._keep(~self._due)
        for share in SHARES_GIVEN_UP:
            costly = best.spare > self._tolerance  # elsewhere deadlines cost nothing
            if not costly.any():
                break
            tried = self._keep(self._most_demanding(share, costly, best))
            if tried.table.timely_utility > best.table.timely_utility * (1 + AGREEMENT):
                best = tried
        return best

    def _most_demanding(self, share: float, costly: Booleans, kept: DeadlinePlan) -> Booleans:
        """What is given up already, and the most demanding ``share`` of each costly class."""
        given_up = kept.given_up.copy()
        needed = self._needed(kept.allocation, kept.table, given_up)
        costs = self._spare_of(costly.astype(float), np.maximum, 0.0) > 0
        for k in range(self._classes):
            rows = np.flatnonzero(~given_up & costs & (self._priority == k))
            order = rows[np.argsort(-needed[rows], kind="stable")]
            given_up[order[: int(np.ceil(share * len(rows)))]] = True
        return given_up

    def _keep(self, given_up: Booleans) -> DeadlinePlan:
        """Limits under which every deadline is met that is not given up, or turns out hopeless."""
        given_up = given_up.copy()
        spare = self._spare_without_deadlines(given_up)
        for _ in range(ROUNDS):
            allocation, table = self._evaluate(1.0 - spare)
            needed = self._needed(allocation, table, given_up)
            hopeless = ~given_up & (needed >= MOST_SPARE)
            if hopeless.any():
                given_up |= hopeless
                spare = self._spare_without_deadlines(given_up)
                continue
            target = np.clip(self._per_class(needed, given_up), LEAST_SPARE, MOST_SPARE)
            step = np.sqrt(target / spare)  # half way, on a scale where waits are straight lines
            spare = spare * step
            if np.abs(np.log(step)).max(initial=0.0) < AGREEMENT:
                break
        return self._confirm(spare, given_up)

    def _confirm(self, spare: Floats, given_up: Booleans) -> DeadlinePlan:
        """Tighten until the model agrees; what it never agrees to is given up."""
        for tightening in range(TIGHTENINGS):
            allocation, table = self._evaluate(1.0 - spare)
            late = ~given_up & (table.deadline_met == 0) & np.isfinite(table.delay_mean_seconds)
            if not late.any():
                break
            if tightening == TIGHTENINGS - 1:
                given_up = given_up | late
                break
            spare = np.where(self._classes_of(late), np.minimum(spare * TIGHTER, MOST_SPARE), spare)
        return DeadlinePlan(allocation=allocation, table=table, given_up=given_up, spare=spare)

    def _spare_without_deadlines(self, given_up: Booleans) -> Floats:
        """ρ̃ up to the lowest class that has something without a deadline, and next to none below."""
        spare = np.full((self._hops, self._classes), LEAST_SPARE)
        free = self._classes_of(given_up & self._heard)
        spare[free] = self._tolerance
        return spare

    def _needed(self, allocation: Allocation, table: PredictionTable, given_up: Booleans) -> Floats:
        """The spare that each subscription's deadline asks of its class."""
        delay = np.empty(len(self._level))
        for level in np.unique(self._level[~given_up]):
            rows = self._level == level
            delay[rows] = table.mixture.percentile(float(level))[rows]
        fixed = table.delay_fixed_seconds
        now = self._spare_of(self._left(allocation.passing), np.minimum, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = (delay - fixed) / (self._deadline - fixed)
        factor = np.where(self._deadline <= fixed, np.inf, factor)
        factor = np.where(np.isfinite(fixed), factor, 0.0)  # what never arrives is not late
        return np.where(given_up, 0.0, now * factor)

    def _left(self, passing: Floats) -> Floats:
        """1 − σ of each hop and class."""
        cell = self._loads.hop * self._classes + self._flow_priority[self._loads.flow]
        load = self._loads.load * passing[self._loads.flow]
        used = group_sums(cell, load, self._hops * self._classes)
        left: Floats = 1.0 - np.cumsum(used.reshape(self._hops, self._classes), axis=1)
        return np.maximum(left, LEAST_SPARE / 2)

    def _spare_of(self, spare: Floats, choose: np.ufunc, start: float) -> Floats:
        """The least (or greatest) of these figures on each subscription's way."""
        found = np.full(len(self._priority), start)
        for depth in range(self._way.shape[1]):
            hop = self._way[:, depth]
            found = np.where(hop >= 0, choose(found, spare[hop, self._priority]), found)
        return found

    def _per_class(self, needed: Floats, given_up: Booleans) -> Floats:
        """The largest spare that anybody in a class needs, on every hop of its way."""
        target = np.full((self._hops, self._classes), LEAST_SPARE)
        for depth in range(self._way.shape[1]):
            hop = self._way[:, depth]
            rows = np.flatnonzero(hop >= 0)
            np.maximum.at(target, (hop[rows], self._priority[rows]), needed[rows])
        free = self._classes_of(given_up & self._heard)
        return np.where(free, np.maximum(target, self._tolerance), target)

    def _classes_of(self, subscriptions: Booleans) -> Booleans:
        """The classes that these subscriptions are in, on every hop of their way."""
        found = np.zeros((self._hops, self._classes), dtype=bool)
        for depth in range(self._way.shape[1]):
            rows = np.flatnonzero(subscriptions & (self._way[:, depth] >= 0))
            found[self._way[rows, depth], self._priority[rows]] = True
        return found

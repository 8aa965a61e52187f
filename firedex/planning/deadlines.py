"""Drop rates that keep deadlines: every class is limited by how long it may wait.

One tolerance ρ̃ for all classes wastes capacity, since under priorities only the low classes feel
the last percent of load, and it promises nothing. Here every class has a limit of its own on the
load of its and all higher classes. The wait of class k goes as 1/(1 − σ_k), so from what the model
predicts at one limit follows which limit the deadline needs; that is repeated until it agrees, and
then tightened until the model confirms every deadline that is called met.

A class that is not held by deadlines keeps to ρ̃. Deadlines that even an empty link would miss are
given up at once. Of the others, some may cost more than they are worth. Then the lowest classes are
closed, for a deadline there limits the load of all classes above, and the most demanding deadlines
of a class are given up, both as far as that makes what arrives in time worth more.
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
HOPELESS_SPARE = 0.9
"""A deadline that is missed although so much is free cannot be met."""
LARGEST_STEP = 2.0
AGREEMENT = 1e-3
WORTH_CLOSING = 1e-3
WORTH_GIVING_UP = 1e-2
"""What arrives in time must be worth so much more, relatively, for classes to be closed, or for
deadlines to be given up."""
PATIENCE = 2
"""So many classes are closed in vain before that is left."""
HARDLY = 0.01
"""A class with less than this part of what is served is hardly served."""
ROUNDS = 60
TIGHTENINGS = 40
TIGHTER = 1.02
SHARES_GIVEN_UP = (0.02, 0.1, 0.3)
"""Which parts of a class's deadlines are tried without, the most demanding first."""

Evaluate = Callable[[Floats, Booleans], tuple[Allocation, PredictionTable]]
"""Solve with limits (hops × classes), without the flows that are closed, and predict."""


@dataclass(frozen=True, kw_only=True)
class DeadlinePlan:
    """The solution, what is predicted of it, and which deadlines were given up.

    ``closed``: flows of which nothing passes, so that those above them may use more. ``spare``:
    what had to stay free for each class (hops × classes).
    """

    allocation: Allocation
    table: PredictionTable
    given_up: Booleans
    closed: Booleans
    spare: Floats

    @property
    def missed(self) -> int:
        """How many deadlines are not met."""
        return int((self.table.deadline_met == 0).sum())


def keep_deadlines(
    site: Site, loads: DownlinkLoads, kept: Booleans, tolerance: float, evaluate: Evaluate
) -> DeadlinePlan:
    """The drop rates whose events in time are worth most, of those that were tried.

    ``kept``: flows that must not be dropped. ``tolerance``: ρ̃.
    """
    return _Search(site, loads, kept, tolerance, evaluate).run()


class _Search:
    def __init__(
        self,
        site: Site,
        loads: DownlinkLoads,
        kept: Booleans,
        tolerance: float,
        evaluate: Evaluate,
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
        flows = len(site.flows.number)
        self._no_flow = np.zeros(flows, dtype=bool)
        hurried = np.ones(flows, dtype=bool)
        hurried[site.subscription_flow[self._heard & ~self._due]] = False
        self._closable = hurried & ~kept

    def run(self) -> DeadlinePlan:
        best = tried = self._keep(~self._due, self._no_flow)
        in_vain = 0
        while in_vain < PATIENCE and (closed := self._close_lowest(tried)) is not None:
            tried = self._keep(~self._due, closed)
            in_vain = 0 if _better(tried, best, WORTH_CLOSING) else in_vain + 1
            best = best if in_vain else tried
        for share in SHARES_GIVEN_UP:
            costly = best.spare > self._tolerance  # elsewhere deadlines cost nothing
            if not costly.any():
                break
            tried = self._keep(self._most_demanding(share, costly, best), best.closed)
            best = tried if _better(tried, best, WORTH_GIVING_UP) else best
        without = self._keep(np.ones_like(self._due), self._no_flow)
        margin = WORTH_GIVING_UP if without.missed > best.missed else 0.0
        return without if _better(without, best, margin) else best

    def _close_lowest(self, now: DeadlinePlan) -> Booleans | None:
        """Flows without which the classes above could wait longer; ``None`` if there are none left.

        That is the lowest class that is served, and with it all that hardly are. A little in a low
        class costs as much as a lot: its deadline limits the load of everything above it.
        """
        served = self._loads.load * now.allocation.passing[self._loads.flow]
        noticeable = group_sums(
            self._flow_priority[self._loads.flow], served, self._classes
        ) > HARDLY * max(float(served.sum()), 1e-300)
        lowest = int(np.flatnonzero(noticeable).max(initial=0))
        closed = self._closable & (self._flow_priority > lowest)
        if not (closed & ~now.closed).any():
            closed = self._closable & (self._flow_priority >= lowest)
        return closed if (closed & ~now.closed).any() and not closed.all() else None

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

    def _keep(self, given_up: Booleans, closed: Booleans) -> DeadlinePlan:
        """Limits under which every deadline is met that is not given up, or turns out hopeless."""
        given_up = given_up.copy()
        spare = self._spare_without_deadlines(given_up)
        for _ in range(ROUNDS):
            allocation, table = self._evaluate(1.0 - spare, closed)
            needed = self._needed(allocation, table, given_up)
            idle = self._spare_of(spare, np.minimum, 1.0) >= HOPELESS_SPARE
            hopeless = ~given_up & ((idle & (needed >= HOPELESS_SPARE)) | np.isinf(needed))
            if hopeless.any():
                given_up |= hopeless
                spare = self._spare_without_deadlines(given_up)
                continue
            target = np.clip(self._per_class(needed, given_up), LEAST_SPARE, MOST_SPARE)
            arriving = self._classes_of(np.isfinite(table.delay_mean_seconds))
            target = np.where(arriving, target, spare)  # of what never arrives nothing is known
            # half way, on a scale where waits are straight lines; the classes move together
            step = np.clip(np.sqrt(target / spare), 1 / LARGEST_STEP, LARGEST_STEP)
            spare = np.clip(spare * step, LEAST_SPARE, MOST_SPARE)
            if np.abs(np.log(step)).max(initial=0.0) < AGREEMENT:
                break
        return self._confirm(spare, given_up, closed)

    def _confirm(self, spare: Floats, given_up: Booleans, closed: Booleans) -> DeadlinePlan:
        """Tighten until the model agrees; what it never agrees to is given up."""
        for tightening in range(TIGHTENINGS):
            allocation, table = self._evaluate(1.0 - spare, closed)
            late = ~given_up & (table.deadline_met == 0) & np.isfinite(table.delay_mean_seconds)
            if not late.any():
                break
            if tightening == TIGHTENINGS - 1:
                given_up = given_up | late
                break
            spare = np.where(self._classes_of(late), np.minimum(spare * TIGHTER, MOST_SPARE), spare)
        return DeadlinePlan(
            allocation=allocation, table=table, given_up=given_up, closed=closed, spare=spare
        )

    def _spare_without_deadlines(self, given_up: Booleans) -> Floats:
        """ρ̃ for classes that have something without a deadline, next to nothing for the others."""
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


def _better(tried: DeadlinePlan, best: DeadlinePlan, margin: float) -> bool:
    return tried.table.timely_utility > best.table.timely_utility * (1 + margin)

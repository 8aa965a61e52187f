"""Drop rates that meet deadlines: the load of every class is limited by its deadlines.

One tolerance ρ̃ for all classes wastes capacity, because with priorities only the low classes are
delayed by the last percent of load, and it guarantees no delay. Here every class has its own limit
on the load of this and all higher classes. The wait of class k is proportional to 1/(1 − σ_k), so
the prediction at one limit gives an estimate of the limit that the deadline needs. This is repeated
until it converges. The limits are then tightened until the model predicts that every remaining
deadline is met.

A class without deadlines keeps ρ̃. Deadlines that would be missed on an empty link are abandoned
first. Other deadlines may cost more utility than they provide. Therefore the lowest classes are
closed (a deadline there limits the load of all higher classes), and the most demanding deadlines of
a class are abandoned, as long as this increases the timely utility.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from firedex.planning.allocation import Allocation
from firedex.wire import UnmetDeadline
from firedex_models import PredictionTable
from firedex_models.columns import Booleans, Floats, group_sums
from firedex_models.downlink_loads import DownlinkLoads
from firedex_models.site import Site

__all__ = ["DeadlinePlan", "meet_deadlines", "unmet_deadlines"]

MIN_SPARE = 0.002
"""The fraction of every link that stays free, even if deadlines would allow more load."""
MAX_SPARE = 0.999
IMPOSSIBLE_SPARE = 0.9
"""A deadline that is missed although this fraction of the link is free cannot be met."""
MAX_STEP = 2.0
CONVERGENCE = 1e-3
MIN_GAIN_TO_CLOSE = 1e-3
MIN_GAIN_TO_ABANDON = 1e-2
"""The relative gain in timely utility that justifies closing classes or abandoning deadlines."""
MAX_STEPS_WITHOUT_GAIN = 2
"""The number of classes closed without a gain before the search stops."""
NEGLIGIBLE_LOAD = 0.01
"""A class with less than this fraction of the served load is negligible."""
MAX_ROUNDS = 60
MAX_TIGHTENINGS = 40
TIGHTENING_FACTOR = 1.02
ABANDONED_SHARES = (0.02, 0.1, 0.3)
"""The fractions of a class's deadlines to abandon, the most demanding deadlines first."""

Evaluate = Callable[[Floats, Booleans], tuple[Allocation, PredictionTable]]
"""Solve with limits (hops × classes) and closed flows, and predict the result."""


@dataclass(frozen=True, kw_only=True)
class DeadlinePlan:
    """The solution, its prediction, and the deadlines that were abandoned.

    ``closed``: flows that are dropped completely, so that higher classes may use more. ``spare``:
    the fraction that stays free for each class (hops × classes).
    """

    allocation: Allocation
    table: PredictionTable
    abandoned: Booleans
    closed: Booleans
    spare: Floats

    @property
    def missed_count(self) -> int:
        """The number of deadlines that are not met."""
        return int((self.table.deadline_met == 0).sum())


def meet_deadlines(
    site: Site, loads: DownlinkLoads, undroppable: Booleans, tolerance: float, evaluate: Evaluate
) -> DeadlinePlan:
    """Return the drop rates with the highest timely utility among those tried.

    ``undroppable``: flows that must not be dropped. ``tolerance``: ρ̃.
    """
    return _DeadlineSearch(site, loads, undroppable, tolerance, evaluate).run()


class _DeadlineSearch:
    """Searches load limits per class that maximise the timely utility."""

    def __init__(
        self,
        site: Site,
        loads: DownlinkLoads,
        undroppable: Booleans,
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
        self._path = site.downlinks.stage[site.demand.subscriber]
        self._has_events = loads.ceiling > 0
        self._has_deadline = np.isfinite(self._deadline) & self._has_events
        flows = len(site.flows.number)
        self._no_flow = np.zeros(flows, dtype=bool)
        only_deadlines = np.ones(flows, dtype=bool)
        only_deadlines[site.subscription_flow[self._has_events & ~self._has_deadline]] = False
        self._closable = only_deadlines & ~undroppable

    def run(self) -> DeadlinePlan:
        best = tried = self._meet_deadlines_except(~self._has_deadline, self._no_flow)
        steps_without_gain = 0
        while (
            steps_without_gain < MAX_STEPS_WITHOUT_GAIN
            and (closed := self._close_lowest(tried)) is not None
        ):
            tried = self._meet_deadlines_except(~self._has_deadline, closed)
            steps_without_gain = (
                0 if _has_higher_utility(tried, best, MIN_GAIN_TO_CLOSE) else steps_without_gain + 1
            )
            best = best if steps_without_gain else tried
        for share in ABANDONED_SHARES:
            costs_capacity = best.spare > self._tolerance  # other deadlines cost no capacity
            if not costs_capacity.any():
                break
            tried = self._meet_deadlines_except(
                self._most_demanding(share, costs_capacity, best), best.closed
            )
            best = tried if _has_higher_utility(tried, best, MIN_GAIN_TO_ABANDON) else best
        without = self._meet_deadlines_except(np.ones_like(self._has_deadline), self._no_flow)
        margin = MIN_GAIN_TO_ABANDON if without.missed_count > best.missed_count else 0.0
        return without if _has_higher_utility(without, best, margin) else best

    def _close_lowest(self, now: DeadlinePlan) -> Booleans | None:
        """Return the flows to close next, or ``None`` if there are none.

        These are the flows of the lowest served class and of all negligible classes below. Even a
        small load in a low class is expensive: its deadline limits the load of all higher classes.
        """
        served = self._loads.load * now.allocation.passing[self._loads.flow]
        noticeable = group_sums(
            self._flow_priority[self._loads.flow], served, self._classes
        ) > NEGLIGIBLE_LOAD * max(float(served.sum()), 1e-300)
        lowest = int(np.flatnonzero(noticeable).max(initial=0))
        closed = self._closable & (self._flow_priority > lowest)
        if not (closed & ~now.closed).any():
            closed = self._closable & (self._flow_priority >= lowest)
        return closed if (closed & ~now.closed).any() and not closed.all() else None

    def _most_demanding(
        self, share: float, costs_capacity: Booleans, current: DeadlinePlan
    ) -> Booleans:
        """Return the abandoned deadlines and the most demanding ``share`` of each costly class."""
        abandoned = current.abandoned.copy()
        needed = self._needed_spare(current.allocation, current.table, abandoned)
        is_costly = self._combine_on_path(costs_capacity.astype(float), np.maximum, 0.0) > 0
        for k in range(self._classes):
            rows = np.flatnonzero(~abandoned & is_costly & (self._priority == k))
            order = rows[np.argsort(-needed[rows], kind="stable")]
            abandoned[order[: int(np.ceil(share * len(rows)))]] = True
        return abandoned

    def _meet_deadlines_except(self, abandoned: Booleans, closed: Booleans) -> DeadlinePlan:
        """Find limits that meet all deadlines except those that are abandoned or impossible."""
        abandoned = abandoned.copy()
        spare = self._spare_without_deadlines(abandoned)
        for _ in range(MAX_ROUNDS):
            allocation, table = self._evaluate(1.0 - spare, closed)
            needed = self._needed_spare(allocation, table, abandoned)
            is_idle = self._combine_on_path(spare, np.minimum, 1.0) >= IMPOSSIBLE_SPARE
            impossible = ~abandoned & ((is_idle & (needed >= IMPOSSIBLE_SPARE)) | np.isinf(needed))
            if impossible.any():
                abandoned |= impossible
                spare = self._spare_without_deadlines(abandoned)
                continue
            target = np.clip(self._needed_per_class(needed, abandoned), MIN_SPARE, MAX_SPARE)
            arriving = self._classes_of(np.isfinite(table.delay_mean_seconds))
            target = np.where(arriving, target, spare)  # nothing is delivered: no delay is known
            # a damped step on a logarithmic scale, for all classes together
            step = np.clip(np.sqrt(target / spare), 1 / MAX_STEP, MAX_STEP)
            spare = np.clip(spare * step, MIN_SPARE, MAX_SPARE)
            if np.abs(np.log(step)).max(initial=0.0) < CONVERGENCE:
                break
        return self._confirm(spare, abandoned, closed)

    def _confirm(self, spare: Floats, abandoned: Booleans, closed: Booleans) -> DeadlinePlan:
        """Tighten the limits until the model predicts that the deadlines are met.

        Deadlines that are still missed after the last step are abandoned.
        """
        for tightening in range(MAX_TIGHTENINGS):
            allocation, table = self._evaluate(1.0 - spare, closed)
            is_late = ~abandoned & (table.deadline_met == 0) & np.isfinite(table.delay_mean_seconds)
            if not is_late.any():
                break
            if tightening == MAX_TIGHTENINGS - 1:
                abandoned = abandoned | is_late
                break
            spare = np.where(
                self._classes_of(is_late), np.minimum(spare * TIGHTENING_FACTOR, MAX_SPARE), spare
            )
        return DeadlinePlan(
            allocation=allocation, table=table, abandoned=abandoned, closed=closed, spare=spare
        )

    def _spare_without_deadlines(self, abandoned: Booleans) -> Floats:
        """Return ρ̃ for classes with a subscription without a deadline, the minimum for others."""
        spare = np.full((self._hops, self._classes), MIN_SPARE)
        free = self._classes_of(abandoned & self._has_events)
        spare[free] = self._tolerance
        return spare

    def _needed_spare(
        self, allocation: Allocation, table: PredictionTable, abandoned: Booleans
    ) -> Floats:
        """Return the free fraction that each subscription's deadline needs in its class."""
        delay = np.empty(len(self._level))
        for level in np.unique(self._level[~abandoned]):
            rows = self._level == level
            delay[rows] = table.mixture.percentile(float(level))[rows]
        fixed = table.delay_fixed_seconds
        now = self._combine_on_path(self._free_capacity(allocation.passing), np.minimum, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = (delay - fixed) / (self._deadline - fixed)
        factor = np.where(self._deadline <= fixed, np.inf, factor)
        factor = np.where(np.isfinite(fixed), factor, 0.0)  # nothing delivered: not late
        return np.where(abandoned, 0.0, now * factor)

    def _free_capacity(self, passing: Floats) -> Floats:
        """Return 1 − σ of each hop and class."""
        cell = self._loads.hop * self._classes + self._flow_priority[self._loads.flow]
        load = self._loads.load * passing[self._loads.flow]
        used = group_sums(cell, load, self._hops * self._classes)
        free: Floats = 1.0 - np.cumsum(used.reshape(self._hops, self._classes), axis=1)
        return np.maximum(free, MIN_SPARE / 2)

    def _combine_on_path(self, spare: Floats, choose: np.ufunc, start: float) -> Floats:
        """Return the minimum or maximum of ``spare`` on each subscription's path."""
        result = np.full(len(self._priority), start)
        for depth in range(self._path.shape[1]):
            hop = self._path[:, depth]
            result = np.where(hop >= 0, choose(result, spare[hop, self._priority]), result)
        return result

    def _needed_per_class(self, needed: Floats, abandoned: Booleans) -> Floats:
        """Return the largest free fraction that a subscription of each class needs on each hop."""
        target = np.full((self._hops, self._classes), MIN_SPARE)
        for depth in range(self._path.shape[1]):
            hop = self._path[:, depth]
            rows = np.flatnonzero(hop >= 0)
            np.maximum.at(target, (hop[rows], self._priority[rows]), needed[rows])
        free = self._classes_of(abandoned & self._has_events)
        return np.where(free, np.maximum(target, self._tolerance), target)

    def _classes_of(self, subscriptions: Booleans) -> Booleans:
        """Return the classes of these subscriptions, on every hop of their paths."""
        is_included = np.zeros((self._hops, self._classes), dtype=bool)
        for depth in range(self._path.shape[1]):
            rows = np.flatnonzero(subscriptions & (self._path[:, depth] >= 0))
            is_included[self._path[rows, depth], self._priority[rows]] = True
        return is_included


def _has_higher_utility(tried: DeadlinePlan, best: DeadlinePlan, margin: float) -> bool:
    return tried.table.timely_utility > best.table.timely_utility * (1 + margin)


def unmet_deadlines(table: PredictionTable) -> tuple[UnmetDeadline, ...]:
    """Return the deadlines that are not met at their percentile, in the scenario's order."""
    demand = table.site.demand
    missed = np.flatnonzero(table.deadline_met == 0)
    delay = np.full(len(demand.subscriptions), np.nan)
    for level in np.unique(demand.deadline_percentile[missed]):
        rows = missed[demand.deadline_percentile[missed] == level]
        delay[rows] = table.mixture.percentile(float(level))[rows]
    unmet = []
    for row in missed.tolist():
        subscription = demand.subscriptions[row]
        deadline = float(demand.deadline_seconds[row])
        has_delay = bool(np.isfinite(delay[row]))
        unmet.append(
            UnmetDeadline(
                subscriber=demand.scenario.subscribers[demand.subscriber[row]].id,
                filter=subscription.filter,
                deadline_seconds=deadline,
                percentile=subscription.deadline_percentile,
                reason="late"
                if has_delay
                else _reason_without_delay(float(table.success_rate[row])),
                delay_seconds=float(delay[row]) if has_delay else None,
                late_by_seconds=max(float(delay[row]) - deadline, 0.0) if has_delay else None,
            )
        )
    return tuple(unmet)


def _reason_without_delay(success_rate: float) -> Literal["nothing-delivered", "unstable"]:
    return "unstable" if success_rate > 0 else "nothing-delivered"

"""A whole plan: rank, split, assign, drop, predict. Pure: a scenario in, a plan out."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.bandwidth import allocation_problem, reserved_load, solve
from firedex.planning.deadlines import keep_deadlines
from firedex.planning.drop_policies import CLASS_RULES, passing_by_class
from firedex.planning.errors import PlanningError
from firedex.planning.flow_split import FlowSplit, Kinds, equal_cut, make_flows, sort_into_kinds
from firedex.planning.lone_flows import on_lone_flows
from firedex.planning.moves import (
    Previous,
    keep_cut,
    moved_subscriptions,
    previous_numbers,
    renumber,
)
from firedex.planning.optimal_cut import optimal_cut
from firedex.planning.ranking import Ranking, rank
from firedex.planning.reservations import overcommitted_hops, reserve
from firedex.planning.unmet_deadlines import unmet_deadlines
from firedex.wire import (
    Assignment,
    DropPolicy,
    Planning,
    PlanReport,
    PriorityPolicy,
    Scenario,
    Solver,
    Split,
)
from firedex.wire import Ranking as RankingKind
from firedex_models import PredictionTable, predict_site
from firedex_models.demand import Demand, compile_demand
from firedex_models.downlink_loads import DownlinkLoads, downlink_loads
from firedex_models.inbound import Inbound, travel_to_broker
from firedex_models.site import Site

__all__ = ["Plan", "plan_scenario"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
EQUAL = 1e-9
"""Utilities that differ by less than this part are equal."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was decided, what is predicted of it, and what is proved of it."""

    scenario: Scenario
    planning: Planning
    table: PredictionTable
    report: PlanReport

    @cached_property
    def assignment(self) -> tuple[Assignment, ...]:
        """Where every subscription goes, in the scenario's order."""
        site = self.table.site
        flows = site.flows
        number, priority = flows.number.tolist(), flows.priority.tolist()
        drop_rate = flows.drop_rate.tolist()
        names = [s.id for s in self.scenario.subscribers for _ in s.subscriptions]
        return tuple(
            Assignment(
                subscriber=name,
                filter=subscription.filter,
                flow=number[flow],
                priority=priority[flow],
                drop_rate=drop_rate[flow],
            )
            for name, subscription, flow in zip(
                names, site.subscriptions, site.subscription_flow.tolist(), strict=True
            )
        )

    @cached_property
    def planned(self) -> Scenario:
        """The scenario with this plan as its assignment, and what it was planned by."""
        return replace(self.scenario, planning=self.planning, assignment=self.assignment)


def plan_scenario(
    scenario: Scenario,
    *,
    priority_policy: PriorityPolicy | None = None,
    drop_policy: DropPolicy | None = None,
    ranking: RankingKind | None = None,
    split: Split | None = None,
    seed: int | None = None,
    solver: Solver = "kkt",
    previous: Previous | None = None,
) -> Plan:
    """Plan by the scenario's policies, or by those given.

    ``previous``: the plan in force, which moves are counted from and avoided where they gain
    nothing; the scenario's own assignment unless another is given.
    """
    own = scenario.planning
    planning = replace(
        own,
        priority_policy=priority_policy or own.priority_policy,
        drop_policy=drop_policy or own.drop_policy,
        ranking=ranking or own.ranking,
        split=split or own.split,
        seed=own.seed if seed is None else seed,
    )
    demand = compile_demand(scenario)
    if previous is None:
        previous = scenario.assignment
    return _Planner(demand, travel_to_broker(scenario), planning, solver).plan(previous)


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One way to cut subscriptions into flows, with the drop rates that follow."""

    split: FlowSplit
    site: Site
    passing: Floats
    worth: float
    allocation: Allocation | None = None
    table: PredictionTable | None = None


class _Planner:
    def __init__(
        self, demand: Demand, inbound: Inbound, planning: Planning, solver: Solver
    ) -> None:
        self._demand, self._inbound = demand, inbound
        self._planning, self._solver = planning, solver
        self._limit = 1.0 - planning.rho_tolerance

    def plan(self, previous: Previous | None) -> Plan:
        demand, planning = self._demand, self._planning
        before = previous_numbers(demand, previous)
        ranking = rank(demand, self._inbound, planning.priority_policy, planning.seed)
        reservations = reserve(demand, self._inbound, planning, ranking)
        kinds = sort_into_kinds(demand, reservations, ranking, planning.flows_per_subscriber)
        cut, split_gap = self._cut(ranking, kinds)
        made = self._attempt(ranking, kinds, cut, before)
        kept = None
        if previous:
            kept = self._without_moves(made, ranking, kinds, cut, before)
        final = kept or made
        table = final.table or self._predicted(final.site, final.passing)
        allocation = final.allocation
        subscribers = demand.scenario.subscribers
        return Plan(
            scenario=demand.scenario,
            planning=planning,
            table=table,
            report=PlanReport(
                priority_policy=planning.priority_policy,
                drop_policy=planning.drop_policy,
                ranking=planning.ranking,
                split=planning.split,
                solver=allocation.solver if allocation else None,
                utility_gap=allocation.gap if allocation else None,
                split_gap=split_gap,
                moved_subscriptions=moved_subscriptions(final.split, before) if previous else None,
                kept_previous_flows=kept is not None,
                overcommitted=(
                    *reservations.overcommitted,
                    *overcommitted_hops(
                        demand, self._reserved(final.split, excess=True), self._limit
                    ),
                ),
                undropped_subscribers=tuple(subscribers[row].id for row in kinds.undropped),
                unmet_deadlines=unmet_deadlines(table),
            ),
        )

    def _cut(self, ranking: Ranking, kinds: Kinds) -> tuple[Integers, float | None]:
        equal = equal_cut(kinds)
        if self._planning.split == "equal":
            return equal, None
        site, loads = on_lone_flows(self._demand, self._inbound)
        limit = self._one_limit(site)
        lone = _lone_split(site, kinds)
        ideal = allocation_problem(site, loads, lone, limit)
        # what is kept rides on the same flows whatever becomes of the rest
        reserved = self._reserved(self._flows(ranking, kinds, equal))
        ideal = replace(ideal, limit=np.maximum(limit - reserved[:, None], 0.0))

        def attempt(cut: Integers) -> Allocation:
            split = self._flows(ranking, kinds, cut)
            made = split.site(self._demand)
            its_loads = downlink_loads(made, self._inbound)
            return solve(allocation_problem(made, its_loads, split, limit), self._solver)

        alone = solve(ideal, self._solver)
        found = optimal_cut(self._demand, kinds, equal, alone, loads.ceiling, attempt)
        proved = self._planning.drop_policy == "optimized"
        return found.cut, found.gap if proved else None

    def _reserved(self, split: FlowSplit, *, excess: bool = False) -> Floats:
        """What is reserved on every hop; with the ``excess``, what is never dropped at all."""
        if not split.kept.any():
            return np.zeros(len(self._demand.downlinks.hops))
        site = split.site(self._demand)
        loads = downlink_loads(site, self._inbound)
        return reserved_load(site, loads, split, 1, excess=excess)[:, 0]

    def _one_limit(self, site: Site) -> Floats:
        return np.full((len(site.downlinks.hops), 1), self._limit)

    def _flows(self, ranking: Ranking, kinds: Kinds, cut: Integers) -> FlowSplit:
        return make_flows(self._demand, ranking, kinds, cut, self._planning)

    def _attempt(self, ranking: Ranking, kinds: Kinds, cut: Integers, before: Integers) -> _Attempt:
        split = renumber(self._flows(ranking, kinds, cut), before)
        site = split.site(self._demand)
        loads = downlink_loads(site, self._inbound)
        policy = self._planning.drop_policy
        if policy == "none":
            passing = np.ones(len(split.number))
            table = self._predicted(site, passing)
            worth = float(table.utility.sum())
            return _Attempt(split=split, site=site, passing=passing, worth=worth, table=table)
        if policy in CLASS_RULES:
            passing = passing_by_class(policy, loads, site.downlinks, split, self._limit)
            problem = allocation_problem(site, loads, split, self._one_limit(site))
            return _Attempt(split=split, site=site, passing=passing, worth=problem.worth(passing))
        if policy == "optimized":
            problem = allocation_problem(site, loads, split, self._one_limit(site))
            allocation = solve(problem, self._solver)
            return _Attempt(
                split=split,
                site=site,
                passing=allocation.passing,
                worth=allocation.worth,
                allocation=allocation,
            )
        return self._attempt_deadlines(split, site, loads)

    def _attempt_deadlines(self, split: FlowSplit, site: Site, loads: DownlinkLoads) -> _Attempt:
        classes = int(site.flows.priority.max(initial=0)) + 1
        whole = np.ones((len(site.downlinks.hops), classes))
        reserved = reserved_load(site, loads, split, classes)

        @lru_cache(maxsize=2)
        def open_flows(closed: bytes) -> AllocationProblem:
            without = np.frombuffer(closed, dtype=bool)
            return allocation_problem(site, loads, split, whole, without)

        def evaluate(limit: Floats, closed: Booleans) -> tuple[Allocation, PredictionTable]:
            problem = replace(open_flows(closed.tobytes()), limit=np.maximum(limit - reserved, 0.0))
            allocation = solve(problem, self._solver)
            allocation = replace(allocation, passing=np.where(closed, 0.0, allocation.passing))
            return allocation, self._predicted(site, allocation.passing)

        found = keep_deadlines(site, loads, split.kept, self._planning.rho_tolerance, evaluate)
        return _Attempt(
            split=split,
            site=site,
            passing=found.allocation.passing,
            worth=found.table.timely_utility,
            allocation=found.allocation,
            table=found.table,
        )

    def _without_moves(
        self,
        made: _Attempt,
        ranking: Ranking,
        kinds: Kinds,
        cut: Integers,
        before: Integers,
    ) -> _Attempt | None:
        """The plan on the previous flows, if it moves fewer and is worth as much."""
        moves = moved_subscriptions(made.split, before)
        if moves == 0:
            return None
        staying = keep_cut(self._demand, kinds, cut, before, self._planning.flows_per_subscriber)
        if staying is None:
            return None
        try:
            tried = self._attempt(ranking, kinds, staying, before)
        except PlanningError:
            return None
        if moved_subscriptions(tried.split, before) >= moves:
            return None
        if tried.worth < made.worth * (1 - EQUAL):
            return None
        # and by the whole model, buffers included
        tables = [a.table or self._predicted(a.site, a.passing) for a in (tried, made)]
        worths = [float(table.utility.sum()) for table in tables]
        return replace(tried, table=tables[0]) if worths[0] >= worths[1] * (1 - EQUAL) else None

    def _predicted(self, site: Site, passing: Floats) -> PredictionTable:
        drop_rate = np.clip(1.0 - passing, 0.0, 1.0)
        return predict_site(
            replace(site, flows=replace(site.flows, drop_rate=drop_rate)), self._inbound
        )


def _lone_split(site: Site, kinds: Kinds) -> FlowSplit:
    """A flow for every subscription, of its kind."""
    return FlowSplit(
        subscription_flow=site.subscription_flow,
        subscriber=site.flows.subscriber,
        number=site.flows.number,
        priority=site.flows.priority,
        kept=~kinds.droppable,
        excessive=np.zeros(len(site.subscription_flow), dtype=bool),
    )

"""Planning of a scenario: rank, divide into flows, assign classes and drop rates, predict."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import get_args

import numpy as np

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.deadlines import meet_deadlines, unmet_deadlines
from firedex.planning.drop_rates import (
    CLASS_RULES,
    allocation_problem,
    passing_by_class,
    reserved_load,
    solve,
)
from firedex.planning.errors import PlanningError
from firedex.planning.flow_split import FlowSplit, Kinds, equal_cut, make_flows, sort_into_kinds
from firedex.planning.moves import (
    Previous,
    keep_previous_split,
    moved_subscriptions,
    previous_flow_numbers,
    renumber,
)
from firedex.planning.optimal_split import optimal_cut
from firedex.planning.ranking import Ranking, rank
from firedex.planning.reservations import overcommitted_hops, reserve
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
from firedex_models.broker import InboundTraffic, predict_uplinks
from firedex_models.columns import Booleans, Floats, Integers
from firedex_models.downlink_loads import DownlinkLoads, downlink_loads, loads_on_separate_flows
from firedex_models.site import Demand, Site, compile_demand

__all__ = ["Plan", "PolicyOutcome", "compare_policies", "plan_scenario"]

RELATIVE_ROUNDING = 1e-9
"""Utilities with a smaller relative difference are equal."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan: the settings, the prediction and the report."""

    scenario: Scenario
    planning: Planning
    table: PredictionTable
    report: PlanReport

    @cached_property
    def assignment(self) -> tuple[Assignment, ...]:
        """The assignment of every subscription, in the scenario's order."""
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
    def planned_scenario(self) -> Scenario:
        """The scenario with this assignment and these planning settings."""
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
    """Return a plan by the scenario's policies, or by the given policies.

    ``previous``: the active plan; moves of subscriptions are counted against it, and avoided if
    they gain no utility. The default is the scenario's assignment.
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
    return _Planner(demand, predict_uplinks(scenario), planning, solver).plan(previous)


@dataclass(frozen=True, kw_only=True)
class _PlannedCut:
    """One division of subscriptions into flows, with its drop rates."""

    split: FlowSplit
    site: Site
    passing: Floats
    utility: float
    allocation: Allocation | None = None
    table: PredictionTable | None = None


class _Planner:
    def __init__(
        self, demand: Demand, inbound: InboundTraffic, planning: Planning, solver: Solver
    ) -> None:
        self._demand, self._inbound = demand, inbound
        self._planning, self._solver = planning, solver
        self._limit = 1.0 - planning.rho_tolerance

    def plan(self, previous: Previous | None) -> Plan:
        demand, planning = self._demand, self._planning
        previous_numbers = previous_flow_numbers(demand, previous)
        ranking = rank(demand, self._inbound, planning.priority_policy, planning.seed)
        reservations = reserve(demand, self._inbound, planning, ranking)
        kinds = sort_into_kinds(demand, reservations, ranking, planning.flows_per_subscriber)
        cut, split_gap = self._find_cut(ranking, kinds)
        attempt_result = self._plan_cut(ranking, kinds, cut, previous_numbers)
        unmoved = None
        if previous:
            unmoved = self._plan_on_previous_flows(
                attempt_result, ranking, kinds, cut, previous_numbers
            )
        final = unmoved or attempt_result
        table = final.table or self._predict(final.site, final.passing)
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
                moved_subscriptions=moved_subscriptions(final.split, previous_numbers)
                if previous
                else None,
                kept_previous_flows=unmoved is not None,
                overcommitted=(
                    *reservations.overcommitted,
                    *overcommitted_hops(
                        demand, self._reserved_loads(final.split, excess=True), self._limit
                    ),
                ),
                undropped_subscribers=tuple(subscribers[row].id for row in kinds.undropped),
                unmet_deadlines=unmet_deadlines(table),
            ),
        )

    def _find_cut(self, ranking: Ranking, kinds: Kinds) -> tuple[Integers, float | None]:
        equal = equal_cut(kinds)
        if self._planning.split == "equal":
            return equal, None
        site, loads = loads_on_separate_flows(self._demand, self._inbound)
        limit = self._single_limit(site)
        separate_flows = _separate_flows(site, kinds)
        separate_problem = allocation_problem(site, loads, separate_flows, limit)
        # the flows that must not be dropped are the same for every cut
        reserved = self._reserved_loads(self._flows(ranking, kinds, equal))
        separate_problem = replace(
            separate_problem, limit=np.maximum(limit - reserved[:, None], 0.0)
        )

        def attempt(cut: Integers) -> Allocation:
            split = self._flows(ranking, kinds, cut)
            attempt_result = split.site(self._demand)
            loads_of_cut = downlink_loads(attempt_result, self._inbound)
            return solve(
                allocation_problem(attempt_result, loads_of_cut, split, limit), self._solver
            )

        separate = solve(separate_problem, self._solver)
        result = optimal_cut(self._demand, kinds, equal, separate, loads.ceiling, attempt)
        gap_is_valid = self._planning.drop_policy == "optimized"
        return result.cut, result.gap if gap_is_valid else None

    def _reserved_loads(self, split: FlowSplit, *, excess: bool = False) -> Floats:
        """Return the reserved load of every hop; with ``excess``, all load never dropped."""
        if not split.undroppable.any():
            return np.zeros(len(self._demand.downlinks.hops))
        site = split.site(self._demand)
        loads = downlink_loads(site, self._inbound)
        return reserved_load(site, loads, split, 1, excess=excess)[:, 0]

    def _single_limit(self, site: Site) -> Floats:
        return np.full((len(site.downlinks.hops), 1), self._limit)

    def _flows(self, ranking: Ranking, kinds: Kinds, cut: Integers) -> FlowSplit:
        return make_flows(self._demand, ranking, kinds, cut, self._planning)

    def _plan_cut(
        self, ranking: Ranking, kinds: Kinds, cut: Integers, previous_numbers: Integers
    ) -> _PlannedCut:
        split = renumber(self._flows(ranking, kinds, cut), previous_numbers)
        site = split.site(self._demand)
        loads = downlink_loads(site, self._inbound)
        policy = self._planning.drop_policy
        if policy == "none":
            passing = np.ones(len(split.number))
            table = self._predict(site, passing)
            utility = float(table.utility.sum())
            return _PlannedCut(
                split=split, site=site, passing=passing, utility=utility, table=table
            )
        if policy in CLASS_RULES:
            passing = passing_by_class(policy, loads, site.downlinks, split, self._limit)
            problem = allocation_problem(site, loads, split, self._single_limit(site))
            return _PlannedCut(
                split=split, site=site, passing=passing, utility=problem.utility_at(passing)
            )
        if policy == "optimized":
            problem = allocation_problem(site, loads, split, self._single_limit(site))
            allocation = solve(problem, self._solver)
            return _PlannedCut(
                split=split,
                site=site,
                passing=allocation.passing,
                utility=allocation.utility,
                allocation=allocation,
            )
        return self._plan_with_deadlines(split, site, loads)

    def _plan_with_deadlines(
        self, split: FlowSplit, site: Site, loads: DownlinkLoads
    ) -> _PlannedCut:
        classes = int(site.flows.priority.max(initial=0)) + 1
        full_limit = np.ones((len(site.downlinks.hops), classes))
        reserved = reserved_load(site, loads, split, classes)

        @lru_cache(maxsize=2)
        def problem_without(closed: bytes) -> AllocationProblem:
            closed_flows = np.frombuffer(closed, dtype=bool)
            return allocation_problem(site, loads, split, full_limit, closed_flows)

        def evaluate(limit: Floats, closed: Booleans) -> tuple[Allocation, PredictionTable]:
            problem = replace(
                problem_without(closed.tobytes()), limit=np.maximum(limit - reserved, 0.0)
            )
            allocation = solve(problem, self._solver)
            allocation = replace(allocation, passing=np.where(closed, 0.0, allocation.passing))
            return allocation, self._predict(site, allocation.passing)

        result = meet_deadlines(
            site, loads, split.undroppable, self._planning.rho_tolerance, evaluate
        )
        return _PlannedCut(
            split=split,
            site=site,
            passing=result.allocation.passing,
            utility=result.table.timely_utility,
            allocation=result.allocation,
            table=result.table,
        )

    def _plan_on_previous_flows(
        self,
        attempt_result: _PlannedCut,
        ranking: Ranking,
        kinds: Kinds,
        cut: Integers,
        previous_numbers: Integers,
    ) -> _PlannedCut | None:
        """Return the plan on the previous flows if it has fewer moves and the same utility."""
        moves = moved_subscriptions(attempt_result.split, previous_numbers)
        if moves == 0:
            return None
        previous_cut = keep_previous_split(
            self._demand, kinds, cut, previous_numbers, self._planning.flows_per_subscriber
        )
        if previous_cut is None:
            return None
        try:
            unmoved_result = self._plan_cut(ranking, kinds, previous_cut, previous_numbers)
        except PlanningError:
            return None
        if moved_subscriptions(unmoved_result.split, previous_numbers) >= moves:
            return None
        if unmoved_result.utility < attempt_result.utility * (1 - RELATIVE_ROUNDING):
            return None
        # the prediction includes the effects of buffers
        tables = [
            a.table or self._predict(a.site, a.passing) for a in (unmoved_result, attempt_result)
        ]
        utilities = [float(table.utility.sum()) for table in tables]
        return (
            replace(unmoved_result, table=tables[0])
            if utilities[0] >= utilities[1] * (1 - RELATIVE_ROUNDING)
            else None
        )

    def _predict(self, site: Site, passing: Floats) -> PredictionTable:
        drop_rate = np.clip(1.0 - passing, 0.0, 1.0)
        return predict_site(
            replace(site, flows=replace(site.flows, drop_rate=drop_rate)), self._inbound
        )


def _separate_flows(site: Site, kinds: Kinds) -> FlowSplit:
    """Return a separate flow for every subscription."""
    return FlowSplit(
        subscription_flow=site.subscription_flow,
        subscriber=site.flows.subscriber,
        number=site.flows.number,
        priority=site.flows.priority,
        undroppable=~kinds.droppable,
        excessive=np.zeros(len(site.subscription_flow), dtype=bool),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """The result of a pair of policies: a plan, or the reason why there is none."""

    priority_policy: PriorityPolicy
    drop_policy: DropPolicy
    plan: Plan | None
    problem: str | None


def compare_policies(
    scenario: Scenario,
    *,
    priority_policy: PriorityPolicy | None = None,
    ranking: RankingKind | None = None,
    split: Split | None = None,
    seed: int | None = None,
    solver: Solver = "kkt",
    report: Callable[[str], None] = lambda _: None,
) -> list[PolicyOutcome]:
    """Plan with every priority policy without drop rates, and with every drop policy."""
    selected = priority_policy or scenario.planning.priority_policy
    pairs: list[tuple[PriorityPolicy, DropPolicy]] = [
        (policy, "none") for policy in get_args(PriorityPolicy) if policy != selected
    ]
    pairs += [(selected, policy) for policy in get_args(DropPolicy)]
    outcomes = []
    for priorities, drops in pairs:
        report(f"{priorities}, {drops}")
        plan, problem = None, None
        try:
            plan = plan_scenario(
                scenario,
                priority_policy=priorities,
                drop_policy=drops,
                ranking=ranking,
                split=split,
                seed=seed,
                solver=solver,
            )
        except PlanningError as error:
            problem = str(error)
        outcomes.append(
            PolicyOutcome(priority_policy=priorities, drop_policy=drops, plan=plan, problem=problem)
        )
    return outcomes

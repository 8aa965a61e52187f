"""The scenario of Table 2 of the paper: utilities of policies, and effects of deadlines."""

from typing import get_args

import numpy as np
import pytest

from firedex.planning import Plan, compare_policies, plan_scenario
from firedex.scenario.table_2 import Table2
from firedex.wire import DropPolicy, PriorityPolicy, Scenario
from firedex_models import predict

pytestmark = pytest.mark.slow

SEEDS = range(2, 8)


def utility_rate(plan: Plan) -> float:
    return plan.table.achieved_utility_rate


def plan_with(scenario: Scenario, policy: PriorityPolicy, drops: DropPolicy = "none") -> Plan:
    return plan_scenario(scenario, priority_policy=policy, drop_policy=drops)


@pytest.mark.parametrize("seed", SEEDS)
def test_table_2_scenario_has_the_parameters_of_the_paper(seed: int) -> None:
    scenario = Table2(seed=seed).scenario()
    assert [len(s.subscriptions) for s in scenario.subscribers] == [112] * 10
    assert len(scenario.topics) == 200
    assert len({topic.name for topic in scenario.topics}) == 200
    rates = [p.rate_per_second for client in scenario.publishers for p in client.publications]
    assert len(rates) == 2000
    assert 3 <= min(rates) < max(rates) <= 7
    weights = [s.utility.weight for client in scenario.subscribers for s in client.subscriptions]
    assert 0.01 <= min(weights) < max(weights) <= 4
    offered = predict(plan_with(scenario, "none").planned_scenario).switches()[1].utilization
    assert 1.7 <= offered <= 2.05


@pytest.mark.parametrize("seed", SEEDS)
def test_priority_policies_rank_by_the_information_they_use(seed: int) -> None:
    scenario = Table2(seed=seed).scenario()
    rates = {
        policy: utility_rate(plan_with(scenario, policy)) for policy in get_args(PriorityPolicy)
    }
    ranked = sorted(rates, key=lambda policy: -rates[policy])
    assert ranked == ["bandwidth-adjusted", "information-only", "none", "random"]


@pytest.mark.parametrize("seed", SEEDS)
def test_priorities_do_not_increase_mean_rate_per_subscription(seed: int) -> None:
    scenario = Table2(seed=seed).scenario()
    mean_rates = {
        policy: plan_with(scenario, policy).table.achieved_utility_rate_per_subscription
        for policy in ("bandwidth-adjusted", "information-only", "none")
    }
    assert mean_rates["none"] > mean_rates["bandwidth-adjusted"] * 0.99
    assert mean_rates["bandwidth-adjusted"] > mean_rates["information-only"]


@pytest.mark.parametrize("seed", SEEDS)
def test_optimized_policy_has_the_highest_utility(seed: int) -> None:
    outcomes = {
        outcome.drop_policy: outcome.plan
        for outcome in compare_policies(Table2(seed=seed).scenario())
        if outcome.priority_policy == "bandwidth-adjusted"
    }
    plans = {name: plan for name, plan in outcomes.items() if plan is not None}
    assert set(plans) == set(get_args(DropPolicy))
    assert plans["optimized"].report.utility_gap is not None
    assert plans["optimized"].report.utility_gap < 1e-9
    for policy in ("flat", "linear", "exponential"):
        assert utility_rate(plans[policy]) < utility_rate(plans["optimized"])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_deadline_aware_policy_gains_timely_utility(seed: int, shared: bool) -> None:
    scenario = Table2(seed=seed, deadline_seconds=0.5, shared=shared).scenario()
    aware = plan_scenario(scenario, drop_policy="deadline-aware")
    optimized = plan_scenario(scenario, drop_policy="optimized")
    gain = aware.table.timely_utility / optimized.table.timely_utility
    assert gain >= 1.02 or not shared
    assert gain >= 1.01
    prediction = predict(aware.planned_scenario)
    missed = {(d.subscriber, d.filter) for d in aware.report.unmet_deadlines}
    for row in prediction.rows():
        assert row.deadline_met == ((row.subscriber, row.filter) not in missed)
        if row.deadline_met:
            assert row.delay_p95_seconds is not None
            assert row.delay_p95_seconds <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("deadline", [0.002, 0.01, 0.05])
def test_tight_deadlines_are_met_or_reported_with_their_delay(deadline: float) -> None:
    scenario = Table2(deadline_seconds=deadline).scenario()
    aware = plan_scenario(scenario, drop_policy="deadline-aware")
    optimized = plan_scenario(scenario, drop_policy="optimized")
    assert aware.table.timely_utility >= optimized.table.timely_utility * (1 - 1e-9)
    late = {(d.subscriber, d.filter): d for d in aware.report.unmet_deadlines}
    assert late
    for row in predict(aware.planned_scenario).rows():
        missed = late.get((row.subscriber, row.filter))
        assert row.deadline_met == (missed is None)
        if missed is None:
            assert row.delay_p95_seconds is not None
            assert row.delay_p95_seconds <= deadline * (1 + 1e-9)
        elif row.delay_p95_seconds is not None:
            assert missed.delay_seconds == pytest.approx(row.delay_p95_seconds)
            assert missed.late_by_seconds == pytest.approx(row.delay_p95_seconds - deadline)
        else:
            assert missed.delay_seconds is None
            assert row.success_rate == 0


def test_global_ranking_has_similar_utility_and_uses_all_classes() -> None:
    scenario = Table2().scenario()
    own_plan = plan_scenario(scenario, ranking="per-subscriber", drop_policy="none")
    global_plan = plan_scenario(scenario, ranking="global", drop_policy="none")
    assert utility_rate(global_plan) == pytest.approx(utility_rate(own_plan), rel=0.05)
    sizes = np.bincount(global_plan.table.priority, minlength=9)
    assert len(sizes) == 9
    assert sizes.min() > 0


def test_optimal_split_has_higher_utility_than_equal_split() -> None:
    scenario = Table2().scenario()
    equal = plan_scenario(scenario, drop_policy="optimized")
    optimal = plan_scenario(scenario, drop_policy="optimized", split="optimal")
    assert utility_rate(optimal) > utility_rate(equal)
    assert optimal.report.split_gap is not None
    assert optimal.report.split_gap < 0.01

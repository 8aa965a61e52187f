"""The paper's own scenario (Table 2): which policies are worth more, and what deadlines add."""

from typing import get_args

import numpy as np
import pytest

from firedex.planning import Plan, compare_policies, plan_scenario
from firedex.table_2 import Table2
from firedex.wire import DropPolicy, PriorityPolicy, Scenario
from firedex_models import predict

SEEDS = range(2, 8)


def rate(plan: Plan) -> float:
    return plan.table.achieved_utility_rate


def plan_by(scenario: Scenario, policy: PriorityPolicy, drops: DropPolicy = "none") -> Plan:
    return plan_scenario(scenario, priority_policy=policy, drop_policy=drops)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_drawn_as_the_paper_says(seed: int) -> None:
    scenario = Table2(seed=seed).scenario()
    assert [len(s.subscriptions) for s in scenario.subscribers] == [112] * 10
    assert len(scenario.topics) == 200
    assert len({topic.name for topic in scenario.topics}) == 200
    rates = [p.rate_per_second for who in scenario.publishers for p in who.publications]
    assert len(rates) == 2000
    assert 3 <= min(rates) < max(rates) <= 7
    weights = [s.utility.weight for who in scenario.subscribers for s in who.subscriptions]
    assert 0.01 <= min(weights) < max(weights) <= 4
    offered = predict(plan_by(scenario, "none").planned).switches()[1].utilization
    assert 1.7 <= offered <= 2.05


@pytest.mark.parametrize("seed", SEEDS)
def test_priorities_without_drop_rates_are_worth_what_they_know(seed: int) -> None:
    scenario = Table2(seed=seed).scenario()
    rates = {policy: rate(plan_by(scenario, policy)) for policy in get_args(PriorityPolicy)}
    ranked = sorted(rates, key=lambda policy: -rates[policy])
    assert ranked == ["bandwidth-adjusted", "information-only", "none", "random"]


@pytest.mark.parametrize("seed", SEEDS)
def test_by_the_papers_averaging_priorities_gain_nothing(seed: int) -> None:
    scenario = Table2(seed=seed).scenario()
    by_mean = {
        policy: plan_by(scenario, policy).table.achieved_utility_rate_per_subscription
        for policy in ("bandwidth-adjusted", "information-only", "none")
    }
    assert by_mean["none"] > by_mean["bandwidth-adjusted"] * 0.99
    assert by_mean["bandwidth-adjusted"] > by_mean["information-only"]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_drop_policy_at_the_same_load_beats_the_optimized(seed: int) -> None:
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
        assert rate(plans[policy]) < rate(plans["optimized"])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_deadlines_of_half_a_second_are_worth_two_percent(seed: int, shared: bool) -> None:
    scenario = Table2(seed=seed, deadline_seconds=0.5, shared=shared).scenario()
    aware = plan_scenario(scenario, drop_policy="deadline-aware")
    optimized = plan_scenario(scenario, drop_policy="optimized")
    gained = aware.table.timely_utility / optimized.table.timely_utility
    assert gained >= 1.02 or not shared
    assert gained >= 1.01
    again = predict(aware.planned)
    missed = {(d.subscriber, d.filter) for d in aware.report.unmet_deadlines}
    for row in again.rows():
        assert row.deadline_met == ((row.subscriber, row.filter) not in missed)
        if row.deadline_met:
            assert row.delay_p95_seconds is not None
            assert row.delay_p95_seconds <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("deadline", [0.002, 0.01, 0.05])
def test_tight_deadlines_are_met_or_named_with_how_late(deadline: float) -> None:
    scenario = Table2(deadline_seconds=deadline).scenario()
    aware = plan_scenario(scenario, drop_policy="deadline-aware")
    optimized = plan_scenario(scenario, drop_policy="optimized")
    assert aware.table.timely_utility >= optimized.table.timely_utility * (1 - 1e-9)
    late = {(d.subscriber, d.filter): d for d in aware.report.unmet_deadlines}
    assert late
    for row in predict(aware.planned).rows():
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


def test_a_global_ranking_is_another_and_as_valid() -> None:
    scenario = Table2().scenario()
    own = plan_scenario(scenario, ranking="per-subscriber", drop_policy="none")
    everybody = plan_scenario(scenario, ranking="global", drop_policy="none")
    assert rate(everybody) == pytest.approx(rate(own), rel=0.05)
    sizes = np.bincount(everybody.table.priority, minlength=9)
    assert len(sizes) == 9
    assert sizes.min() > 0


def test_an_optimal_split_gains_over_an_equal_one() -> None:
    scenario = Table2().scenario()
    equal = plan_scenario(scenario, drop_policy="optimized")
    optimal = plan_scenario(scenario, drop_policy="optimized", split="optimal")
    assert rate(optimal) > rate(equal)
    assert optimal.report.split_gap is not None
    assert optimal.report.split_gap < 0.01

"""Flows, classes and drop rates of plans on a small site."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.planning import PlanningError, plan_scenario
from firedex.planning.ranking import part_number
from firedex.scenario import read_scenario
from firedex.wire import Assignment, DropPolicy, Scenario, from_plain, to_json
from firedex_models import predict
from tests.support.small_site import Document, publisher_entry, site, subscriber_entry, topic

TOPICS = [f"t/{n}" for n in range(6)]


def site_with_weights(bandwidth: float = 1e4, **planning: Any) -> Document:
    """Return six topics with weights 6, 5, … 1 and 10 events/s each; 48 kbit/s in total."""
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[publisher_entry("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscriber_entry("command", *TOPICS)],
        planning={"rho_tolerance": 0.1, **planning},
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        subscription["utility"]["weight"] = float(len(TOPICS) - rank)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    return document


def plan_by_filter(document: Document, **policies: Any) -> dict[str, Assignment]:
    """Return the entries of the plan by filter."""
    plan = plan_scenario(from_plain(Scenario, document), **policies)
    return {entry.filter: entry for entry in plan.assignment}


def equal_parts(count: int, parts: int) -> list[int]:
    """Return the part of each item of a list."""
    arguments = np.full(count, count), np.full(count, parts)
    return list(part_number(np.arange(count), *arguments).tolist())


def highest_load(document: Document, **policies: Any) -> float:
    plan = plan_scenario(from_plain(Scenario, document), **policies)
    return max(s.utilization for s in predict(plan.planned_scenario).switches())


@pytest.mark.parametrize(
    ("count", "parts", "expected"),
    [
        (0, 3, []),
        (1, 3, [0]),
        (3, 3, [0, 1, 2]),
        (4, 3, [0, 0, 1, 2]),
        (5, 3, [0, 0, 1, 1, 2]),
        (6, 3, [0, 0, 1, 1, 2, 2]),
        (4, 1, [0, 0, 0, 0]),
    ],
)
def test_first_parts_are_the_largest(count: int, parts: int, expected: list[int]) -> None:
    assert equal_parts(count, parts) == expected


@given(count=st.integers(0, 200), parts=st.integers(1, 64))
def test_parts_are_ordered_and_differ_by_one_at_most(count: int, parts: int) -> None:
    where = equal_parts(count, parts)
    sizes = [where.count(part) for part in range(min(parts, count))]
    assert where == sorted(where)
    assert sum(sizes) == count
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_highest_utility_gets_the_highest_class() -> None:
    plan = plan_by_filter(
        site_with_weights(), priority_policy="information-only", drop_policy="none"
    )
    assert [plan[name].priority for name in TOPICS] == [0, 1, 2, 3, 4, 5]
    assert [plan[name].flow for name in TOPICS] == [0, 1, 2, 3, 4, 5]


def test_bandwidth_adjusted_policy_ranks_by_utility_per_bandwidth() -> None:
    document = site_with_weights()
    document["publishers"][0]["publications"][0]["rate_per_second"] = 1000.0
    by_utility = plan_by_filter(document, priority_policy="information-only", drop_policy="none")
    by_bandwidth = plan_by_filter(
        document, priority_policy="bandwidth-adjusted", drop_policy="none"
    )
    assert by_utility["t/0"].priority == 0
    assert by_bandwidth["t/0"].priority == 5
    assert by_bandwidth["t/1"].priority == 0


def test_forwarded_events_count_as_bandwidth() -> None:
    document = site_with_weights()
    document["publishers"][0]["publications"] = document["publishers"][0]["publications"][1:]
    forwarded = {"from_broker": "b2", "topic": "t/0", "rate_per_second": 1000.0}
    document["network"]["broker"]["forwarded"] = [forwarded]
    assert plan_by_filter(document, drop_policy="none")["t/0"].priority == 5


def test_priority_policy_none_uses_one_class() -> None:
    plan = plan_by_filter(site_with_weights(), priority_policy="none", drop_policy="none")
    assert {entry.priority for entry in plan.values()} == {0}


@pytest.mark.parametrize(
    ("flows", "priorities", "offered", "used_flows", "used_classes"),
    [(8, 8, 8, 6, 6), (3, 8, 8, 3, 3), (8, 2, 8, 6, 2), (8, 8, 4, 6, 4), (1, 8, 8, 1, 1)],
)
def test_numbers_of_flows_and_classes_respect_their_limits(
    flows: int, priorities: int, offered: int, used_flows: int, used_classes: int
) -> None:
    document = site_with_weights(flows_per_subscriber=flows, priorities=priorities)
    document["network"]["switches"][1]["priorities"] = offered
    plan = plan_by_filter(document, drop_policy="none").values()
    assert {entry.flow for entry in plan} == set(range(used_flows))
    assert {entry.priority for entry in plan} == set(range(used_classes))


def test_flows_are_numbered_for_each_subscriber() -> None:
    document = site_with_weights()
    document["subscribers"].append(subscriber_entry("crew", "t/0", "t/1"))
    document["subscribers"].append({"id": "idle", "switch": "s1"})
    plan = plan_scenario(from_plain(Scenario, document), drop_policy="none")
    flows = [(e.subscriber, e.flow) for e in plan.assignment]
    assert sorted(flows) == [("command", n) for n in range(6)] + [("crew", 0), ("crew", 1)]


def test_flat_policy_has_equal_drop_rates_in_all_classes() -> None:
    plan = plan_by_filter(site_with_weights(bandwidth=40_000.0), drop_policy="flat")
    # 48 kbit/s are reduced to 36 kbit/s: a quarter is dropped.
    assert [plan[name].drop_rate for name in TOPICS] == pytest.approx([0.25] * 6)


def test_linear_policy_drops_in_proportion_to_the_class() -> None:
    plan = plan_by_filter(site_with_weights(bandwidth=40_000.0), drop_policy="linear")
    step = 6 * 0.25 / (0 + 1 + 2 + 3 + 4 + 5)
    assert [plan[name].drop_rate for name in TOPICS] == pytest.approx([k * step for k in range(6)])


def test_linear_policy_limits_drop_rates_to_1() -> None:
    plan = plan_by_filter(site_with_weights(bandwidth=16_000.0), drop_policy="linear")
    drops = [plan[name].drop_rate for name in TOPICS]
    step = drops[1]
    assert drops == pytest.approx([min(k * step, 1.0) for k in range(6)])
    assert drops[-1] == 1.0


def test_exponential_policy_has_constant_ratio_between_classes() -> None:
    plan = plan_by_filter(site_with_weights(bandwidth=40_000.0), drop_policy="exponential")
    passing = [1 - plan[name].drop_rate for name in TOPICS]
    assert passing[0] == 1.0
    ratios = [low / high for high, low in pairwise(passing)]
    assert ratios == pytest.approx([ratios[0]] * 5)
    assert sum(passing) == pytest.approx(4.5)


@pytest.mark.parametrize("policy", ["flat", "linear", "exponential", "optimized"])
@pytest.mark.parametrize("bandwidth", [16_000.0, 40_000.0, 48_000.0])
def test_drop_policy_reduces_load_to_the_limit(policy: str, bandwidth: float) -> None:
    load = highest_load(
        site_with_weights(bandwidth=bandwidth, rho_tolerance=0.2), drop_policy=policy
    )
    assert load == pytest.approx(0.8, abs=1e-6)
    assert load <= 0.8 + 1e-9


@pytest.mark.parametrize("policy", get_args(DropPolicy))
def test_drop_rates_are_0_without_overload(policy: str) -> None:
    plan = plan_by_filter(site_with_weights(bandwidth=60_000.0), drop_policy=policy)
    assert {entry.drop_rate for entry in plan.values()} == {0.0}


def test_drop_policy_none_drops_nothing_in_overload() -> None:
    document = site_with_weights(bandwidth=10_000.0)
    assert {entry.drop_rate for entry in plan_by_filter(document, drop_policy="none").values()} == {
        0.0
    }
    assert highest_load(document, drop_policy="none") == pytest.approx(4.8)


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_events_are_not_dropped_and_have_separate_flows(qos: int) -> None:
    document = site_with_weights(bandwidth=40_000.0, flows_per_subscriber=3)
    document["subscribers"][0]["subscriptions"][5]["qos"] = qos
    plan = plan_by_filter(document, drop_policy="flat")
    assert [name for name in TOPICS if plan[name].flow == plan["t/5"].flow] == ["t/5"]
    assert [plan[name].drop_rate for name in TOPICS] == pytest.approx([0.3] * 5 + [0.0])
    assert highest_load(document, drop_policy="flat") == pytest.approx(0.9)


def test_policies_of_the_scenario_are_the_default() -> None:
    document = site_with_weights(bandwidth=40_000.0, drop_policy="flat", priority_policy="none")
    assert plan_by_filter(document) == plan_by_filter(
        document, drop_policy="flat", priority_policy="none"
    )
    assert plan_by_filter(document) != plan_by_filter(document, priority_policy="information-only")


def test_planning_is_deterministic() -> None:
    scenario = read_scenario("builtin:high-rise")
    first, second = (plan_scenario(scenario) for _ in range(2))
    assert to_json(first.planned_scenario) == to_json(second.planned_scenario)
    assert first.report == second.report


def test_equal_utilities_are_ranked_by_name() -> None:
    document = site_with_weights()
    for subscription in document["subscribers"][0]["subscriptions"]:
        subscription["utility"]["weight"] = 1.0
    expected_plan = plan_by_filter(document, drop_policy="none")
    document["subscribers"][0]["subscriptions"].reverse()
    assert plan_by_filter(document, drop_policy="none") == expected_plan


def test_plan_changes_only_the_assignment_of_the_scenario() -> None:
    scenario = from_plain(Scenario, site_with_weights())
    planned = plan_scenario(scenario).planned_scenario
    assert replace(planned, assignment=None) == scenario
    assert plan_scenario(planned).planned_scenario == planned


def test_planned_scenario_contains_the_policies_used() -> None:
    scenario = from_plain(Scenario, site_with_weights())
    planned = plan_scenario(scenario, drop_policy="flat", ranking="global").planned_scenario
    assert planned.planning == replace(scenario.planning, drop_policy="flat", ranking="global")
    assert plan_scenario(planned).planned_scenario == planned


@pytest.mark.parametrize("policy", ["linear", "exponential"])
def test_unreachable_load_limit_raises_error_with_the_switch(
    policy: DropPolicy,
) -> None:
    # Neither policy drops events of class 0, which is the only class here.
    document = site_with_weights(bandwidth=10_000.0, priorities=1)
    with pytest.raises(PlanningError, match="s1"):
        plan_scenario(from_plain(Scenario, document), drop_policy=policy)

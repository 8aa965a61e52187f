"""Plans: which flow, which class, which drop rate."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_site import Document, published, site, subscribed, topic

from firedex.planning import PlanningError, plan_scenario
from firedex.planning.parts import part_of
from firedex.scenario_file import read_scenario
from firedex.wire import Assignment, DropPolicy, Scenario, from_plain, to_json
from firedex_models import predict

TOPICS = [f"t/{n}" for n in range(6)]


def wanted(bandwidth: float = 1e4, **planning: Any) -> Document:
    """Six topics of 10 events a second, worth 6, 5, … 1; together 48 kbit/s."""
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[published("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscribed("command", *TOPICS)],
        planning={"rho_tolerance": 0.1, **planning},
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        subscription["utility"]["weight"] = float(len(TOPICS) - rank)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    return document


def plan_of(document: Document, **policies: Any) -> dict[str, Assignment]:
    """The plan's entries by filter."""
    plan = plan_scenario(from_plain(Scenario, document), **policies)
    return {entry.filter: entry for entry in plan.assignment}


def equal_parts(count: int, parts: int) -> list[int]:
    """The parts of a whole list."""
    everywhere = np.full(count, count), np.full(count, parts)
    return part_of(np.arange(count), *everywhere).tolist()


def busiest(document: Document, **policies: Any) -> float:
    plan = plan_scenario(from_plain(Scenario, document), **policies)
    return max(s.utilization for s in predict(plan.planned).switches())


@pytest.mark.parametrize(
    ("count", "parts", "where"),
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
def test_equal_parts_favour_the_first(count: int, parts: int, where: list[int]) -> None:
    assert equal_parts(count, parts) == where


@given(count=st.integers(0, 200), parts=st.integers(1, 64))
def test_equal_parts_are_ordered_all_used_and_never_smaller_before_larger(
    count: int, parts: int
) -> None:
    where = equal_parts(count, parts)
    sizes = [where.count(part) for part in range(min(parts, count))]
    assert where == sorted(where)
    assert sum(sizes) == count
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_the_worthiest_goes_into_the_highest_class() -> None:
    plan = plan_of(wanted(), priority_policy="information-only", drop_policy="none")
    assert [plan[name].priority for name in TOPICS] == [0, 1, 2, 3, 4, 5]
    assert [plan[name].flow for name in TOPICS] == [0, 1, 2, 3, 4, 5]


def test_worth_may_be_counted_per_bandwidth() -> None:
    document = wanted()
    document["publishers"][0]["publications"][0]["rate_per_second"] = 1000.0
    by_worth = plan_of(document, priority_policy="information-only", drop_policy="none")
    by_bandwidth = plan_of(document, priority_policy="bandwidth-adjusted", drop_policy="none")
    assert by_worth["t/0"].priority == 0
    assert by_bandwidth["t/0"].priority == 5
    assert by_bandwidth["t/1"].priority == 0


def test_forwarded_events_take_bandwidth_as_well() -> None:
    document = wanted()
    document["publishers"][0]["publications"] = document["publishers"][0]["publications"][1:]
    forwarded = {"from_broker": "b2", "topic": "t/0", "rate_per_second": 1000.0}
    document["network"]["broker"]["forwarded"] = [forwarded]
    assert plan_of(document, drop_policy="none")["t/0"].priority == 5


def test_without_a_priority_policy_there_is_one_class() -> None:
    plan = plan_of(wanted(), priority_policy="none", drop_policy="none")
    assert {entry.priority for entry in plan.values()} == {0}


@pytest.mark.parametrize(
    ("flows", "priorities", "offered", "used_flows", "used_classes"),
    [(8, 8, 8, 6, 6), (3, 8, 8, 3, 3), (8, 2, 8, 6, 2), (8, 8, 4, 6, 4), (1, 8, 8, 1, 1)],
)
def test_flows_and_classes_stay_within_their_limits(
    flows: int, priorities: int, offered: int, used_flows: int, used_classes: int
) -> None:
    document = wanted(flows_per_subscriber=flows, priorities=priorities)
    document["network"]["switches"][1]["priorities"] = offered
    plan = plan_of(document, drop_policy="none").values()
    assert {entry.flow for entry in plan} == set(range(used_flows))
    assert {entry.priority for entry in plan} == set(range(used_classes))


def test_flows_are_numbered_for_each_subscriber() -> None:
    document = wanted()
    document["subscribers"].append(subscribed("crew", "t/0", "t/1"))
    document["subscribers"].append({"id": "idle", "switch": "s1"})
    plan = plan_scenario(from_plain(Scenario, document), drop_policy="none")
    flows = [(e.subscriber, e.flow) for e in plan.assignment]
    assert sorted(flows) == [("command", n) for n in range(6)] + [("crew", 0), ("crew", 1)]


def test_flat_drops_the_same_of_every_class() -> None:
    plan = plan_of(wanted(bandwidth=40_000.0), drop_policy="flat")
    # 48 kbit/s must become 36: a quarter goes
    assert [plan[name].drop_rate for name in TOPICS] == pytest.approx([0.25] * 6)


def test_linear_drops_in_proportion_to_the_class() -> None:
    plan = plan_of(wanted(bandwidth=40_000.0), drop_policy="linear")
    step = 6 * 0.25 / (0 + 1 + 2 + 3 + 4 + 5)
    assert [plan[name].drop_rate for name in TOPICS] == pytest.approx([k * step for k in range(6)])


def test_linear_drops_no_more_than_everything() -> None:
    plan = plan_of(wanted(bandwidth=16_000.0), drop_policy="linear")
    drops = [plan[name].drop_rate for name in TOPICS]
    step = drops[1]
    assert drops == pytest.approx([min(k * step, 1.0) for k in range(6)])
    assert drops[-1] == 1.0


def test_exponential_passes_a_constant_share_of_the_class_above() -> None:
    plan = plan_of(wanted(bandwidth=40_000.0), drop_policy="exponential")
    passing = [1 - plan[name].drop_rate for name in TOPICS]
    assert passing[0] == 1.0
    ratios = [low / high for high, low in pairwise(passing)]
    assert ratios == pytest.approx([ratios[0]] * 5)
    assert sum(passing) == pytest.approx(4.5)


@pytest.mark.parametrize("policy", ["flat", "linear", "exponential", "optimized"])
@pytest.mark.parametrize("bandwidth", [16_000.0, 40_000.0, 48_000.0])
def test_the_load_is_brought_to_what_is_tolerated(policy: str, bandwidth: float) -> None:
    load = busiest(wanted(bandwidth=bandwidth, rho_tolerance=0.2), drop_policy=policy)
    assert load == pytest.approx(0.8, abs=1e-6)
    assert load <= 0.8 + 1e-9


@pytest.mark.parametrize("policy", get_args(DropPolicy))
def test_nothing_is_dropped_without_overload(policy: str) -> None:
    plan = plan_of(wanted(bandwidth=60_000.0), drop_policy=policy)
    assert {entry.drop_rate for entry in plan.values()} == {0.0}


def test_a_policy_of_no_drops_drops_nothing_in_overload_either() -> None:
    document = wanted(bandwidth=10_000.0)
    assert {entry.drop_rate for entry in plan_of(document, drop_policy="none").values()} == {0.0}
    assert busiest(document, drop_policy="none") == pytest.approx(4.8)


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_events_are_never_dropped_and_have_flows_of_their_own(qos: int) -> None:
    document = wanted(bandwidth=40_000.0, flows_per_subscriber=3)
    document["subscribers"][0]["subscriptions"][5]["qos"] = qos
    plan = plan_of(document, drop_policy="flat")
    assert [name for name in TOPICS if plan[name].flow == plan["t/5"].flow] == ["t/5"]
    assert [plan[name].drop_rate for name in TOPICS] == pytest.approx([0.3] * 5 + [0.0])
    assert busiest(document, drop_policy="flat") == pytest.approx(0.9)


def test_the_policies_of_the_scenario_are_used_unless_others_are_given() -> None:
    document = wanted(bandwidth=40_000.0, drop_policy="flat", priority_policy="none")
    assert plan_of(document) == plan_of(document, drop_policy="flat", priority_policy="none")
    assert plan_of(document) != plan_of(document, priority_policy="information-only")


def test_the_same_scenario_gets_the_same_plan() -> None:
    scenario = read_scenario("builtin:high-rise")
    first, second = (plan_scenario(scenario) for _ in range(2))
    assert to_json(first.planned) == to_json(second.planned)
    assert first.report == second.report


def test_equal_worth_is_ranked_by_name_and_not_by_place_in_the_file() -> None:
    document = wanted()
    for subscription in document["subscribers"][0]["subscriptions"]:
        subscription["utility"]["weight"] = 1.0
    forwards = plan_of(document, drop_policy="none")
    document["subscribers"][0]["subscriptions"].reverse()
    assert plan_of(document, drop_policy="none") == forwards


def test_a_plan_replaces_an_assignment_and_nothing_else() -> None:
    scenario = from_plain(Scenario, wanted())
    planned = plan_scenario(scenario).planned
    assert replace(planned, assignment=None) == scenario
    assert plan_scenario(planned).planned == planned


def test_a_plan_says_what_it_was_planned_by() -> None:
    scenario = from_plain(Scenario, wanted())
    planned = plan_scenario(scenario, drop_policy="flat", ranking="global").planned
    assert planned.planning == replace(scenario.planning, drop_policy="flat", ranking="global")
    assert plan_scenario(planned).planned == planned


@pytest.mark.parametrize("policy", ["linear", "exponential"])
def test_a_load_that_a_policy_cannot_meet_is_an_error_that_names_the_switch(policy: str) -> None:
    # neither policy drops anything of class 0, and here there is no other (DESIGN.md, §2)
    document = wanted(bandwidth=10_000.0, priorities=1)
    with pytest.raises(PlanningError, match="s1"):
        plan_scenario(from_plain(Scenario, document), drop_policy=policy)

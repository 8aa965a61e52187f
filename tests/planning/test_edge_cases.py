"""Plans of unusual sites: single, missing or extreme parts, and several switches."""

from typing import Any, get_args

import numpy as np
import pytest

from firedex.planning import LoadLimitNotReachable, Plan, plan_scenario
from firedex.wire import DropPolicy, PriorityPolicy, Scenario, from_plain
from tests.support.small_site import (
    Document,
    path_of_two_switches,
    publisher_entry,
    site,
    subscriber_entry,
    topic,
)

DROP_POLICIES = get_args(DropPolicy)
PRIORITY_POLICIES = get_args(PriorityPolicy)


def scenario_without_assignment(document: Document) -> Scenario:
    document.pop("assignment", None)
    return from_plain(Scenario, document)


def plan_document(document: Document, **policies: Any) -> Plan:
    return plan_scenario(scenario_without_assignment(document), **policies)


@pytest.mark.parametrize("drops", DROP_POLICIES)
@pytest.mark.parametrize("priorities", PRIORITY_POLICIES)
def test_single_subscription_is_planned(priorities: PriorityPolicy, drops: DropPolicy) -> None:
    document = site(
        topics=[topic("t")],
        publishers=[publisher_entry("p0", {"t": 10.0})],
        subscribers=[subscriber_entry("command", "t")],
    )
    plan = plan_document(document, priority_policy=priorities, drop_policy=drops, split="optimal")
    (entry,) = plan.assignment
    assert (entry.flow, entry.priority, entry.drop_rate) == (0, 0, 0.0)


@pytest.mark.parametrize("solver", ["kkt", "cvxpy"])
@pytest.mark.parametrize("drops", DROP_POLICIES)
def test_site_without_subscribers_is_planned(drops: DropPolicy, solver: Any) -> None:
    plan = plan_document(site(subscribers=[]), drop_policy=drops, split="optimal", solver=solver)
    assert plan.assignment == ()
    assert plan.table.achieved_utility_rate == 1


@pytest.mark.parametrize("drops", DROP_POLICIES)
def test_unpublished_topic_does_not_affect_others(drops: DropPolicy) -> None:
    document = site(topics=[topic("published"), topic("unpublished")])
    document["publishers"] = [publisher_entry("p0", {"published": 100.0})]
    document["subscribers"] = [subscriber_entry("command", "published", "unpublished")]
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 100_000.0
    rows = {row.filter: row for row in plan_document(document, drop_policy=drops).table.rows()}
    assert rows["published"].success_rate == 1
    assert rows["unpublished"].drop_rate == 0
    assert rows["published"].priority <= rows["unpublished"].priority


def test_topic_without_subscribers_causes_no_drops() -> None:
    document = site()
    document["publishers"][0]["publications"][2]["rate_per_second"] = (
        1e6  # heat/1 has no subscriber
    )
    assert {entry.drop_rate for entry in plan_document(document).assignment} == {0.0}


@pytest.mark.parametrize("solver", ["kkt", "cvxpy"])
@pytest.mark.parametrize("drops", ["optimized", "deadline-aware", "flat"])
def test_subscriptions_without_utility_are_planned(drops: DropPolicy, solver: Any) -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/1", "smoke/2")])
    for subscription in document["subscribers"][0]["subscriptions"]:
        subscription["utility"]["weight"] = 0.0
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 12_000.0
    plan = plan_document(document, drop_policy=drops, split="optimal", solver=solver)
    assert plan.table.switches()[1].utilization == pytest.approx(0.9)
    assert plan.table.achieved_utility_rate == 1
    assert (plan.report.utility_gap or 0) < 1e-9


@pytest.mark.parametrize("kind", ["log", "linear"])
def test_identical_utilities_get_identical_drop_rates(kind: str) -> None:
    names = [f"t/{n}" for n in range(8)]
    document = site(
        topics=[topic(name) for name in names],
        publishers=[publisher_entry("p0", dict.fromkeys(names, 10.0))],
        subscribers=[subscriber_entry("command", *names)],
    )
    for subscription in document["subscribers"][0]["subscriptions"]:
        subscription["utility"] = {"kind": kind, "weight": 1.0}
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 32_000.0
    plan = plan_document(document, drop_policy="optimized")
    assert [e.drop_rate for e in plan.assignment] == pytest.approx([1 - 0.9 * 32 / 64] * 8)


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("drops", ["optimized", "deadline-aware", "flat"])
def test_flow_with_10000_subscriptions_is_planned(drops: DropPolicy, split: Any) -> None:
    names = [f"t/{n}" for n in range(10_000)]
    document = site(
        topics=[topic(name) for name in names],
        publishers=[publisher_entry("p0", dict.fromkeys(names, 1.0))],
        subscribers=[subscriber_entry("command", *names)],
        planning={"flows_per_subscriber": 1},
    )
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 4e6
    plan = plan_document(document, drop_policy=drops, split=split)
    assert {entry.flow for entry in plan.assignment} == {0}
    assert plan.assignment[0].drop_rate == pytest.approx(1 - 0.9 / 2, abs=1e-6)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_all_classes_are_used_if_there_are_more_flows(classes: int) -> None:
    names = [f"t/{n}" for n in range(9)]
    document = site(
        topics=[topic(name) for name in names],
        publishers=[publisher_entry("p0", dict.fromkeys(names, 10.0))],
        subscribers=[subscriber_entry("command", *names)],
        planning={"flows_per_subscriber": 9, "priorities": classes},
    )
    plan = plan_document(document)
    sizes = np.bincount([entry.priority for entry in plan.assignment])
    assert len(sizes) == classes
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


@pytest.mark.parametrize("drops", ["optimized", "flat", "deadline-aware"])
def test_bandwidth_of_1_bit_per_second_is_planned(drops: DropPolicy) -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/1", "smoke/2", "heat/1")])
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 1.0
    plan = plan_document(document, drop_policy=drops)
    assert plan.table.switches()[1].utilization == pytest.approx(0.9, abs=1e-6)
    assert min(entry.drop_rate for entry in plan.assignment) > 0.99


def site_with_switches(*classes: int) -> Document:
    document = site()
    document["network"]["switches"] = document["network"]["switches"][:1] + [
        {"id": f"x{n}", "bandwidth_bits_per_second": 10_000.0 * (n + 1), "priorities": offered}
        for n, offered in enumerate(classes)
    ]
    document["subscribers"] = [
        subscriber_entry(f"c{n}", "smoke/1", "smoke/2", "heat/1", switch=f"x{n}")
        for n in range(len(classes))
    ]
    return document


@pytest.mark.parametrize("ranking", ["per-subscriber", "global"])
def test_classes_are_limited_by_each_switch(ranking: Any) -> None:
    plan = plan_document(site_with_switches(1, 2, 3, 8), ranking=ranking)
    used: dict[str, set[int]] = {}
    for entry in plan.assignment:
        used.setdefault(entry.subscriber, set()).add(entry.priority)
    assert used["c0"] == {0}
    assert used["c1"] <= {0, 1}
    assert used["c2"] <= {0, 1, 2}
    assert all(max(classes) < 8 for classes in used.values())


@pytest.mark.parametrize("drops", ["flat", "linear", "exponential", "optimized"])
def test_load_of_every_switch_is_reduced_to_its_limit(drops: DropPolicy) -> None:
    plan = plan_document(site_with_switches(8, 8, 8, 8, 8, 8, 8, 8), drop_policy=drops)
    # The offered load is 56 kbit/s; the capacities are 10, 20, … 80 kbit/s.
    loads = [switch.utilization for switch in plan.table.switches()][1:]
    expected = [min(0.9, 56 / (10 * (n + 1))) for n in range(8)]
    assert loads == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("drops", ["flat", "linear", "exponential", "optimized"])
def test_load_of_switches_in_series_is_reduced_to_the_limit(drops: DropPolicy) -> None:
    document = path_of_two_switches()
    names = ("smoke/1", "smoke/2", "heat/1")
    document["subscribers"] = [
        subscriber_entry("near", *names, switch="s1"),
        subscriber_entry("far", *names, switch="s2"),
    ]
    document["network"]["links"][0]["bandwidth_bits_per_second"] = 40_000.0
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 30_000.0
    document["network"]["switches"][2]["bandwidth_bits_per_second"] = 20_000.0
    plan = plan_document(document, drop_policy=drops)
    loads = {
        queue.id: queue.utilization for queue in plan.table.queues if queue.kind == "switch-out"
    }
    assert max(loads.values()) <= 0.9 + 1e-9
    assert loads["s1 to hosts"] == pytest.approx(0.9, abs=1e-6)
    assert loads["s2 to hosts"] == pytest.approx(0.9, abs=1e-6)
    assert loads["s1->s2"] == pytest.approx(0.45, abs=1e-6)


def test_policy_that_cannot_reach_the_load_limit_is_reported() -> None:
    document = site_with_switches(8, 1)
    with pytest.raises(
        LoadLimitNotReachable, match=r"'linear' cannot reduce the load of 'x1 to hosts'"
    ) as caught:
        plan_document(document, drop_policy="linear")
    assert caught.value.load == pytest.approx(56 / 20)


def test_random_policy_depends_on_its_seed_only() -> None:
    document = site_with_switches(8, 8)
    first = plan_document(document, priority_policy="random", seed=1, drop_policy="none")
    same = plan_document(document, priority_policy="random", seed=1, drop_policy="none")
    other = plan_document(document, priority_policy="random", seed=2, drop_policy="none")
    assert first.assignment == same.assignment
    assert first.assignment != other.assignment


def test_flow_without_utility_uses_free_capacity_of_its_own_path() -> None:
    document = site(
        topics=[topic(name) for name in ("a", "b", "c")],
        publishers=[publisher_entry("p0", {"a": 300.0, "b": 100.0, "c": 200.0}, switch="s1")],
        subscribers=[
            subscriber_entry("one", "a", "b", switch="s2"),
            subscriber_entry("two", "c", switch="s3"),
        ],
    )
    for subscription in (
        document["subscribers"][0]["subscriptions"][1],
        document["subscribers"][1]["subscriptions"][0],
    ):
        subscription["utility"]["weight"] = 0.0
    document["network"] = {
        "switches": [
            {"id": "s1", "bandwidth_bits_per_second": 1e6},
            {"id": "s2", "bandwidth_bits_per_second": 1e5},
            {"id": "s3", "bandwidth_bits_per_second": 1e5},
        ],
        "links": [
            {"from": "s1", "to": "s2", "bandwidth_bits_per_second": 1e5},
            {"from": "s1", "to": "s3"},
        ],
        "broker": {"id": "b1", "switch": "s1"},
    }
    plan = plan_document(document, drop_policy="optimized", solver="cvxpy")
    drops = {entry.filter: entry.drop_rate for entry in plan.assignment}
    assert drops["c"] == pytest.approx(1 - 0.9 * 1e5 / (200 * 800), abs=1e-6)


def test_error_rates_reduce_the_load_of_later_switches() -> None:
    document = path_of_two_switches()
    document["network"]["switches"][1]["error_rate"] = 0.5
    document["network"]["switches"][2]["bandwidth_bits_per_second"] = 10_000.0
    plan = plan_document(document, drop_policy="optimized")
    # The offered load is 24 kbit/s; 12 kbit/s reach s2, which may carry 9 kbit/s.
    assert plan.assignment[0].drop_rate == pytest.approx(0.25)

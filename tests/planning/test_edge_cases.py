"""Sites at the edge: one of everything, nothing of something, far too little of the rest."""

from typing import Any, get_args

import numpy as np
import pytest
from small_site import Document, path_of_two_switches, published, site, subscribed, topic

from firedex.planning import LoadCannotBeMet, Plan, plan_scenario
from firedex.wire import DropPolicy, PriorityPolicy, Scenario, from_plain

EVERY_DROP_POLICY = get_args(DropPolicy)
EVERY_PRIORITY_POLICY = get_args(PriorityPolicy)


def without_assignment(document: Document) -> Scenario:
    document.pop("assignment", None)
    return from_plain(Scenario, document)


def plan_of(document: Document, **policies: Any) -> Plan:
    return plan_scenario(without_assignment(document), **policies)


@pytest.mark.parametrize("drops", EVERY_DROP_POLICY)
@pytest.mark.parametrize("priorities", EVERY_PRIORITY_POLICY)
def test_one_subscriber_one_topic(priorities: PriorityPolicy, drops: DropPolicy) -> None:
    document = site(
        topics=[topic("t")],
        publishers=[published("p0", {"t": 10.0})],
        subscribers=[subscribed("command", "t")],
    )
    plan = plan_of(document, priority_policy=priorities, drop_policy=drops, split="optimal")
    (entry,) = plan.assignment
    assert (entry.flow, entry.priority, entry.drop_rate) == (0, 0, 0.0)


@pytest.mark.parametrize("solver", ["kkt", "cvxpy"])
@pytest.mark.parametrize("drops", EVERY_DROP_POLICY)
def test_nobody_at_all(drops: DropPolicy, solver: Any) -> None:
    plan = plan_of(site(subscribers=[]), drop_policy=drops, split="optimal", solver=solver)
    assert plan.assignment == ()
    assert plan.table.achieved_utility_rate == 1


@pytest.mark.parametrize("drops", EVERY_DROP_POLICY)
def test_a_topic_nobody_publishes_takes_nothing_from_others(drops: DropPolicy) -> None:
    document = site(topics=[topic("heard"), topic("silent")])
    document["publishers"] = [published("p0", {"heard": 100.0})]
    document["subscribers"] = [subscribed("command", "heard", "silent")]
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 100_000.0
    rows = {row.filter: row for row in plan_of(document, drop_policy=drops).table.rows()}
    assert rows["heard"].success_rate == 1
    assert rows["silent"].drop_rate == 0
    assert rows["heard"].priority <= rows["silent"].priority


def test_a_topic_nobody_hears_costs_nothing() -> None:
    document = site()
    document["publishers"][0]["publications"][2]["rate_per_second"] = 1e6  # heat/1: unheard
    assert {entry.drop_rate for entry in plan_of(document).assignment} == {0.0}


@pytest.mark.parametrize("solver", ["kkt", "cvxpy"])
@pytest.mark.parametrize("drops", ["optimized", "deadline-aware", "flat"])
def test_a_utility_of_zero(drops: DropPolicy, solver: Any) -> None:
    document = site(subscribers=[subscribed("command", "smoke/1", "smoke/2")])
    for subscription in document["subscribers"][0]["subscriptions"]:
        subscription["utility"]["weight"] = 0.0
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 12_000.0
    plan = plan_of(document, drop_policy=drops, split="optimal", solver=solver)
    assert plan.table.switches()[1].utilization == pytest.approx(0.9)
    assert plan.table.achieved_utility_rate == 1
    assert (plan.report.utility_gap or 0) < 1e-9


@pytest.mark.parametrize("kind", ["log", "linear"])
def test_identical_utilities_are_treated_alike(kind: str) -> None:
    names = [f"t/{n}" for n in range(8)]
    document = site(
        topics=[topic(name) for name in names],
        publishers=[published("p0", dict.fromkeys(names, 10.0))],
        subscribers=[subscribed("command", *names)],
    )
    for subscription in document["subscribers"][0]["subscriptions"]:
        subscription["utility"] = {"kind": kind, "weight": 1.0}
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 32_000.0
    plan = plan_of(document, drop_policy="optimized")
    assert [e.drop_rate for e in plan.assignment] == pytest.approx([1 - 0.9 * 32 / 64] * 8)


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("drops", ["optimized", "deadline-aware", "flat"])
def test_ten_thousand_subscriptions_on_one_flow(drops: DropPolicy, split: Any) -> None:
    names = [f"t/{n}" for n in range(10_000)]
    document = site(
        topics=[topic(name) for name in names],
        publishers=[published("p0", dict.fromkeys(names, 1.0))],
        subscribers=[subscribed("command", *names)],
        planning={"flows_per_subscriber": 1},
    )
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 4e6
    plan = plan_of(document, drop_policy=drops, split=split)
    assert {entry.flow for entry in plan.assignment} == {0}
    assert plan.assignment[0].drop_rate == pytest.approx(1 - 0.9 / 2, abs=1e-6)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_fewer_classes_than_flows(classes: int) -> None:
    names = [f"t/{n}" for n in range(9)]
    document = site(
        topics=[topic(name) for name in names],
        publishers=[published("p0", dict.fromkeys(names, 10.0))],
        subscribers=[subscribed("command", *names)],
        planning={"flows_per_subscriber": 9, "priorities": classes},
    )
    plan = plan_of(document)
    sizes = np.bincount([entry.priority for entry in plan.assignment])
    assert len(sizes) == classes
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


@pytest.mark.parametrize("drops", ["optimized", "flat", "deadline-aware"])
def test_bandwidth_below_the_smallest_packets_worth(drops: DropPolicy) -> None:
    document = site(subscribers=[subscribed("command", "smoke/1", "smoke/2", "heat/1")])
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 1.0
    plan = plan_of(document, drop_policy=drops)
    assert plan.table.switches()[1].utilization == pytest.approx(0.9, abs=1e-6)
    assert min(entry.drop_rate for entry in plan.assignment) > 0.99


def many_switches(*classes: int) -> Document:
    document = site()
    document["network"]["switches"] = document["network"]["switches"][:1] + [
        {"id": f"x{n}", "bandwidth_bits_per_second": 10_000.0 * (n + 1), "priorities": offered}
        for n, offered in enumerate(classes)
    ]
    document["subscribers"] = [
        subscribed(f"c{n}", "smoke/1", "smoke/2", "heat/1", switch=f"x{n}")
        for n in range(len(classes))
    ]
    return document


@pytest.mark.parametrize("ranking", ["per-subscriber", "global"])
def test_switches_with_different_numbers_of_classes(ranking: Any) -> None:
    plan = plan_of(many_switches(1, 2, 3, 8), ranking=ranking)
    used: dict[str, set[int]] = {}
    for entry in plan.assignment:
        used.setdefault(entry.subscriber, set()).add(entry.priority)
    assert used["c0"] == {0}
    assert used["c1"] <= {0, 1}
    assert used["c2"] <= {0, 1, 2}
    assert all(max(classes) < 8 for classes in used.values())


@pytest.mark.parametrize("drops", ["flat", "linear", "exponential", "optimized"])
def test_every_switch_is_brought_down_by_itself(drops: DropPolicy) -> None:
    plan = plan_of(many_switches(8, 8, 8, 8, 8, 8, 8, 8), drop_policy=drops)
    # 56 kbit/s are offered to each of 10, 20, … 80 kbit/s
    loads = [switch.utilization for switch in plan.table.switches()][1:]
    expected = [min(0.9, 56 / (10 * (n + 1))) for n in range(8)]
    assert loads == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("drops", ["flat", "linear", "exponential", "optimized"])
def test_switches_in_line_are_all_brought_down(drops: DropPolicy) -> None:
    document = path_of_two_switches()
    names = ("smoke/1", "smoke/2", "heat/1")
    document["subscribers"] = [
        subscribed("near", *names, switch="s1"),
        subscribed("far", *names, switch="s2"),
    ]
    document["network"]["links"][0]["bandwidth_bits_per_second"] = 40_000.0
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 30_000.0
    document["network"]["switches"][2]["bandwidth_bits_per_second"] = 20_000.0
    plan = plan_of(document, drop_policy=drops)
    loads = {
        queue.id: queue.utilization for queue in plan.table.queues if queue.kind == "switch-out"
    }
    assert max(loads.values()) <= 0.9 + 1e-9
    assert loads["s1 to hosts"] == pytest.approx(0.9, abs=1e-6)
    assert loads["s2 to hosts"] == pytest.approx(0.9, abs=1e-6)
    assert loads["s1->s2"] == pytest.approx(0.45, abs=1e-6)


def test_a_policy_that_cannot_meet_the_load_says_so_by_name() -> None:
    document = many_switches(8, 1)
    with pytest.raises(
        LoadCannotBeMet, match=r"'linear' cannot bring 'x1 to hosts' down"
    ) as caught:
        plan_of(document, drop_policy="linear")
    assert caught.value.load == pytest.approx(56 / 20)


def test_the_random_policy_follows_its_seed_and_nothing_else() -> None:
    document = many_switches(8, 8)
    first = plan_of(document, priority_policy="random", seed=1, drop_policy="none")
    same = plan_of(document, priority_policy="random", seed=1, drop_policy="none")
    other = plan_of(document, priority_policy="random", seed=2, drop_policy="none")
    assert first.assignment == same.assignment
    assert first.assignment != other.assignment


def test_what_is_worth_nothing_is_not_starved_for_a_switch_it_does_not_cross() -> None:
    document = site(
        topics=[topic(name) for name in ("a", "b", "c")],
        publishers=[published("p0", {"a": 300.0, "b": 100.0, "c": 200.0}, switch="s1")],
        subscribers=[
            subscribed("one", "a", "b", switch="s2"),
            subscribed("two", "c", switch="s3"),
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
    plan = plan_of(document, drop_policy="optimized", solver="cvxpy")
    drops = {entry.filter: entry.drop_rate for entry in plan.assignment}
    assert drops["c"] == pytest.approx(1 - 0.9 * 1e5 / (200 * 800), abs=1e-6)


def test_error_rates_on_the_way_are_reckoned_with() -> None:
    document = path_of_two_switches()
    document["network"]["switches"][1]["error_rate"] = 0.5
    document["network"]["switches"][2]["bandwidth_bits_per_second"] = 10_000.0
    plan = plan_of(document, drop_policy="optimized")
    # 24 kbit/s set out, 12 reach s2, 9 may pass
    assert plan.assignment[0].drop_rate == pytest.approx(0.25)

"""Planning again after a change: who has to move to another flow."""

import copy
from typing import Any

import pytest
from small_site import Document, published, site, subscribed, topic

from firedex.planning import Plan, plan_scenario
from firedex.wire import Assignment, Scenario, from_plain, to_json

TOPICS = [f"t/{n:02}" for n in range(20)]


def wanted(count: int = 12, weights: list[float] | None = None, **planning: Any) -> Document:
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[published("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscribed("command", *TOPICS[:count])],
        planning={"flows_per_subscriber": 4, **planning},
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        weight = weights[rank] if weights else float(count - rank)
        subscription["utility"]["weight"] = weight
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 60_000.0
    return document


def plan_of(document: Document, before: Plan | None = None, **policies: Any) -> Plan:
    previous = before.assignment if before else None
    return plan_scenario(from_plain(Scenario, document), previous=previous, **policies)


def moved_by_hand(before: tuple[Assignment, ...], after: tuple[Assignment, ...]) -> int:
    was = {(entry.subscriber, entry.filter): entry.flow for entry in before}
    return sum(was.get((e.subscriber, e.filter), e.flow) != e.flow for e in after)


def test_without_a_previous_plan_there_are_no_moves_to_count() -> None:
    assert plan_of(wanted()).report.moved_subscriptions is None


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("policy", ["optimized", "deadline-aware", "exponential", "none"])
def test_nothing_changed_is_nothing_moved_to_the_byte(policy: str, split: str) -> None:
    first = plan_of(wanted(), drop_policy=policy, split=split)
    again = plan_of(wanted(), first, drop_policy=policy, split=split)
    assert again.report.moved_subscriptions == 0
    assert to_json(again.planned) == to_json(first.planned)


def test_the_scenarios_own_assignment_is_the_previous_plan() -> None:
    first = plan_of(wanted())
    assert plan_scenario(first.planned).report.moved_subscriptions == 0


def test_moves_are_counted_as_they_are() -> None:
    first = plan_of(wanted())
    turned = wanted(weights=[float(n + 1) for n in range(12)])
    again = plan_of(turned, first)
    assert again.report.moved_subscriptions == moved_by_hand(first.assignment, again.assignment)


def test_a_flow_keeps_its_number_when_its_class_changes() -> None:
    first = plan_of(wanted(count=4))
    turned = wanted(count=4, weights=[1.0, 2.0, 3.0, 4.0])
    again = plan_of(turned, first)
    assert again.report.moved_subscriptions == 0
    classes = {entry.filter: entry.priority for entry in again.assignment}
    assert [classes[name] for name in TOPICS[:4]] == [3, 2, 1, 0]


def test_equals_stay_where_they_are_when_another_comes() -> None:
    first = plan_of(wanted(weights=[1.0] * 12))
    again = plan_of(wanted(count=13, weights=[1.0] * 13), first)
    assert again.report.moved_subscriptions == 0
    fresh = plan_of(wanted(count=13, weights=[1.0] * 13))
    assert again.table.utility.sum() == pytest.approx(fresh.table.utility.sum(), rel=1e-9)


def test_moves_are_made_where_they_are_worth_it() -> None:
    # one flow holds the dear with the cheap: the new plan must tear them apart
    document = wanted(count=4, weights=[1.0, 1.0, 1.0, 1.0], flows_per_subscriber=2)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 16_000.0
    first = plan_of(document)
    changed = copy.deepcopy(document)
    partners = [e.filter for e in first.assignment if e.flow == first.assignment[0].flow]
    for subscription in changed["subscribers"][0]["subscriptions"]:
        subscription["utility"]["weight"] = 1.0
    apart = {partners[0], next(n for n in TOPICS[:4] if n not in partners)}
    for subscription in changed["subscribers"][0]["subscriptions"]:
        if subscription["filter"] in apart:
            subscription["utility"]["weight"] = 50.0
    again = plan_of(changed, first)
    assert again.report.moved_subscriptions is not None
    assert again.report.moved_subscriptions > 0
    assert not again.report.kept_previous_flows


def test_who_left_is_forgotten_and_who_came_is_no_move() -> None:
    first = plan_of(wanted(count=10))
    document = wanted(count=10)
    document["subscribers"][0]["subscriptions"].pop(3)
    document["subscribers"].append(subscribed("crew", "t/00", "t/01"))
    again = plan_of(document, first)
    assert again.report.moved_subscriptions == moved_by_hand(first.assignment, again.assignment)
    assert {e.subscriber for e in again.assignment} == {"command", "crew"}


def test_fewer_flows_than_before_is_no_obstacle() -> None:
    first = plan_of(wanted())
    again = plan_of(wanted(flows_per_subscriber=2), first)
    assert len({entry.flow for entry in again.assignment}) == 2
    assert again.report.moved_subscriptions == moved_by_hand(first.assignment, again.assignment)


def test_a_changed_quality_of_service_leaves_its_flow() -> None:
    first = plan_of(wanted())
    document = wanted()
    document["subscribers"][0]["subscriptions"][1]["qos"] = 1
    again = plan_of(document, first)
    flow = {entry.filter: entry.flow for entry in again.assignment}
    assert [name for name in flow if flow[name] == flow["t/01"]] == ["t/01"]


def test_a_previous_plan_never_makes_planning_fail() -> None:
    document = wanted(count=4, flows_per_subscriber=4, priorities=4)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 20_000.0
    scenario = from_plain(Scenario, document)
    crowded = [
        Assignment(subscriber="command", filter=name, flow=0, priority=0) for name in TOPICS[:4]
    ]
    plan = plan_scenario(scenario, drop_policy="linear", previous=crowded)
    fresh = plan_scenario(scenario, drop_policy="linear", previous=[])
    assert [e.drop_rate for e in plan.assignment] == [e.drop_rate for e in fresh.assignment]


def test_a_previous_plan_never_costs_utility() -> None:
    capped = {"kind": "capped", "weight": 1.0, "enough": 0.3}
    line = {"kind": "linear", "weight": 1.0}

    def of(*wishes: tuple[str, Document]) -> Document:
        document = site(
            topics=[topic(name) for name in "abc"],
            publishers=[published("p0", {"a": 300.0, "b": 300.0, "c": 100.0})],
            subscribers=[subscribed("u0")],
            planning={"flows_per_subscriber": 2, "priority_policy": "information-only"},
        )
        del document["assignment"]
        document["subscribers"][0]["subscriptions"] = [
            {"filter": name, "utility": utility} for name, utility in wishes
        ]
        document["network"]["switches"][1]["bandwidth_bits_per_second"] = 3e5
        return document

    first = plan_of(of(("a", capped), ("b", line)))
    changed = of(("a", capped), ("b", line), ("c", line))
    again, fresh = plan_of(changed, first), plan_of(changed)
    assert again.table.utility.sum() >= fresh.table.utility.sum() * (1 - 1e-9)


def test_numbers_are_given_so_that_the_fewest_move() -> None:
    names = TOPICS[:10]
    document = wanted(count=10, flows_per_subscriber=2, priorities=2)
    numbers = [0, 0, 0, 1, 1, 0, 0]
    previous = [
        Assignment(subscriber="command", filter=name, flow=number, priority=0)
        for name, number in zip(names, numbers, strict=False)
    ]
    plan = plan_scenario(from_plain(Scenario, document), previous=previous)
    after = {entry.filter: entry.flow for entry in plan.assignment}
    swapped = sum((1 - after[e.filter]) != e.flow for e in previous)
    assert plan.report.moved_subscriptions is not None
    assert plan.report.moved_subscriptions <= swapped


def test_staying_is_weighed_with_its_buffers() -> None:
    document = wanted(count=2, weights=[100.0, 1.0], flows_per_subscriber=2, priorities=2)
    switch = document["network"]["switches"][1]
    switch["bandwidth_bits_per_second"] = 20_000.0
    switch["buffer"] = {"kind": "per-class-head-drop", "packets": 1}
    scenario = from_plain(Scenario, document)
    crowded = [
        Assignment(subscriber="command", filter=name, flow=0, priority=0) for name in TOPICS[:2]
    ]
    fresh = plan_scenario(scenario, previous=[])
    again = plan_scenario(scenario, previous=crowded)
    assert again.table.utility.sum() >= fresh.table.utility.sum() * (1 - 1e-9)


def test_a_global_ranking_is_stable_too() -> None:
    document = wanted(count=3, ranking="global", priorities=2, flows_per_subscriber=2)
    document["subscribers"].append(subscribed("crew", "t/00", "t/01"))
    first = plan_of(document)
    assert plan_scenario(first.planned).assignment == first.assignment

"""Planning again after a change: moves of subscriptions between flows."""

import copy
from typing import Any

import pytest

from firedex.planning import Plan, plan_scenario
from firedex.wire import Assignment, Scenario, from_plain, to_json
from tests.support.small_site import Document, publisher_entry, site, subscriber_entry, topic

TOPICS = [f"t/{n:02}" for n in range(20)]


def site_with_weights(
    count: int = 12, weights: list[float] | None = None, **planning: Any
) -> Document:
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[publisher_entry("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscriber_entry("command", *TOPICS[:count])],
        planning={"flows_per_subscriber": 4, **planning},
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        weight = weights[rank] if weights else float(count - rank)
        subscription["utility"]["weight"] = weight
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 60_000.0
    return document


def plan_document(document: Document, before: Plan | None = None, **policies: Any) -> Plan:
    previous = before.assignment if before else None
    return plan_scenario(from_plain(Scenario, document), previous=previous, **policies)


def count_moves(before: tuple[Assignment, ...], after: tuple[Assignment, ...]) -> int:
    previous_flows = {(entry.subscriber, entry.filter): entry.flow for entry in before}
    return sum(previous_flows.get((e.subscriber, e.filter), e.flow) != e.flow for e in after)


def test_moves_are_not_reported_without_previous_plan() -> None:
    assert plan_document(site_with_weights()).report.moved_subscriptions is None


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("policy", ["optimized", "deadline-aware", "exponential", "none"])
def test_planning_again_without_changes_gives_identical_plan(policy: str, split: str) -> None:
    first = plan_document(site_with_weights(), drop_policy=policy, split=split)
    again = plan_document(site_with_weights(), first, drop_policy=policy, split=split)
    assert again.report.moved_subscriptions == 0
    assert to_json(again.planned_scenario) == to_json(first.planned_scenario)


def test_assignment_of_the_scenario_is_the_default_previous_plan() -> None:
    first = plan_document(site_with_weights())
    assert plan_scenario(first.planned_scenario).report.moved_subscriptions == 0


def test_number_of_moves_agrees_with_manual_count() -> None:
    first = plan_document(site_with_weights())
    reversed_weights = site_with_weights(weights=[float(n + 1) for n in range(12)])
    again = plan_document(reversed_weights, first)
    assert again.report.moved_subscriptions == count_moves(first.assignment, again.assignment)


def test_flow_keeps_its_number_when_its_class_changes() -> None:
    first = plan_document(site_with_weights(count=4))
    reversed_weights = site_with_weights(count=4, weights=[1.0, 2.0, 3.0, 4.0])
    again = plan_document(reversed_weights, first)
    assert again.report.moved_subscriptions == 0
    classes = {entry.filter: entry.priority for entry in again.assignment}
    assert [classes[name] for name in TOPICS[:4]] == [3, 2, 1, 0]


def test_new_subscription_of_equal_utility_moves_no_others() -> None:
    first = plan_document(site_with_weights(weights=[1.0] * 12))
    again = plan_document(site_with_weights(count=13, weights=[1.0] * 13), first)
    assert again.report.moved_subscriptions == 0
    fresh = plan_document(site_with_weights(count=13, weights=[1.0] * 13))
    assert again.table.utility.sum() == pytest.approx(fresh.table.utility.sum(), rel=1e-9)


def test_subscriptions_move_if_utility_increases() -> None:
    # One flow has a subscription with high and one with low utility: a new plan separates them.
    document = site_with_weights(count=4, weights=[1.0, 1.0, 1.0, 1.0], flows_per_subscriber=2)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 16_000.0
    first = plan_document(document)
    changed = copy.deepcopy(document)
    partners = [e.filter for e in first.assignment if e.flow == first.assignment[0].flow]
    for subscription in changed["subscribers"][0]["subscriptions"]:
        subscription["utility"]["weight"] = 1.0
    high_utility = {partners[0], next(n for n in TOPICS[:4] if n not in partners)}
    for subscription in changed["subscribers"][0]["subscriptions"]:
        if subscription["filter"] in high_utility:
            subscription["utility"]["weight"] = 50.0
    again = plan_document(changed, first)
    assert again.report.moved_subscriptions is not None
    assert again.report.moved_subscriptions > 0
    assert not again.report.kept_previous_flows


def test_new_and_removed_subscriptions_are_not_moves() -> None:
    first = plan_document(site_with_weights(count=10))
    document = site_with_weights(count=10)
    document["subscribers"][0]["subscriptions"].pop(3)
    document["subscribers"].append(subscriber_entry("crew", "t/00", "t/01"))
    again = plan_document(document, first)
    assert again.report.moved_subscriptions == count_moves(first.assignment, again.assignment)
    assert {e.subscriber for e in again.assignment} == {"command", "crew"}


def test_plan_with_fewer_flows_than_before() -> None:
    first = plan_document(site_with_weights())
    again = plan_document(site_with_weights(flows_per_subscriber=2), first)
    assert len({entry.flow for entry in again.assignment}) == 2
    assert again.report.moved_subscriptions == count_moves(first.assignment, again.assignment)


def test_subscription_with_changed_qos_gets_another_flow() -> None:
    first = plan_document(site_with_weights())
    document = site_with_weights()
    document["subscribers"][0]["subscriptions"][1]["qos"] = 1
    again = plan_document(document, first)
    flow = {entry.filter: entry.flow for entry in again.assignment}
    assert [name for name in flow if flow[name] == flow["t/01"]] == ["t/01"]


def test_infeasible_previous_flows_do_not_make_planning_fail() -> None:
    document = site_with_weights(count=4, flows_per_subscriber=4, priorities=4)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 20_000.0
    scenario = from_plain(Scenario, document)
    one_flow = [
        Assignment(subscriber="command", filter=name, flow=0, priority=0) for name in TOPICS[:4]
    ]
    plan = plan_scenario(scenario, drop_policy="linear", previous=one_flow)
    fresh = plan_scenario(scenario, drop_policy="linear", previous=[])
    assert [e.drop_rate for e in plan.assignment] == [e.drop_rate for e in fresh.assignment]


def test_previous_plan_does_not_reduce_utility() -> None:
    capped = {"kind": "capped", "weight": 1.0, "enough": 0.3}
    line = {"kind": "linear", "weight": 1.0}

    def site_with(*subscriptions: tuple[str, Document]) -> Document:
        document = site(
            topics=[topic(name) for name in "abc"],
            publishers=[publisher_entry("p0", {"a": 300.0, "b": 300.0, "c": 100.0})],
            subscribers=[subscriber_entry("u0")],
            planning={"flows_per_subscriber": 2, "priority_policy": "information-only"},
        )
        del document["assignment"]
        document["subscribers"][0]["subscriptions"] = [
            {"filter": name, "utility": utility} for name, utility in subscriptions
        ]
        document["network"]["switches"][1]["bandwidth_bits_per_second"] = 3e5
        return document

    first = plan_document(site_with(("a", capped), ("b", line)))
    changed = site_with(("a", capped), ("b", line), ("c", line))
    again, fresh = plan_document(changed, first), plan_document(changed)
    assert again.table.utility.sum() >= fresh.table.utility.sum() * (1 - 1e-9)


def test_flow_numbers_minimise_moves() -> None:
    names = TOPICS[:10]
    document = site_with_weights(count=10, flows_per_subscriber=2, priorities=2)
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


def test_decision_to_keep_flows_considers_buffer_losses() -> None:
    document = site_with_weights(
        count=2, weights=[100.0, 1.0], flows_per_subscriber=2, priorities=2
    )
    switch = document["network"]["switches"][1]
    switch["bandwidth_bits_per_second"] = 20_000.0
    switch["buffer"] = {"kind": "per-class-head-drop", "packets": 1}
    scenario = from_plain(Scenario, document)
    one_flow = [
        Assignment(subscriber="command", filter=name, flow=0, priority=0) for name in TOPICS[:2]
    ]
    fresh = plan_scenario(scenario, previous=[])
    again = plan_scenario(scenario, previous=one_flow)
    assert again.table.utility.sum() >= fresh.table.utility.sum() * (1 - 1e-9)


def test_planning_again_with_global_ranking_gives_same_plan() -> None:
    document = site_with_weights(count=3, ranking="global", priorities=2, flows_per_subscriber=2)
    document["subscribers"].append(subscriber_entry("crew", "t/00", "t/01"))
    first = plan_document(document)
    assert plan_scenario(first.planned_scenario).assignment == first.assignment

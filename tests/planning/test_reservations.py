"""Reservations of QoS 1 and 2: separate flows, no drops, and budgets of roles."""

from typing import Any

import pytest

from firedex.planning import Plan, plan_scenario
from firedex.wire import Assignment, Scenario, WireError, from_plain
from tests.support.small_site import (
    Document,
    path_of_two_switches,
    publisher_entry,
    site,
    subscriber_entry,
    topic,
)

TOPICS = [f"t/{n}" for n in range(6)]
"""Each topic has 10 events of 800 bits per second."""


def site_with_qos_1(*acknowledged: int, bandwidth: float = 40_000.0, **planning: Any) -> Document:
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[publisher_entry("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscriber_entry("command", *TOPICS)],
        planning=planning,
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        subscription["utility"]["weight"] = float(len(TOPICS) - rank)
        subscription["qos"] = int(rank in acknowledged)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    return document


def plan_document(document: Document, **policies: Any) -> Plan:
    return plan_scenario(from_plain(Scenario, document), **policies)


def entries_by_filter(plan: Plan) -> dict[str, Assignment]:
    return {entry.filter: entry for entry in plan.assignment}


@pytest.mark.parametrize("flows", [2, 3, 4, 6, 8])
def test_acknowledged_and_droppable_subscriptions_use_different_flows(flows: int) -> None:
    plan = entries_by_filter(plan_document(site_with_qos_1(1, 4, flows_per_subscriber=flows)))
    acknowledged = {plan[name].flow for name in ("t/1", "t/4")}
    others = {plan[name].flow for name in TOPICS if name not in ("t/1", "t/4")}
    assert not acknowledged & others
    assert len(acknowledged | others) == min(flows, 6)
    assert plan["t/1"].drop_rate == plan["t/4"].drop_rate == 0


def test_classes_follow_the_rank_for_any_qos() -> None:
    plan = entries_by_filter(plan_document(site_with_qos_1(1, 4)))
    assert [plan[name].priority for name in TOPICS] == [0, 1, 2, 3, 4, 5]


def test_reserved_bandwidth_is_not_available_to_others() -> None:
    plan = plan_document(site_with_qos_1(4, 5))
    drops = {name: entry.drop_rate for name, entry in entries_by_filter(plan).items()}
    assert plan.table.switches()[1].utilization == pytest.approx(0.9)
    assert sum(1 - drops[name] for name in TOPICS[:4]) == pytest.approx(4.5 - 2)


def test_single_flow_with_both_kinds_drops_nothing_and_is_reported() -> None:
    plan = plan_document(site_with_qos_1(3, flows_per_subscriber=1))
    assert {entry.drop_rate for entry in plan.assignment} == {0.0}
    assert plan.report.undropped_subscribers == ("command",)


def test_reservations_within_the_bandwidth_are_all_granted() -> None:
    plan = plan_document(site_with_qos_1(*range(6), bandwidth=60_000.0))
    assert {entry.drop_rate for entry in plan.assignment} == {0.0}
    assert plan.report.overcommitted == ()


@pytest.mark.parametrize("policy", ["optimized", "deadline-aware", "flat", "exponential"])
def test_reservations_above_the_bandwidth_are_reported(policy: str) -> None:
    plan = plan_document(site_with_qos_1(*range(6)), drop_policy=policy)
    (over,) = plan.report.overcommitted
    assert (over.switch, over.queue, over.role) == ("s1", "s1 to hosts", None)
    assert over.reserved == pytest.approx(1.2)
    assert over.available == pytest.approx(0.9)
    assert over.excess == pytest.approx(0.3)
    assert over.excess_bits_per_second == pytest.approx(12_000)
    assert {entry.drop_rate for entry in plan.assignment} == {0.0}


def test_reservations_over_budget_get_the_lowest_class() -> None:
    plan = plan_document(site_with_qos_1(*range(6)))
    classes = {name: entry.priority for name, entry in entries_by_filter(plan).items()}
    # The limit is the load of 4.5 subscriptions.
    assert classes["t/4"] == classes["t/5"] == 7
    assert max(classes[name] for name in TOPICS[:4]) < 7


def test_reservation_over_budget_does_not_affect_others() -> None:
    budgets = [{"role": "crew", "share": 0.1}]
    droppable = plan_document(site_with_qos_1(reserved_budgets=budgets))
    reserved = plan_document(site_with_qos_1(0, reserved_budgets=budgets))
    without = site_with_qos_1(reserved_budgets=budgets)
    del without["subscribers"][0]["subscriptions"][0]
    expected = {row.filter: row for row in plan_document(without).table.rows()}
    others = {row.filter: row for row in reserved.table.rows()}
    for name in TOPICS[1:]:
        assert others[name].success_rate == pytest.approx(expected[name].success_rate, abs=1e-9)
        assert others[name].priority < 7
    assert others["t/0"].priority == 7
    assert others["t/0"].drop_rate == 0
    # It gets only the remaining capacity, which is less than without a reservation.
    assert (
        others["t/0"].success_rate
        < {r.filter: r for r in droppable.table.rows()}["t/0"].success_rate
    )


def test_overlapping_reservations_are_refused_together() -> None:
    document = site_with_qos_1(reserved_budgets=[{"role": "crew", "share": 0.3}])
    document["subscribers"] = [subscriber_entry("command", "t/#", "t/1", qos=1)]
    plan = plan_document(document)
    assert {entry.priority for entry in plan.assignment} == {7}
    (crew, all_roles) = plan.report.overcommitted
    assert crew.reserved == pytest.approx(1.2)
    assert all_roles.reserved == pytest.approx(1.2)
    assert plan.table.switches()[1].utilization == pytest.approx(1.2)


def test_budget_limits_reservations_of_its_role() -> None:
    budgets = [{"role": "crew", "share": 0.5}]
    plan = plan_document(site_with_qos_1(0, 1, 2, 3, reserved_budgets=budgets))
    (over,) = plan.report.overcommitted
    assert (over.role, over.switch) == ("crew", "s1")
    assert over.excess == pytest.approx(0.8 - 0.5)
    classes = {name: entry.priority for name, entry in entries_by_filter(plan).items()}
    assert [classes[name] for name in ("t/2", "t/3")] == [7, 7]
    assert {entries_by_filter(plan)[name].drop_rate for name in ("t/2", "t/3")} == {0.0}


def test_budget_does_not_limit_other_roles() -> None:
    document = site_with_qos_1(*range(6), reserved_budgets=[{"role": "crew", "share": 0.4}])
    chief_entry = subscriber_entry("chief", "t/0", qos=1)
    document["subscribers"].append({**chief_entry, "role": "command"})
    plan = plan_document(document)
    # The undroppable load of all roles together exceeds the capacity of the switch.
    assert [over.role for over in plan.report.overcommitted] == ["crew", None]
    chief = next(entry for entry in plan.assignment if entry.subscriber == "chief")
    assert chief.priority == 0


def test_qos_1_does_not_increase_priority_beyond_the_budget() -> None:
    """Even if all subscriptions have QoS 1, the higher classes get only the budget."""
    droppable = site_with_qos_1(reserved_budgets=[{"role": "crew", "share": 0.2}])
    droppable["subscribers"].append(subscriber_entry("rival", *TOPICS))
    reserved = site_with_qos_1(reserved_budgets=[{"role": "crew", "share": 0.2}])
    reserved["subscribers"].append(subscriber_entry("rival", *TOPICS, qos=1))
    before, after = plan_document(droppable), plan_document(reserved)

    def rate_in_higher_classes(plan: Plan) -> float:
        rows = [row for row in plan.table.rows() if row.subscriber == "rival"]
        return sum(row.offered_events_per_second for row in rows if row.priority < 7)

    assert rate_in_higher_classes(after) <= 0.2 * 40_000 / 800 + 1e-9
    assert rate_in_higher_classes(after) < rate_in_higher_classes(before)


def test_events_of_overlapping_filters_are_reserved_once() -> None:
    document = site_with_qos_1()
    document["subscribers"] = [subscriber_entry("command", "t/0", "t/#", "+/0", "#", qos=1)]
    document["planning"]["flows_per_subscriber"] = 1
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 60_000.0
    plan = plan_document(document)
    assert plan.report.overcommitted == ()
    assert {entry.priority for entry in plan.assignment} == {0}
    assert plan.table.switches()[1].utilization == pytest.approx(0.8)


def test_small_reservation_is_granted_after_a_refused_large_one() -> None:
    document = site_with_qos_1(0, 1, reserved_budgets=[{"role": "crew", "share": 0.3}])
    document["publishers"][0]["publications"][0]["rate_per_second"] = 100.0
    document["subscribers"][0]["subscriptions"][0]["utility"]["weight"] = 1000.0
    plan = entries_by_filter(plan_document(document))
    assert plan["t/0"].priority == 7
    assert plan["t/1"].priority < 7


def test_reserved_events_are_not_dropped_on_switches_in_series() -> None:
    document = path_of_two_switches()
    document.pop("assignment")
    document["subscribers"] = [subscriber_entry("command", "smoke/1", "heat/1", switch="s2")]
    without_utility = document["subscribers"][0]["subscriptions"][1]
    without_utility["qos"], without_utility["utility"]["weight"] = 1, 0.0
    for switch in document["network"]["switches"][1:]:
        switch["bandwidth_bits_per_second"] = 4e4
    for row, rate in ((0, 100.0), (2, 1.0)):
        document["publishers"][0]["publications"][row]["rate_per_second"] = rate
    plan = plan_document(document, solver="cvxpy")
    assert plan.report.solver == "cvxpy"
    assert entries_by_filter(plan)["heat/1"].drop_rate == 0
    assert plan.planned_scenario.assignment == plan.assignment


@pytest.mark.parametrize("solver", ["kkt", "cvxpy"])
def test_reservations_without_remaining_capacity_drop_all_others(solver: Any) -> None:
    document = site_with_qos_1(0, bandwidth=16_000.0, rho_tolerance=0.5)
    high_utility = document["subscribers"][0]["subscriptions"][1]
    high_utility["utility"] = {"kind": "power", "weight": 1e4, "exponent": 0.01}
    document["publishers"][0]["publications"][5]["rate_per_second"] = 0.0
    plan = plan_document(document, solver=solver)
    drops = {name: entry.drop_rate for name, entry in entries_by_filter(plan).items()}
    assert drops == {"t/0": 0, "t/1": 1, "t/2": 1, "t/3": 1, "t/4": 1, "t/5": 0}
    assert plan.report.utility_gap == 0


def test_two_budgets_of_one_role_are_rejected() -> None:
    two_budgets = [{"role": "crew", "share": 0.2}, {"role": "crew", "share": 0.3}]
    with pytest.raises(WireError, match=r"reserved_budgets: .*more than one budget for crew"):
        from_plain(Scenario, site_with_qos_1(reserved_budgets=two_budgets))

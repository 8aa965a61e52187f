"""QoS 1 and 2: flows of their own, never dropped, within what their role may reserve."""

from typing import Any

import pytest
from small_site import Document, path_of_two_switches, published, site, subscribed, topic

from firedex.planning import Plan, plan_scenario
from firedex.wire import Assignment, Scenario, WireError, from_plain

TOPICS = [f"t/{n}" for n in range(6)]
"""10 events of 800 bits a second each."""


def site_with(*acknowledged: int, bandwidth: float = 40_000.0, **planning: Any) -> Document:
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[published("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscribed("command", *TOPICS)],
        planning=planning,
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        subscription["utility"]["weight"] = float(len(TOPICS) - rank)
        subscription["qos"] = int(rank in acknowledged)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    return document


def plan_of(document: Document, **policies: Any) -> Plan:
    return plan_scenario(from_plain(Scenario, document), **policies)


def entries(plan: Plan) -> dict[str, Assignment]:
    return {entry.filter: entry for entry in plan.assignment}


@pytest.mark.parametrize("flows", [2, 3, 4, 6, 8])
def test_kinds_never_share_a_flow(flows: int) -> None:
    plan = entries(plan_of(site_with(1, 4, flows_per_subscriber=flows)))
    acknowledged = {plan[name].flow for name in ("t/1", "t/4")}
    others = {plan[name].flow for name in TOPICS if name not in ("t/1", "t/4")}
    assert not acknowledged & others
    assert len(acknowledged | others) == min(flows, 6)
    assert plan["t/1"].drop_rate == plan["t/4"].drop_rate == 0


def test_classes_follow_the_rank_whatever_the_kind() -> None:
    plan = entries(plan_of(site_with(1, 4)))
    assert [plan[name].priority for name in TOPICS] == [0, 1, 2, 3, 4, 5]


def test_what_is_reserved_is_not_there_for_others() -> None:
    plan = plan_of(site_with(4, 5))
    drops = {name: entry.drop_rate for name, entry in entries(plan).items()}
    assert plan.table.switches()[1].utilization == pytest.approx(0.9)
    assert sum(1 - drops[name] for name in TOPICS[:4]) == pytest.approx(4.5 - 2)


def test_one_flow_for_both_kinds_drops_nothing_and_says_so() -> None:
    plan = plan_of(site_with(3, flows_per_subscriber=1))
    assert {entry.drop_rate for entry in plan.assignment} == {0.0}
    assert plan.report.undropped_subscribers == ("command",)


def test_everything_acknowledged_within_the_bandwidth() -> None:
    plan = plan_of(site_with(*range(6), bandwidth=60_000.0))
    assert {entry.drop_rate for entry in plan.assignment} == {0.0}
    assert plan.report.overcommitted == ()


@pytest.mark.parametrize("policy", ["optimized", "deadline-aware", "flat", "exponential"])
def test_more_than_there_is_degrades_and_names_the_switch_and_the_excess(policy: str) -> None:
    plan = plan_of(site_with(*range(6)), drop_policy=policy)
    (over,) = plan.report.overcommitted
    assert (over.switch, over.queue, over.role) == ("s1", "s1 to hosts", None)
    assert over.reserved == pytest.approx(1.2)
    assert over.available == pytest.approx(0.9)
    assert over.excess == pytest.approx(0.3)
    assert over.excess_bits_per_second == pytest.approx(12_000)
    assert {entry.drop_rate for entry in plan.assignment} == {0.0}


def test_the_worthiest_are_served_within_the_budget_and_the_rest_last() -> None:
    plan = plan_of(site_with(*range(6)))
    classes = {name: entry.priority for name, entry in entries(plan).items()}
    # 4.5 of the six fit
    assert classes["t/4"] == classes["t/5"] == 7
    assert max(classes[name] for name in TOPICS[:4]) < 7


def test_what_is_over_budget_takes_nothing_from_the_others() -> None:
    budgets = [{"role": "crew", "share": 0.1}]
    fair = plan_of(site_with(reserved_budgets=budgets))
    greedy = plan_of(site_with(0, reserved_budgets=budgets))
    without = site_with(reserved_budgets=budgets)
    del without["subscribers"][0]["subscriptions"][0]
    alone = {row.filter: row for row in plan_of(without).table.rows()}
    others = {row.filter: row for row in greedy.table.rows()}
    for name in TOPICS[1:]:
        assert others[name].success_rate == pytest.approx(alone[name].success_rate, abs=1e-9)
        assert others[name].priority < 7
    assert others["t/0"].priority == 7
    assert others["t/0"].drop_rate == 0
    # and it gets what is left, which is less than it had by asking for nothing
    assert others["t/0"].success_rate < {r.filter: r for r in fair.table.rows()}["t/0"].success_rate


def test_a_refused_filter_does_not_let_an_overlapping_one_through() -> None:
    document = site_with(reserved_budgets=[{"role": "crew", "share": 0.3}])
    document["subscribers"] = [subscribed("command", "t/#", "t/1", qos=1)]
    plan = plan_of(document)
    assert {entry.priority for entry in plan.assignment} == {7}
    (crew, everybody) = plan.report.overcommitted
    assert crew.reserved == pytest.approx(1.2)
    assert everybody.reserved == pytest.approx(1.2)
    assert plan.table.switches()[1].utilization == pytest.approx(1.2)


def test_a_roles_budget_limits_what_it_reserves() -> None:
    budgets = [{"role": "crew", "share": 0.5}]
    plan = plan_of(site_with(0, 1, 2, 3, reserved_budgets=budgets))
    (over,) = plan.report.overcommitted
    assert (over.role, over.switch) == ("crew", "s1")
    assert over.excess == pytest.approx(0.8 - 0.5)
    classes = {name: entry.priority for name, entry in entries(plan).items()}
    assert [classes[name] for name in ("t/2", "t/3")] == [7, 7]
    assert {entries(plan)[name].drop_rate for name in ("t/2", "t/3")} == {0.0}


def test_a_budget_is_the_roles_and_nobody_elses() -> None:
    document = site_with(*range(6), reserved_budgets=[{"role": "crew", "share": 0.4}])
    modest = subscribed("chief", "t/0", qos=1)
    document["subscribers"].append({**modest, "role": "command"})
    plan = plan_of(document)
    # and with everybody's, the switch is too small for what is never dropped
    assert [over.role for over in plan.report.overcommitted] == ["crew", None]
    chief = next(entry for entry in plan.assignment if entry.subscriber == "chief")
    assert chief.priority == 0


def test_asking_for_qos_1_does_not_buy_priority() -> None:
    """Everything at QoS 1 gets no more into the higher classes than the budget holds."""
    fair = site_with(reserved_budgets=[{"role": "crew", "share": 0.2}])
    fair["subscribers"].append(subscribed("rival", *TOPICS))
    greedy = site_with(reserved_budgets=[{"role": "crew", "share": 0.2}])
    greedy["subscribers"].append(subscribed("rival", *TOPICS, qos=1))
    before, after = plan_of(fair), plan_of(greedy)

    def served(plan: Plan) -> float:
        rows = [row for row in plan.table.rows() if row.subscriber == "rival"]
        return sum(row.offered_events_per_second for row in rows if row.priority < 7)

    assert served(after) <= 0.2 * 40_000 / 800 + 1e-9
    assert served(after) < served(before)


def test_events_that_come_once_are_reserved_once() -> None:
    document = site_with()
    document["subscribers"] = [subscribed("command", "t/0", "t/#", "+/0", "#", qos=1)]
    document["planning"]["flows_per_subscriber"] = 1
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 60_000.0
    plan = plan_of(document)
    assert plan.report.overcommitted == ()
    assert {entry.priority for entry in plan.assignment} == {0}
    assert plan.table.switches()[1].utilization == pytest.approx(0.8)


def test_a_small_reservation_is_not_refused_for_a_large_one_before_it() -> None:
    document = site_with(0, 1, reserved_budgets=[{"role": "crew", "share": 0.3}])
    document["publishers"][0]["publications"][0]["rate_per_second"] = 100.0
    document["subscribers"][0]["subscriptions"][0]["utility"]["weight"] = 1000.0
    plan = entries(plan_of(document))
    assert plan["t/0"].priority == 7
    assert plan["t/1"].priority < 7


def test_nothing_of_a_reservation_is_dropped_on_switches_in_line_either() -> None:
    document = path_of_two_switches()
    document.pop("assignment")
    document["subscribers"] = [subscribed("command", "smoke/1", "heat/1", switch="s2")]
    worthless = document["subscribers"][0]["subscriptions"][1]
    worthless["qos"], worthless["utility"]["weight"] = 1, 0.0
    for switch in document["network"]["switches"][1:]:
        switch["bandwidth_bits_per_second"] = 4e4
    for row, rate in ((0, 100.0), (2, 1.0)):
        document["publishers"][0]["publications"][row]["rate_per_second"] = rate
    plan = plan_of(document, solver="cvxpy")
    assert plan.report.solver == "cvxpy"
    assert entries(plan)["heat/1"].drop_rate == 0
    assert plan.planned.assignment == plan.assignment


@pytest.mark.parametrize("solver", ["kkt", "cvxpy"])
def test_where_reservations_leave_no_room_nothing_else_passes(solver: Any) -> None:
    document = site_with(0, bandwidth=16_000.0, rho_tolerance=0.5)
    hungry = document["subscribers"][0]["subscriptions"][1]
    hungry["utility"] = {"kind": "power", "weight": 1e4, "exponent": 0.01}
    document["publishers"][0]["publications"][5]["rate_per_second"] = 0.0
    plan = plan_of(document, solver=solver)
    drops = {name: entry.drop_rate for name, entry in entries(plan).items()}
    assert drops == {"t/0": 0, "t/1": 1, "t/2": 1, "t/3": 1, "t/4": 1, "t/5": 0}
    assert plan.report.utility_gap == 0


def test_a_role_has_one_budget() -> None:
    doubled = [{"role": "crew", "share": 0.2}, {"role": "crew", "share": 0.3}]
    with pytest.raises(WireError, match=r"reserved_budgets: .*more than one budget for crew"):
        from_plain(Scenario, site_with(reserved_budgets=doubled))

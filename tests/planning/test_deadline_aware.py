"""Drop rates that keep deadlines, on sites small enough to see through."""

from typing import Any

import pytest
from small_site import Document, published, site, subscribed, topic

from firedex.planning import Plan, plan_scenario
from firedex.wire import Scenario, from_plain
from firedex_models import predict

TOPICS = [f"t/{n}" for n in range(6)]


def hurried(bandwidth: float = 40_000.0, **each: Any) -> Document:
    """Six topics of 10 events a second, worth 6, 5, … 1; together 48 kbit/s, one class each."""
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[published("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscribed("command", *TOPICS, **each)],
        planning={"drop_policy": "deadline-aware"},
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        subscription["utility"]["weight"] = float(len(TOPICS) - rank)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    return document


def plan_of(document: Document, **policies: Any) -> Plan:
    return plan_scenario(from_plain(Scenario, document), **policies)


def load(plan: Plan) -> float:
    return plan.table.switches()[1].utilization


def test_loose_deadlines_let_the_link_be_used_further() -> None:
    aware = plan_of(hurried(deadline_seconds=60.0))
    assert 0.98 < load(aware) < 1
    assert all(missed.delay_seconds is None for missed in aware.report.unmet_deadlines)
    assert load(plan_of(hurried(deadline_seconds=60.0), drop_policy="optimized")) < 0.91


def test_without_deadlines_it_is_the_optimized_policy() -> None:
    aware, optimized = plan_of(hurried()), plan_of(hurried(), drop_policy="optimized")
    assert [e.drop_rate for e in aware.assignment] == pytest.approx(
        [e.drop_rate for e in optimized.assignment], abs=1e-9
    )


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("deadline", [0.3, 1.0, 3.0])
def test_what_is_called_met_is_met_at_its_percentile(deadline: float, level: float) -> None:
    plan = plan_of(hurried(deadline_seconds=deadline, deadline_percentile=level))
    missed = {entry.filter for entry in plan.report.unmet_deadlines}
    again = predict(plan.planned)
    within = again.mixture.percentile(level)
    for row, name in enumerate(TOPICS):
        if name not in missed:
            assert within[row] <= deadline * (1 + 1e-9)
    assert len(missed) < len(TOPICS)


def test_a_tighter_deadline_leaves_more_of_the_link_free() -> None:
    loads = [load(plan_of(hurried(deadline_seconds=d))) for d in (60.0, 10.0, 5.0)]
    assert loads[0] > loads[1] > loads[2] > 0.9


def test_classes_without_deadlines_keep_to_the_tolerance() -> None:
    document = hurried(deadline_seconds=60.0)
    del document["subscribers"][0]["subscriptions"][5]["deadline_seconds"]
    assert load(plan_of(document)) == pytest.approx(0.9, abs=1e-6)


def test_what_cannot_be_met_is_named_with_how_late_it_is() -> None:
    # a packet alone takes 20 ms on this link
    document = hurried(deadline_seconds=60.0)
    document["subscribers"][0]["subscriptions"][2]["deadline_seconds"] = 0.015
    late = [m for m in plan_of(document).report.unmet_deadlines if m.delay_seconds is not None]
    (missed,) = late
    assert missed.filter == "t/2"
    assert missed.delay_seconds is not None
    assert missed.delay_seconds >= 0.02
    assert missed.late_by_seconds == pytest.approx(missed.delay_seconds - 0.015)


def test_one_hopeless_deadline_does_not_spoil_the_others() -> None:
    document = hurried(deadline_seconds=60.0)
    document["subscribers"][0]["subscriptions"][2]["deadline_seconds"] = 0.015
    calm = plan_of(hurried(deadline_seconds=60.0))
    spoilt = plan_of(document)
    assert spoilt.table.utility.sum() >= calm.table.utility.sum() * 0.95


def test_acknowledged_events_are_not_dropped_for_a_deadline() -> None:
    document = hurried(deadline_seconds=0.3)
    for subscription in document["subscribers"][0]["subscriptions"][:2]:
        subscription["qos"] = 1
    drops = {entry.filter: entry.drop_rate for entry in plan_of(document).assignment}
    assert (drops["t/0"], drops["t/1"]) == (0.0, 0.0)


def test_switches_in_line_share_the_deadline() -> None:
    document = hurried(deadline_seconds=2.0)
    document["network"] = {
        "switches": [
            {"id": "s1", "bandwidth_bits_per_second": 1e6},
            {"id": "s2", "bandwidth_bits_per_second": 40_000.0},
            {"id": "s3", "bandwidth_bits_per_second": 35_000.0},
        ],
        "links": [
            {"from": "s1", "to": "s2", "bandwidth_bits_per_second": 50_000.0},
            {"from": "s2", "to": "s3", "bandwidth_bits_per_second": 30_000.0},
        ],
        "broker": {"id": "b1", "switch": "s1"},
    }
    document["publishers"][0]["switch"] = "s1"
    document["subscribers"][0]["switch"] = "s3"
    document["subscribers"].append(
        subscribed("near", "t/0", "t/3", "t/4", "t/5", switch="s2", deadline_seconds=3.0)
    )
    plan = plan_of(document)
    assert plan.report.solver == "cvxpy"
    missed = {(entry.subscriber, entry.filter) for entry in plan.report.unmet_deadlines}
    rows = predict(plan.planned).rows()
    for row in rows:
        assert row.deadline_met == ((row.subscriber, row.filter) not in missed)
    assert len(missed) < len(rows)

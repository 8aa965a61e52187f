"""Drop rates of the deadline-aware policy on small sites."""

from typing import Any

import pytest

from firedex.planning import Plan, plan_scenario
from firedex.wire import Scenario, from_plain
from firedex_models import predict
from tests.support.small_site import Document, publisher_entry, site, subscriber_entry, topic

pytestmark = pytest.mark.slow

TOPICS = [f"t/{n}" for n in range(6)]


def site_with_deadlines(bandwidth: float = 40_000.0, **options: Any) -> Document:
    """Return six topics with weights 6, 5, … 1 and 10 events/s each; 48 kbit/s in total."""
    document = site(
        topics=[topic(name) for name in TOPICS],
        publishers=[publisher_entry("p0", dict.fromkeys(TOPICS, 10.0))],
        subscribers=[subscriber_entry("command", *TOPICS, **options)],
        planning={"drop_policy": "deadline-aware"},
    )
    del document["assignment"]
    for rank, subscription in enumerate(document["subscribers"][0]["subscriptions"]):
        subscription["utility"]["weight"] = float(len(TOPICS) - rank)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    return document


def plan_document(document: Document, **policies: Any) -> Plan:
    return plan_scenario(from_plain(Scenario, document), **policies)


def link_load(plan: Plan) -> float:
    return plan.table.switches()[1].utilization


def test_loose_deadlines_allow_a_higher_load() -> None:
    aware = plan_document(site_with_deadlines(deadline_seconds=60.0))
    assert 0.98 < link_load(aware) < 1
    assert all(missed.delay_seconds is None for missed in aware.report.unmet_deadlines)
    assert (
        link_load(
            plan_document(site_with_deadlines(deadline_seconds=60.0), drop_policy="optimized")
        )
        < 0.91
    )


def test_deadline_aware_equals_optimized_without_deadlines() -> None:
    aware, optimized = (
        plan_document(site_with_deadlines()),
        plan_document(site_with_deadlines(), drop_policy="optimized"),
    )
    assert [e.drop_rate for e in aware.assignment] == pytest.approx(
        [e.drop_rate for e in optimized.assignment], abs=1e-9
    )


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("deadline", [0.3, 1.0, 3.0])
def test_deadlines_reported_as_met_are_met_at_their_percentile(
    deadline: float, level: float
) -> None:
    plan = plan_document(site_with_deadlines(deadline_seconds=deadline, deadline_percentile=level))
    missed = {entry.filter for entry in plan.report.unmet_deadlines}
    prediction = predict(plan.planned_scenario)
    delays = prediction.mixture.percentile(level)
    for row, name in enumerate(TOPICS):
        if name not in missed:
            assert delays[row] <= deadline * (1 + 1e-9)
    assert len(missed) < len(TOPICS)


def test_tighter_deadline_reduces_the_load() -> None:
    loads = [
        link_load(plan_document(site_with_deadlines(deadline_seconds=d))) for d in (60.0, 10.0, 5.0)
    ]
    assert loads[0] > loads[1] > loads[2] > 0.9


def test_class_without_deadline_keeps_the_load_limit() -> None:
    document = site_with_deadlines(deadline_seconds=60.0)
    del document["subscribers"][0]["subscriptions"][5]["deadline_seconds"]
    assert link_load(plan_document(document)) == pytest.approx(0.9, abs=1e-6)


def test_impossible_deadline_is_reported_with_its_delay() -> None:
    # a packet alone takes 20 ms on this link
    document = site_with_deadlines(deadline_seconds=60.0)
    document["subscribers"][0]["subscriptions"][2]["deadline_seconds"] = 0.015
    late_entries = [
        m for m in plan_document(document).report.unmet_deadlines if m.delay_seconds is not None
    ]
    (missed,) = late_entries
    assert missed.filter == "t/2"
    assert missed.delay_seconds is not None
    assert missed.delay_seconds >= 0.02
    assert missed.late_by_seconds == pytest.approx(missed.delay_seconds - 0.015)


def test_impossible_deadline_does_not_affect_others() -> None:
    document = site_with_deadlines(deadline_seconds=60.0)
    document["subscribers"][0]["subscriptions"][2]["deadline_seconds"] = 0.015
    unchanged = plan_document(site_with_deadlines(deadline_seconds=60.0))
    changed = plan_document(document)
    assert changed.table.utility.sum() >= unchanged.table.utility.sum() * 0.95


def test_acknowledged_events_are_not_dropped_to_meet_a_deadline() -> None:
    document = site_with_deadlines(deadline_seconds=0.3)
    for subscription in document["subscribers"][0]["subscriptions"][:2]:
        subscription["qos"] = 1
    drops = {entry.filter: entry.drop_rate for entry in plan_document(document).assignment}
    assert (drops["t/0"], drops["t/1"]) == (0.0, 0.0)


def test_deadlines_on_switches_in_series_agree_with_prediction() -> None:
    document = site_with_deadlines(deadline_seconds=2.0)
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
        subscriber_entry("near", "t/0", "t/3", "t/4", "t/5", switch="s2", deadline_seconds=3.0)
    )
    plan = plan_document(document)
    assert plan.report.solver == "cvxpy"
    missed = {(entry.subscriber, entry.filter) for entry in plan.report.unmet_deadlines}
    rows = predict(plan.planned_scenario).rows()
    for row in rows:
        assert row.deadline_met == ((row.subscriber, row.filter) not in missed)
    assert len(missed) < len(rows)

"""Simulations of whole sites: complete, reproducible, and in agreement with the model."""

from typing import Any

import numpy as np
import pytest

from firedex.planning import plan_scenario
from firedex.scenario.table_2 import Table2
from firedex.wire import Scenario, from_plain
from firedex_models import MissingAssignment, predict
from firedex_models.simulation import (
    SimulationSettings,
    SimulationSummary,
    simulate,
    simulation_report,
)
from firedex_models.simulation import replication as replication_module
from firedex_models.simulation.batch import AT_BUFFER, AT_GATEWAY, AT_METER, DELIVERED, ON_LINK
from tests.support.small_site import (
    Document,
    assign,
    path_of_two_switches,
    publisher_entry,
    site,
    subscriber_entry,
    topic,
)

pytestmark = pytest.mark.slow


def simulate_document(document: Document, **settings: Any) -> SimulationSummary:
    chosen = SimulationSettings(**{"replications": 4, "publications": 40_000, **settings})
    return simulate(from_plain(Scenario, document), chosen)


def busy_site(**changes: Any) -> Document:
    """Return three topics with two subscribers, on a link with a load of 80 %."""
    names = ["smoke/1", "smoke/2", "heat/1"]
    document = site(
        subscribers=[
            subscriber_entry("command", "smoke/#", "heat/1"),
            subscriber_entry("crew", *names),
        ],
        assignment=[
            assign("command", "smoke/#", 0, 0),
            assign("command", "heat/1", 1, 1, 0.25),
            *(assign("crew", name, row, row) for row, name in enumerate(names)),
        ],
        **changes,
    )
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 130 * 800 / 0.8
    return document


def test_same_seed_gives_same_result_with_any_number_of_workers() -> None:
    one = simulation_report(simulate_document(busy_site(), seed=3, workers=1, replications=3))
    two = simulation_report(simulate_document(busy_site(), seed=3, workers=2, replications=3))
    other = simulation_report(simulate_document(busy_site(), seed=4, replications=3))
    assert one == two
    assert one != other


def test_results_do_not_depend_on_time_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate_document(busy_site(), publications=100_000)
    monkeypatch.setattr(replication_module, "PUBLICATIONS_PER_SLICE", 500)
    sliced = simulate_document(busy_site(), publications=100_000)
    for name in ("delay_mean_seconds", "success_rate"):
        first, second = getattr(whole.classes, name), getattr(sliced.classes, name)
        difference = np.abs(first.mean - second.mean)
        assert (difference <= 2 * (first.half_width + second.half_width) + 1e-9).all()


@pytest.mark.parametrize("arrivals", ["fan-out", "independent"])
def test_simulated_means_agree_with_model(arrivals: Any) -> None:
    document = busy_site()
    summary = simulate_document(document, publications=200_000, arrivals=arrivals, replications=6)
    expected = predict(from_plain(Scenario, document), model=arrivals)
    estimate = summary.subscriptions.delay_mean_seconds
    error = np.abs(estimate.mean - expected.delay_mean_seconds)
    assert (error <= 0.02 * expected.delay_mean_seconds + 1.5 * estimate.half_width).all()
    assert summary.subscriptions.success_rate.mean == pytest.approx(
        expected.success_rate, abs=0.005
    )


def test_every_notification_has_exactly_one_outcome() -> None:
    document = path_of_two_switches()
    document["subscribers"] = [
        subscriber_entry("command", "smoke/1", "smoke/2", "heat/1", switch="s2")
    ]
    document["assignment"] = [
        assign("command", "smoke/1", 0, 0, 0.3),
        assign("command", "smoke/2", 1, 1, 0.4, enforced_at="meter"),
        assign("command", "heat/1", 2, 2),
    ]
    s1, s2 = document["network"]["switches"][1:]
    s1["error_rate"] = 0.1
    s2["bandwidth_bits_per_second"] = 20_000.0
    s2["buffer"] = {"kind": "per-class-head-drop", "packets": 5}
    summary = simulate_document(document)
    outcomes = summary.outcomes
    assert outcomes.sum() == sum(tally.notifications for tally in summary.tallies)
    for outcome in (DELIVERED, AT_GATEWAY, AT_METER, AT_BUFFER, ON_LINK):
        assert outcomes[outcome] > 0
    rates = summary.subscriptions.success_rate.mean
    assert rates[0] == pytest.approx(0.7 * 0.9, abs=0.01)
    assert rates[1] == pytest.approx(0.6 * 0.9, abs=0.01)
    assert rates[2] < 0.9


def test_flow_carries_an_event_of_overlapping_filters_once() -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/#", "smoke/1")])
    document["assignment"] = [assign("command", "smoke/#"), assign("command", "smoke/1")]
    summary = simulate_document(document, publications=7_000, replications=1)
    notifications = sum(tally.notifications for tally in summary.tallies)
    assert notifications == pytest.approx(7_000 * 30 / 70, rel=0.1)
    offered = summary.subscriptions.offered
    assert offered[1] == pytest.approx(offered[0] / 3, rel=0.1)


def test_periodic_publisher_publishes_at_exact_intervals() -> None:
    document = site(
        topics=[topic("t")],
        publishers=[publisher_entry("p0", {"t": 10.0})],
        subscribers=[subscriber_entry("command", "t")],
        assignment=[assign("command", "t")],
    )
    document["publishers"][0]["publications"][0]["arrivals"] = "periodic"
    summary = simulate_document(document, publications=1_000, replications=2)
    assert {tally.publications for tally in summary.tallies} <= {999, 1000, 1001}
    # There is no other traffic: the delay is the transmission time of both links.
    assert summary.subscriptions.delay_mean_seconds.mean[0] == pytest.approx(800 / 1e6, rel=1e-3)


def test_topic_without_publications_has_no_results() -> None:
    document = site(topics=[topic("t"), topic("unpublished")])
    document["publishers"] = [publisher_entry("p0", {"t": 10.0})]
    document["subscribers"] = [subscriber_entry("command", "t", "unpublished")]
    document["assignment"] = [assign("command", "t"), assign("command", "unpublished", 1, 1)]
    report = simulation_report(simulate_document(document, publications=500, replications=2))
    assert report.subscriptions[1].success_rate is None
    assert report.subscriptions[1].delay_mean_seconds is None
    assert report.subscriptions[0].success_rate == 1


def test_empty_site_is_simulated() -> None:
    document = site(publishers=[], subscribers=[], assignment=[])
    report = simulation_report(simulate_document(document, publications=10, replications=2))
    assert report.publications == 0
    assert report.achieved_utility_rate == 1


def test_simulation_without_assignment_is_rejected() -> None:
    document = site()
    del document["assignment"]
    with pytest.raises(MissingAssignment):
        simulate_document(document)


@pytest.mark.parametrize("buffer", ["shared-push-out", "per-class-head-drop"])
def test_overloaded_link_delivers_high_classes_first(buffer: str) -> None:
    document = busy_site()
    switch = document["network"]["switches"][1]
    switch["bandwidth_bits_per_second"] = 60 * 800.0
    switch["buffer"] = {"kind": buffer, "packets": 50}
    summary = simulate_document(document)
    expected = predict(from_plain(Scenario, document))
    success = summary.classes.success_rate.mean
    assert success[0] == pytest.approx(1.0, abs=0.02)
    assert success[-1] < 0.05
    assert success == pytest.approx([row.success_rate for row in expected.classes()], abs=0.06)


@pytest.mark.parametrize("policy", ["deadline-aware", "exponential"])
def test_simulated_table_2_agrees_with_plan(policy: Any) -> None:
    scenario = Table2(deadline_seconds=0.5).scenario()
    plan = plan_scenario(scenario, drop_policy=policy)
    settings = SimulationSettings(replications=4, publications=300_000, workers=1)
    summary = simulate(plan.planned_scenario, settings)
    assert summary.achieved_utility_rate == pytest.approx(
        plan.table.achieved_utility_rate, abs=0.005
    )
    assert summary.timely_utility == pytest.approx(plan.table.timely_utility, rel=0.01)
    mean = summary.classes.delay_mean_seconds
    for row in plan.table.classes():
        if row.delay_mean_seconds is None or row.success_rate < 0.01:
            continue
        priority = row.priority
        margin = 0.02 * row.delay_mean_seconds + 2 * mean.half_width[priority]
        assert abs(mean.mean[priority] - row.delay_mean_seconds) <= margin


def test_deadlines_predicted_as_met_are_met_in_simulation() -> None:
    scenario = Table2(deadline_seconds=0.05).scenario()
    plan = plan_scenario(scenario, drop_policy="deadline-aware")
    summary = simulate(
        plan.planned_scenario, SimulationSettings(replications=5, publications=400_000)
    )
    unmet = {(d.subscriber, d.filter) for d in plan.report.unmet_deadlines}
    p95 = summary.subscriptions.delay_p95_seconds
    names = [(s.id, each.filter) for s in scenario.subscribers for each in s.subscriptions]
    checked = 0
    for row, name in enumerate(names):
        if name not in unmet and np.isfinite(p95.mean[row]):
            checked += 1
            assert p95.mean[row] - p95.half_width[row] <= 0.05 * 1.02, name
    assert checked > 300


def test_simulated_htb_link_agrees_with_model() -> None:
    document = busy_site()
    switch = document["network"]["switches"][1]
    switch["burst_bytes"] = 300.0
    switch["guaranteed_bits_per_second"] = 3_000.0
    scenario = from_plain(Scenario, document)
    summary = simulate(scenario, SimulationSettings(replications=5, publications=150_000))
    expected = predict(scenario).delay_mean_seconds
    plain = predict(from_plain(Scenario, busy_site())).delay_mean_seconds
    estimate = summary.subscriptions.delay_mean_seconds
    assert (np.abs(estimate.mean / expected - 1) < 0.25 + estimate.half_width / expected).all()
    assert (estimate.mean < plain).any()


def test_time_slices_do_not_matter_with_slow_lookup_and_shaper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = site()
    switch = document["network"]["switches"][1]
    switch["in_packets_per_second"] = 33.0
    switch["guaranteed_bits_per_second"] = 1_000.0
    whole = simulate_document(document, publications=30_000).subscriptions.delay_mean_seconds
    monkeypatch.setattr(replication_module, "PUBLICATIONS_PER_SLICE", 200)
    sliced = simulate_document(document, publications=30_000).subscriptions.delay_mean_seconds
    assert abs(whole.mean[0] - sliced.mean[0]) <= 2 * (whole.half_width[0] + sliced.half_width[0])


@pytest.mark.parametrize("burst", [0.0, 50.0, 100.0, 2_000.0])
def test_burst_shortens_transmission_of_a_packet_as_predicted(burst: float) -> None:
    document = site(
        topics=[topic("t", 300)],
        publishers=[publisher_entry("p0", {"t": 1.0})],
        subscribers=[subscriber_entry("command", "t")],
        assignment=[assign("command", "t")],
    )
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 1e12
    document["network"]["switches"][1]["burst_bytes"] = burst
    summary = simulate_document(document, publications=2_000, replications=2)
    expected = predict(from_plain(Scenario, document)).delay_mean_seconds[0]
    assert summary.subscriptions.delay_mean_seconds.mean[0] == pytest.approx(
        expected, rel=0.02, abs=2e-5
    )


def test_confidence_interval_needs_two_replications() -> None:
    report = simulation_report(simulate_document(busy_site(), replications=1, publications=2_000))
    assert report.classes[0].delay_mean_half_width_seconds is None
    assert report.classes[0].delay_mean_seconds is not None


def test_independent_streams_wait_less_than_fan_out_streams() -> None:
    fan_out = simulate_document(busy_site(), publications=100_000)
    independent = simulate_document(busy_site(), publications=100_000, arrivals="independent")
    assert (
        independent.classes.delay_mean_seconds.mean[-1]
        < fan_out.classes.delay_mean_seconds.mean[-1]
    )

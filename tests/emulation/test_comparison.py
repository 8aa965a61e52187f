"""Test the statistics of a run: expected, delivered and timely events, predictions, outages."""

from pathlib import Path

import numpy as np
import pytest

from firedex_emulation.measurement.comparison import ModeMeasurement, measure_mode
from firedex_emulation.measurement.observation import Action, Observation, SubscriberSession
from firedex_emulation.measurement.statistics import Estimate, longest_loss, mean_over_time, verdict
from tests.support.emulated_site import (
    BEGAN,
    active_configuration,
    make_observation,
    scenario,
    write_deliveries,
)

SMOKE = [(f"s{number}", "smoke/1", BEGAN + number / 10) for number in range(100)]
HEAT = [(f"h{number}", "heat/1", BEGAN + number / 10) for number in range(100)]


def measure(observation: Observation, folder: Path) -> ModeMeasurement:
    return measure_mode(scenario(), "firedex", observation, folder)


def test_delivered_late_and_lost_events_are_distinguished(tmp_path: Path) -> None:
    arrivals = [
        (event, topic, "smoke/#", at, 0.1 if number < 60 else 0.7)
        for number, (event, topic, at) in enumerate(SMOKE[:80])
    ]
    arrivals += [(event, topic, "heat/1", at, 2.0) for event, topic, at in HEAT]
    write_deliveries(tmp_path, "firedex", arrivals)
    mode = measure(make_observation(scenario(), [*SMOKE, *HEAT]), tmp_path)
    smoke, heat = mode.classes
    assert (smoke.sent, smoke.delivered, smoke.success_measured) == (100, 80, 0.8)
    assert smoke.timely_measured == 0.6
    assert smoke.delay_mean_seconds == pytest.approx(0.25)
    assert (heat.delivered, heat.timely_measured) == (100, 1.0)  # it has no deadline
    assert smoke.success_predicted == heat.success_predicted == 1.0
    assert smoke.verdict == "success predicted too high; delay predicted too low"
    maximum_utility = 3 * np.log(2) + 1
    assert mode.utility.achieved == pytest.approx((3 * np.log1p(0.8) + 1) / maximum_utility)
    assert mode.utility.timely == pytest.approx((3 * np.log1p(0.6) + 1) / maximum_utility)
    assert [row.filter for row in mode.subscriptions] == ["smoke/#", "heat/1"]


def test_duplicate_events_count_once(tmp_path: Path) -> None:
    first = [(event, topic, "smoke/#", at, 0.1) for event, topic, at in SMOKE]
    duplicates = [(event, topic, "smoke/#", at, 0.9) for event, topic, at in SMOKE]
    write_deliveries(tmp_path, "firedex", first + duplicates)
    (smoke,) = measure(make_observation(scenario(), SMOKE), tmp_path).classes
    assert (smoke.delivered, smoke.delay_p99_seconds) == (100, pytest.approx(0.1))


def test_no_events_are_expected_while_a_subscriber_is_absent(tmp_path: Path) -> None:
    write_deliveries(tmp_path, "firedex", [])
    session = SubscriberSession(
        asked_at=BEGAN + 2, ready_at=BEGAN + 3, left_at=BEGAN + 7, signed_off_at=BEGAN + 7
    )
    mode = measure(make_observation(scenario(), SMOKE, sessions=[session]), tmp_path)
    assert mode.classes[0].sent == 21  # from second 3 until two seconds before it left
    unsuccessful = SubscriberSession(asked_at=BEGAN, left_at=BEGAN + 10)
    assert (
        measure(make_observation(scenario(), SMOKE, sessions=[unsuccessful]), tmp_path).classes
        == ()
    )


def test_event_counts_for_the_class_that_was_active_when_it_was_published(tmp_path: Path) -> None:
    write_deliveries(tmp_path, "firedex", [(e, t, "smoke/#", at, 0.1) for e, t, at in SMOKE])
    plans = [
        active_configuration(scenario(), 1, -1.0, {"smoke/#": 0, "heat/1": 1}),
        active_configuration(scenario(), 2, 4.0, {"smoke/#": 1, "heat/1": 0}),
    ]
    mode = measure(make_observation(scenario(), SMOKE, plans=plans), tmp_path)
    assert [(row.priority, row.sent) for row in mode.classes] == [(0, 40), (1, 60)]
    assert mode.by_second[3].priority == 0
    assert (mode.by_second[4].priority, mode.by_second[4].sent) == (1, 10)


def test_duration_of_a_change_ends_when_the_last_subscriber_has_moved(tmp_path: Path) -> None:
    write_deliveries(
        tmp_path,
        "firedex",
        [(e, t, "smoke/#", at, 0.1) for e, t, at in SMOKE if at != SMOKE[43][2]],
    )
    plans = [
        active_configuration(scenario(), 1, -1.0, {"smoke/#": 0, "heat/1": 1}, through_change=4),
        active_configuration(scenario(), 2, 4.25, {"smoke/#": 0, "heat/1": 1}, through_change=5),
    ]
    session = SubscriberSession(
        asked_at=BEGAN - 2,
        ready_at=BEGAN - 1,
        left_at=BEGAN + 12,
        settled=((1, BEGAN - 1), (2, BEGAN + 4.5)),
    )
    action = Action(
        description="phase overhaul",
        kind="bandwidth",
        asked_at=BEGAN + 4,
        done_at=BEGAN + 4.1,
        change=5,
    )
    mode = measure(
        make_observation(scenario(), SMOKE, plans=plans, sessions=[session], actions=[action]),
        tmp_path,
    )
    (change,) = mode.reconfigurations
    assert change.at_seconds == pytest.approx(4)
    assert change.acknowledged_seconds == pytest.approx(0.25)
    assert change.moved_seconds == pytest.approx(0.5)
    assert change.lost_highest == 1


def test_outage_of_a_class_is_that_of_its_longest_affected_subscription(tmp_path: Path) -> None:
    delivered_events = [(e, t, at) for e, t, at in SMOKE if not BEGAN + 3 <= at < BEGAN + 4.55]
    write_deliveries(
        tmp_path, "firedex", [(e, t, "smoke/#", at, 0.01) for e, t, at in delivered_events]
    )
    action = Action(
        description="gateway killed",
        kind="kill",
        asked_at=BEGAN + 3,
        done_at=BEGAN + 4.4,
        is_failure=True,
    )
    link_restored = Action(description="a–b up", kind="link", asked_at=BEGAN + 6, done_at=BEGAN + 6)
    mode = measure(make_observation(scenario(), SMOKE, actions=[action, link_restored]), tmp_path)
    (outage,) = mode.outages  # restoring a link is not a failure
    assert (outage.priority, outage.lost, outage.subscription) == (
        0,
        16,
        "command smoke/#",
    )
    assert outage.seconds == pytest.approx(1.6)
    assert [change.lost_highest for change in mode.reconfigurations] == [None, None]


def test_duration_of_a_join_ends_when_the_subscriber_is_ready(tmp_path: Path) -> None:
    write_deliveries(tmp_path, "firedex", [])
    plan = active_configuration(scenario(), 2, 3.5, {"smoke/#": 0, "heat/1": 1})
    session = SubscriberSession(
        asked_at=BEGAN + 3,
        ready_at=BEGAN + 5,
        left_at=BEGAN + 12,
        settled=((2, BEGAN + 5.0),),
    )
    mode = measure(make_observation(scenario(), SMOKE, plans=[plan], sessions=[session]), tmp_path)
    (change,) = mode.reconfigurations
    assert (change.kind, change.moved_seconds) == ("join", pytest.approx(2.0))
    unsuccessful = SubscriberSession(asked_at=BEGAN + 3, ready_at=BEGAN + 5, left_at=BEGAN + 12)
    mode = measure(
        make_observation(scenario(), SMOKE, plans=[plan], sessions=[unsuccessful]), tmp_path
    )
    assert mode.reconfigurations[0].moved_seconds is None


def test_observation_round_trips_through_json() -> None:
    action = Action(description="a", kind="kill", asked_at=1.0, done_at=2.0)
    observation = make_observation(scenario(), SMOKE, actions=[action])
    assert Observation.from_json(observation.to_json()) == observation


# -- statistics ------------------------------------------------------------------------------------


def test_intervals_of_correlated_values_contain_the_mean() -> None:
    """Use an AR(1) sequence, whose naive interval would be four times too narrow."""
    generator = np.random.default_rng(5)
    intervals_with_the_mean = 0
    for _ in range(200):
        noise = generator.normal(size=4000)
        values = np.empty(4000)
        level = 0.0
        for number, step in enumerate(noise):
            level = 0.9 * level + step
            values[number] = level
        estimate = mean_over_time(values, np.arange(4000.0), 0.0, 4000.0)
        assert estimate is not None
        assert estimate.half_width is not None
        intervals_with_the_mean += abs(estimate.mean) <= estimate.half_width
    assert 180 <= intervals_with_the_mean <= 199


def test_estimate_from_few_values_has_no_interval() -> None:
    assert mean_over_time(np.array([]), np.array([]), 0, 10) is None
    one = mean_over_time(np.array([2.0]), np.array([1.0]), 0, 10)
    assert one == Estimate(mean=2.0, half_width=None)


def test_outage_lasts_until_the_next_delivery() -> None:
    published = np.array([1.0, 2.0, 3.0, 5.0, 6.0, 9.0])

    def outage_without(*numbers: int) -> float:
        delivered = ~np.isin(np.arange(6), numbers)
        return longest_loss(published, delivered, 1.5, 8.0)

    assert outage_without() == 0.0
    assert outage_without(1, 2, 4) == 3.0
    assert outage_without(4) == 2.0  # until the end of the interval
    assert outage_without(0, 5) == 0.0  # outside the interval


@pytest.mark.parametrize(
    ("delay", "half", "predicted", "expected"),
    [
        (0.100, 0.01, 0.119, "agrees"),
        (0.100, 0.01, 0.121, "delay predicted too high"),
        (0.100, 0.03, 0.121, "delay: run too short to decide"),
        (0.003, 0.0001, 0.0045, "agrees"),
        (0.100, None, 0.05, "delay predicted too low"),
        (0.100, 0.01, None, "no delay predicted"),
    ],
)
def test_verdict_depends_on_the_delay_and_its_interval(
    delay: float, half: float | None, predicted: float | None, expected: str
) -> None:
    full_success = Estimate(mean=1.0, half_width=0.0)
    assert verdict(full_success, 0.98, Estimate(mean=delay, half_width=half), predicted) == expected


def test_missing_prediction_has_no_verdict() -> None:
    assert verdict(Estimate(mean=1.0, half_width=None), None, None, None) == "not predicted"

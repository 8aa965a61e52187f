"""From what was sent and what arrived to figures: owed, delivered, in time, predicted, outages."""

from pathlib import Path

import numpy as np
import pytest
from emulated_site import BEGAN, in_force, observed, record, scenario

from firedex_emulation.measured_statistics import Estimate, longest_loss, mean_over_time
from firedex_emulation.measurement import WayMeasurement, measure_way
from firedex_emulation.observation import Action, Observation, Visit
from firedex_emulation.verdict import verdict

SMOKE = [(f"s{number}", "smoke/1", BEGAN + number / 10) for number in range(100)]
HEAT = [(f"h{number}", "heat/1", BEGAN + number / 10) for number in range(100)]


def measured(observation: Observation, folder: Path) -> WayMeasurement:
    return measure_way(scenario(), "firedex", observation, folder)


def test_delivered_late_and_lost_are_told_apart(tmp_path: Path) -> None:
    arrivals = [
        (event, topic, "smoke/#", at, 0.1 if number < 60 else 0.7)
        for number, (event, topic, at) in enumerate(SMOKE[:80])
    ]
    arrivals += [(event, topic, "heat/1", at, 2.0) for event, topic, at in HEAT]
    record(tmp_path, "firedex", arrivals)
    way = measured(observed(scenario(), [*SMOKE, *HEAT]), tmp_path)
    smoke, heat = way.classes
    assert (smoke.sent, smoke.delivered, smoke.success_measured) == (100, 80, 0.8)
    assert smoke.timely_measured == 0.6
    assert smoke.delay_mean_seconds == pytest.approx(0.25)
    assert (heat.delivered, heat.timely_measured) == (100, 1.0)  # it has no deadline
    assert smoke.success_predicted == heat.success_predicted == 1.0
    assert smoke.verdict == "success predicted too high; delay predicted too low"
    most = 3 * np.log(2) + 1
    assert way.utility.achieved == pytest.approx((3 * np.log1p(0.8) + 1) / most)
    assert way.utility.timely == pytest.approx((3 * np.log1p(0.6) + 1) / most)
    assert [row.filter for row in way.subscriptions] == ["smoke/#", "heat/1"]


def test_what_arrives_twice_counts_once(tmp_path: Path) -> None:
    first = [(event, topic, "smoke/#", at, 0.1) for event, topic, at in SMOKE]
    again = [(event, topic, "smoke/#", at, 0.9) for event, topic, at in SMOKE]
    record(tmp_path, "firedex", first + again)
    (smoke,) = measured(observed(scenario(), SMOKE), tmp_path).classes
    assert (smoke.delivered, smoke.delay_p99_seconds) == (100, pytest.approx(0.1))


def test_nothing_is_owed_to_who_is_not_there(tmp_path: Path) -> None:
    record(tmp_path, "firedex", [])
    stay = Visit(asked_at=BEGAN + 2, ready_at=BEGAN + 3, left_at=BEGAN + 7, signed_off_at=BEGAN + 7)
    way = measured(observed(scenario(), SMOKE, visits=[stay]), tmp_path)
    assert way.classes[0].sent == 21  # from second 3 until two seconds before it left
    never = Visit(asked_at=BEGAN, left_at=BEGAN + 10)
    assert measured(observed(scenario(), SMOKE, visits=[never]), tmp_path).classes == ()


def test_an_event_is_of_the_class_that_was_in_force(tmp_path: Path) -> None:
    record(tmp_path, "firedex", [(e, t, "smoke/#", at, 0.1) for e, t, at in SMOKE])
    plans = [
        in_force(scenario(), 1, -1.0, {"smoke/#": 0, "heat/1": 1}),
        in_force(scenario(), 2, 4.0, {"smoke/#": 1, "heat/1": 0}),
    ]
    way = measured(observed(scenario(), SMOKE, plans=plans), tmp_path)
    assert [(row.priority, row.sent) for row in way.classes] == [(0, 40), (1, 60)]
    assert way.by_second[3].priority == 0
    assert (way.by_second[4].priority, way.by_second[4].sent) == (1, 10)


def test_a_change_is_timed_from_request_to_the_last_move(tmp_path: Path) -> None:
    record(
        tmp_path,
        "firedex",
        [(e, t, "smoke/#", at, 0.1) for e, t, at in SMOKE if at != SMOKE[43][2]],
    )
    plans = [
        in_force(scenario(), 1, -1.0, {"smoke/#": 0, "heat/1": 1}, through_change=4),
        in_force(scenario(), 2, 4.25, {"smoke/#": 0, "heat/1": 1}, through_change=5),
    ]
    stay = Visit(
        asked_at=BEGAN - 2,
        ready_at=BEGAN - 1,
        left_at=BEGAN + 12,
        settled=((1, BEGAN - 1), (2, BEGAN + 4.5)),
    )
    action = Action(
        what="phase overhaul", kind="bandwidth", asked_at=BEGAN + 4, done_at=BEGAN + 4.1, change=5
    )
    way = measured(
        observed(scenario(), SMOKE, plans=plans, visits=[stay], actions=[action]), tmp_path
    )
    (change,) = way.reconfigurations
    assert change.at_seconds == pytest.approx(4)
    assert change.acknowledged_seconds == pytest.approx(0.25)
    assert change.moved_seconds == pytest.approx(0.5)
    assert change.lost_highest == 1


def test_an_outage_is_of_who_was_without_for_longest(tmp_path: Path) -> None:
    kept = [(e, t, at) for e, t, at in SMOKE if not BEGAN + 3 <= at < BEGAN + 4.55]
    record(tmp_path, "firedex", [(e, t, "smoke/#", at, 0.01) for e, t, at in kept])
    action = Action(
        what="gateway killed",
        kind="kill",
        asked_at=BEGAN + 3,
        done_at=BEGAN + 4.4,
        is_failure=True,
    )
    back = Action(what="a–b up", kind="link", asked_at=BEGAN + 6, done_at=BEGAN + 6)
    way = measured(observed(scenario(), SMOKE, actions=[action, back]), tmp_path)
    (outage,) = way.outages  # a link that comes back is no failure
    assert (outage.priority, outage.lost, outage.whose) == (0, 16, "command smoke/#")
    assert outage.seconds == pytest.approx(1.6)
    assert [change.lost_highest for change in way.reconfigurations] == [None, None]


def test_who_joins_has_moved_when_it_is_in(tmp_path: Path) -> None:
    record(tmp_path, "firedex", [])
    plan = in_force(scenario(), 2, 3.5, {"smoke/#": 0, "heat/1": 1})
    stay = Visit(
        asked_at=BEGAN + 3,
        ready_at=BEGAN + 5,
        left_at=BEGAN + 12,
        settled=((2, BEGAN + 5.0),),
    )
    way = measured(observed(scenario(), SMOKE, plans=[plan], visits=[stay]), tmp_path)
    (change,) = way.reconfigurations
    assert (change.kind, change.moved_seconds) == ("join", pytest.approx(2.0))
    never = Visit(asked_at=BEGAN + 3, ready_at=BEGAN + 5, left_at=BEGAN + 12)
    way = measured(observed(scenario(), SMOKE, plans=[plan], visits=[never]), tmp_path)
    assert way.reconfigurations[0].moved_seconds is None


def test_observations_come_back_from_their_file() -> None:
    action = Action(what="a", kind="kill", asked_at=1.0, done_at=2.0)
    observation = observed(scenario(), SMOKE, actions=[action])
    assert Observation.from_json(observation.to_json()) == observation


# -- statistics ------------------------------------------------------------------------------------


def test_intervals_of_correlated_values_hold_their_mean() -> None:
    """An AR(1) sequence, whose naive interval would be four times too narrow."""
    generator = np.random.default_rng(5)
    held = 0
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
        held += abs(estimate.mean) <= estimate.half_width
    assert 180 <= held <= 199


def test_too_little_has_no_interval() -> None:
    assert mean_over_time(np.array([]), np.array([]), 0, 10) is None
    one = mean_over_time(np.array([2.0]), np.array([1.0]), 0, 10)
    assert one == Estimate(mean=2.0, half_width=None)


def test_an_outage_lasts_until_something_comes() -> None:
    published = np.array([1.0, 2.0, 3.0, 5.0, 6.0, 9.0])

    def lost(*numbers: int) -> float:
        came = ~np.isin(np.arange(6), numbers)
        return longest_loss(published, came, 1.5, 8.0)

    assert lost() == 0.0
    assert lost(1, 2, 4) == 3.0
    assert lost(4) == 2.0  # until the end of what is looked at
    assert lost(0, 5) == 0.0  # outside


@pytest.mark.parametrize(
    ("delay", "half", "predicted", "said"),
    [
        (0.100, 0.01, 0.119, "agrees"),
        (0.100, 0.01, 0.121, "delay predicted too high"),
        (0.100, 0.03, 0.121, "delay: too short a run to tell"),
        (0.003, 0.0001, 0.0045, "agrees"),
        (0.100, None, 0.05, "delay predicted too low"),
        (0.100, 0.01, None, "no delay predicted"),
    ],
)
def test_verdicts(delay: float, half: float | None, predicted: float | None, said: str) -> None:
    whole = Estimate(mean=1.0, half_width=0.0)
    assert verdict(whole, 0.98, Estimate(mean=delay, half_width=half), predicted) == said


def test_what_was_not_predicted_is_not_judged() -> None:
    assert verdict(Estimate(mean=1.0, half_width=None), None, None, None) == "not predicted"

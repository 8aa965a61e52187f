"""Built-in scenarios with twice the traffic that the network carries, in all modes."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from firedex.scenario import read_scenario
from firedex.wire import Buffer, Scenario
from tests.on_switches.runs import Modes, by_class, run_emulation

SECONDS = 8
DEADLINE_SECONDS = 0.5
WITH_AND_WITHOUT = "none,firedex"
ALL = "none,priority,firedex"
PACKETS_PER_SECOND = {"high-rise": 430, "warehouse": 530}
"""Offered packets per second: a full buffer of N packets delays a packet by N / this value."""


def overloaded_scenario(name: str, buffered_seconds: float) -> Scenario:
    """Return a built-in scenario without timeline, with equal deadlines and buffers."""
    scenario = read_scenario(f"builtin:{name}")
    subscribers = tuple(
        replace(
            who,
            subscriptions=tuple(
                replace(each, deadline_seconds=DEADLINE_SECONDS) for each in who.subscriptions
            ),
        )
        for who in scenario.subscribers
    )
    packets = round(PACKETS_PER_SECOND[name] * buffered_seconds)
    switches = tuple(
        replace(each, buffer=Buffer(kind="per-class-head-drop", packets=packets))
        if each.managed
        else each
        for each in scenario.network.switches
    )
    return replace(
        scenario,
        subscribers=subscribers,
        network=replace(scenario.network, switches=switches),
        timeline=(),
        phases=(),
    )


@cache
def run_modes(name: str, buffered_seconds: float, compared: str, folder: Path) -> Modes:
    return run_emulation(
        overloaded_scenario(name, buffered_seconds),
        "--compare",
        compared,
        "--duration",
        str(SECONDS),
        out=folder / f"{name}-{buffered_seconds}-{compared}",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("overload")


def timely_utility(mode: dict[str, Any]) -> float:
    return float(mode["utility"]["timely"])


def test_highest_class_is_delivered_fifty_times_sooner_with_firedex(folder: Path) -> None:
    found = run_modes("high-rise", 1.0, WITH_AND_WITHOUT, folder)
    highest, without = by_class(found["firedex"])[0], by_class(found["none"])[0]
    assert highest["success_measured"] >= 0.995
    assert highest["delay_p50_seconds"] < without["delay_p50_seconds"] / 50


def test_timely_utility_is_three_quarters_instead_of_nearly_zero(
    folder: Path,
) -> None:
    found = run_modes("high-rise", 1.0, WITH_AND_WITHOUT, folder)
    assert timely_utility(found["firedex"]) >= 0.75
    assert timely_utility(found["none"]) <= 0.15


@pytest.mark.long
def test_timely_utility_with_short_buffers_is_a_quarter_higher(folder: Path) -> None:
    found = run_modes("high-rise", 0.2, WITH_AND_WITHOUT, folder)
    assert timely_utility(found["firedex"]) >= 1.25 * timely_utility(found["none"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "buffered_seconds"), [("high-rise", 1.0), ("high-rise", 0.2), ("warehouse", 1.0)]
)
def test_drop_rates_give_more_utility_than_priorities_alone(
    folder: Path, name: str, buffered_seconds: float
) -> None:
    found = run_modes(name, buffered_seconds, ALL, folder)
    assert timely_utility(found["firedex"]) > timely_utility(found["priority"])


@pytest.mark.long
def test_over_tcp_no_class_waits_behind_old_events(folder: Path) -> None:
    options = ["--transport", "tcp", "--compare", "none,firedex", "--duration", str(2 * SECONDS)]
    found = run_emulation(overloaded_scenario("high-rise", 1.0), *options, out=folder / "tcp")
    classes = by_class(found["firedex"])
    assert classes[0]["success_measured"] >= 0.995
    delay_without = by_class(found["none"])[0]["delay_p95_seconds"]
    assert delay_without > 2.0
    for row in classes.values():
        assert (row["delay_p95_seconds"] or 0.0) < delay_without / 2

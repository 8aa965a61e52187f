"""A burning building with twice the traffic that its channel carries: what FireDeX makes of it."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from emulated import Ways, by_class, emulated

from firedex.scenario_file import read_scenario
from firedex.wire import Buffer, Scenario

SECONDS = 8
DEADLINE_SECONDS = 0.5
ALL = "none,priority,firedex"
PACKETS_PER_SECOND = {"high-rise": 430, "warehouse": 530}
"""What is offered, in packets: a full buffer of N packets makes an arrival wait N over this."""


def overloaded(name: str, buffered_seconds: float) -> Scenario:
    """A built-in scenario without its timeline, all deadlines and buffers the same."""
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
def ways(name: str, buffered_seconds: float, compared: str, folder: Path) -> Ways:
    return emulated(
        overloaded(name, buffered_seconds),
        "--compare",
        compared,
        "--duration",
        str(SECONDS),
        out=folder / f"{name}-{buffered_seconds}",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("overload")


def timely(way: dict[str, Any]) -> float:
    return float(way["utility"]["timely"])


def test_the_highest_class_arrives_and_fifty_times_sooner(folder: Path) -> None:
    found = ways("high-rise", 1.0, ALL, folder)
    highest, without = by_class(found["firedex"])[0], by_class(found["none"])[0]
    assert highest["success_measured"] >= 0.995
    assert highest["delay_p50_seconds"] < without["delay_p50_seconds"] / 50


def test_what_comes_in_time_is_worth_three_quarters_instead_of_nearly_nothing(
    folder: Path,
) -> None:
    found = ways("high-rise", 1.0, ALL, folder)
    assert timely(found["firedex"]) >= 0.75
    assert timely(found["none"]) <= 0.15


@pytest.mark.long
def test_with_short_buffers_it_is_worth_a_quarter_more(folder: Path) -> None:
    found = ways("high-rise", 0.2, "none,firedex", folder)
    assert timely(found["firedex"]) >= 1.25 * timely(found["none"])


@pytest.mark.parametrize(
    ("name", "buffered_seconds"),
    [
        ("high-rise", 1.0),
        pytest.param("high-rise", 0.2, marks=pytest.mark.long),
        pytest.param("warehouse", 1.0, marks=pytest.mark.long),
    ],
)
def test_drop_rates_are_worth_more_than_priorities_alone(
    folder: Path, name: str, buffered_seconds: float
) -> None:
    found = ways(name, buffered_seconds, ALL, folder)
    assert timely(found["firedex"]) > timely(found["priority"])


@pytest.mark.long
def test_over_tcp_too_and_nobody_waits_behind_old_events(folder: Path) -> None:
    options = ["--transport", "tcp", "--compare", "none,firedex", "--duration", str(2 * SECONDS)]
    found = emulated(overloaded("high-rise", 1.0), *options, out=folder / "tcp")
    classes = by_class(found["firedex"])
    assert classes[0]["success_measured"] >= 0.995
    waited = by_class(found["none"])[0]["delay_p95_seconds"]
    assert waited > 2.0
    for row in classes.values():
        assert (row["delay_p95_seconds"] or 0.0) < waited / 2

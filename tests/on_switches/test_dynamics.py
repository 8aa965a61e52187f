"""Runs with many changes: joins, leaves, a phase, less bandwidth, link failures, killed parts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firedex.scenario import read_scenario
from firedex.wire import LogUtility, Scenario, Subscriber, Subscription
from firedex.wire.incident import PhaseProfile, ProfileRule
from firedex.wire.scenario import (
    BandwidthChange,
    Join,
    KillablePart,
    Leave,
    LinkChange,
    PartKill,
    PhaseStart,
    TimelineEvent,
)
from tests.on_switches.runs import Modes, run_emulation, run_without_stalls

EXAMPLES = Path(__file__).parents[2] / "examples"
VISITORS = 5
PARTS: tuple[KillablePart, ...] = ("switch-agent", "controller", "service", "gateway", "broker")
KILL_EVERY_SECONDS = 7.0
MAX_REROUTE_SECONDS = 7.0


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How often the visitors join and for how long, and when the link is down."""

    visits: int
    visit_seconds: float
    link_down: float
    link_up: float
    seconds: float


FEW = Changes(visits=2, visit_seconds=7.0, link_down=18.0, link_up=25.0, seconds=29.0)
MANY = Changes(visits=5, visit_seconds=4.0, link_down=26.0, link_up=34.0, seconds=38.0)


def visitor(number: int) -> Subscriber:
    """Return a subscriber of alarms and cameras in one of the halls."""
    return Subscriber(
        id=f"visitor{number}",
        switch=f"hall{1 + number % 2}",
        subscriptions=(
            Subscription(filter="alarm/#", utility=LogUtility(weight=50.0), deadline_seconds=0.5),
            Subscription(filter="camera/#", utility=LogUtility(weight=0.5)),
        ),
    )


def campus(changes: Changes) -> Scenario:
    """Return the campus with five visitors that join and leave, and other changes."""
    scenario = read_scenario(str(EXAMPLES / "campus.yaml"))
    timeline: list[TimelineEvent] = [
        PhaseStart(at_seconds=10.0, phase="suppression"),
        BandwidthChange(at_seconds=15.0, switch="hall1", bandwidth_bits_per_second=1.2e6),
        LinkChange(from_="core1", to="hall2", at_seconds=changes.link_down, up=False),
        LinkChange(from_="core1", to="hall2", at_seconds=changes.link_up, up=True),
    ]
    for number in range(VISITORS):
        for session in range(changes.visits):
            at = 1.0 + number * 1.3 + session * (changes.visit_seconds + 2.5)
            left = at + changes.visit_seconds
            timeline.append(Join(at_seconds=at, subscriber=f"visitor{number}"))
            timeline.append(Leave(at_seconds=left, subscriber=f"visitor{number}"))
    return replace(
        scenario,
        transport="udp",
        subscribers=(*scenario.subscribers, *(visitor(number) for number in range(VISITORS))),
        phases=(
            PhaseProfile(phase="size-up", rules=()),
            PhaseProfile(phase="suppression", rules=(ProfileRule(filter="camera/#", factor=3.0),)),
        ),
        timeline=tuple(timeline),
    )


def lost_outside_the_outage(mode: dict[str, Any], changes: Changes) -> int:
    """Count the lost events of the highest class while no link was down."""
    return sum(
        row["sent"] - row["delivered"]
        for row in mode["by_second"]
        if row["priority"] == 0
        and not -1 <= row["second"] - changes.link_down <= MAX_REROUTE_SECONDS
    )


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.long)],
                ids=["few changes", "many changes"])  # fmt: skip
def changes(request: pytest.FixtureRequest) -> Changes:
    found: Changes = request.param
    return found


@pytest.fixture(scope="module")
def run_with_changes(changes: Changes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("churn")

    def run(number: int) -> Modes:
        options = ["--compare", "firedex", "--topology", "campus"]
        options += ["--duration", str(changes.seconds)]
        return run_emulation(campus(changes), *options, out=folder / str(number))

    return run_without_stalls(
        run, lambda modes: not lost_outside_the_outage(modes["firedex"], changes)
    )["firedex"]


def test_highest_class_loses_events_only_while_the_link_is_down(
    run_with_changes: dict[str, Any], changes: Changes
) -> None:
    assert lost_outside_the_outage(run_with_changes, changes) == 0
    sent = sum(row["sent"] for row in run_with_changes["by_second"] if row["priority"] == 0)
    assert sent > 25 * changes.seconds


def test_every_change_became_active(run_with_changes: dict[str, Any], changes: Changes) -> None:
    found = run_with_changes["reconfigurations"]
    kinds = [change["kind"] for change in found]
    assert kinds.count("join") == kinds.count("leave") == VISITORS * changes.visits
    assert {"phase", "bandwidth", "link"} <= set(kinds)
    assert [change for change in found if change["error_message"]] == []
    planned = [change for change in found if change["kind"] != "link"]
    durations = [change["acknowledged_seconds"] for change in planned]
    assert None not in durations
    moved = [change["moved_seconds"] for change in planned]
    assert None not in moved
    # A ratio within the run, because the speed of machines differs: no change waits for many plans.
    assert np.quantile(moved, 0.95) < 5 * np.median(durations)


def test_traffic_is_rerouted_around_a_failed_link(run_with_changes: dict[str, Any]) -> None:
    (outage,) = (
        row
        for row in run_with_changes["outages"]
        if row["description"] == "core1–hall2 down" and row["priority"] == 0
    )
    assert outage["seconds"] < MAX_REROUTE_SECONDS


@pytest.fixture(scope="module")
def run_with_kills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scenario = replace(
        read_scenario("builtin:high-rise"),
        phases=(),
        timeline=tuple(
            PartKill(at_seconds=2.0 + number * KILL_EVERY_SECONDS, part=part, down_seconds=1.0)
            for number, part in enumerate(PARTS)
        ),
    )
    seconds = 2.0 + len(PARTS) * KILL_EVERY_SECONDS
    folder = tmp_path_factory.mktemp("kills")

    def run(number: int) -> Modes:
        options = ["--compare", "firedex", "--duration", str(seconds)]
        return run_emulation(scenario, *options, out=folder / str(number))

    return run_without_stalls(run, lambda modes: not late_recoveries(modes["firedex"]))["firedex"]


def late_recoveries(mode: dict[str, Any]) -> list[str]:
    """Return the outages of the highest class that lasted almost until the next kill."""
    return [
        row["description"]
        for row in mode["outages"]
        if row["priority"] == 0 and row["seconds"] >= KILL_EVERY_SECONDS - 1
    ]


@pytest.mark.parametrize("part", PARTS)
def test_killed_part_recovers(run_with_kills: dict[str, Any], part: str) -> None:
    descriptions = [row["description"] for row in run_with_kills["outages"] if row["priority"] == 0]
    assert descriptions.count(f"{part} killed") == 1
    assert f"{part} killed" not in late_recoveries(run_with_kills)


def test_killing_a_part_that_only_plans_loses_no_event(run_with_kills: dict[str, Any]) -> None:
    """Only broker and gateway carry events; rules and connections stay without the other parts."""
    lost = {
        row["description"]: row["lost"] for row in run_with_kills["outages"] if row["priority"] == 0
    }
    for part in ("switch-agent", "controller", "service"):
        assert lost[f"{part} killed"] == 0, lost


def test_highest_classes_are_delivered_after_all_failures(run_with_kills: dict[str, Any]) -> None:
    last = [
        row for row in run_with_kills["by_second"] if row["second"] >= run_with_kills["seconds"] - 2
    ]
    highest = [row for row in last if row["priority"] <= 1]
    assert sum(row["sent"] for row in highest) > 0
    lost = sum(row["sent"] - row["delivered"] for row in highest)
    assert lost <= 0.1 * sum(row["sent"] for row in highest)

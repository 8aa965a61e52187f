"""Every job by its command: reports and exit codes."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from firedex.scenario import read_scenario
from firedex.wire import to_plain
from firedex_spark.command import spark as spark_command
from firedex_spark.fleet.job import (
    FLEET_SCHEMA,
)
from tests.spark.simulated_deliveries import four_classes, simulate_records

pytestmark = pytest.mark.slow


def run(*arguments: str) -> str:
    result = CliRunner().invoke(spark_command, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("spark")
def test_every_command_writes_its_results(tmp_path: Path) -> None:
    folder_name = str(tmp_path)
    run("generate", "feedback", "--ratings", "5", "--out", folder_name)
    run("fit-utility-weights", f"{folder_name}/feedback", "--out", f"{folder_name}/weights")
    profiles = f"{folder_name}/weights/profiles.json"
    output = run(
        *("fit-utility-weights", f"{folder_name}/feedback", "--out", f"{folder_name}/again"),
        *("--previous", profiles, "--json"),
    )
    assert json.loads(output[output.index("{") :])["feedback_rows"] == 900
    run("generate", "fleet", "--sites", "3", "--subscriptions", "20", "--out", folder_name)
    run("plan-sites", f"{folder_name}/fleet.parquet", "--out", f"{folder_name}/plans")
    (tmp_path / "grid.yaml").write_text("network.switches.core.error_rate: [0.0, 0.1]\n")
    arguments = ("--replications", "1", "--publications", "300", "--out", f"{folder_name}/sweep")
    run(
        "simulate-sweep", "builtin:critical-event", "--grid", f"{folder_name}/grid.yaml", *arguments
    )
    scenario = tmp_path / "site.yaml"
    scenario.write_text(yaml.safe_dump({k: v for k, v in to_plain(four_classes()).items() if v}))
    simulate_records(tmp_path / "records", four_classes(), publications=2_000)
    run("calibrate", f"{folder_name}/records", str(scenario), "--out", f"{folder_name}/calibrated")
    assert read_scenario(f"{folder_name}/calibrated/calibrated.yaml").assignment
    for folder in ("weights", "sweep", "calibrated"):
        assert "</table>" in (tmp_path / folder / "report.html").read_text()
    assert len((tmp_path / "sweep" / "sweep.jsonl").read_text().splitlines()) == 2


@pytest.mark.usefixtures("spark")
def test_exit_codes_for_failed_sites_and_points(
    tmp_path: Path,
) -> None:
    folder_name = str(tmp_path)
    rows = [{"site": "tower", "scenario": "{}"}, {"site": None, "scenario": None}]
    pq.write_table(pa.Table.from_pylist(rows, schema=FLEET_SCHEMA), tmp_path / "fleet.parquet")
    arguments = ("plan-sites", f"{folder_name}/fleet.parquet", "--out", f"{folder_name}/plans")
    assert CliRunner().invoke(spark_command, arguments).exit_code == 1
    failed = json.loads((tmp_path / "plans" / "summary.json").read_text())["failed"]
    assert sorted(failed) == ["(no site)", "tower"]
    assert json.loads((tmp_path / "plans" / "quarantine.json").read_text()) == []
    sweep: tuple[str, ...] = (
        "simulate-sweep",
        "builtin:critical-event",
        "--grid",
        f"{folder_name}/grid.yaml",
    )
    sweep += ("--replications", "1", "--publications", "300", "--out", f"{folder_name}/sweep")
    grid = tmp_path / "grid.yaml"
    for values, code in (("[4e6, -1]", 1), ("[-1]", 2), ("4e6", 2)):
        grid.write_text(f"network.switches.core.bandwidth_bits_per_second: {values}\n")
        found = CliRunner().invoke(spark_command, sweep)
        assert found.exit_code == code, found.output
        assert "bandwidth_bits_per_second" in found.output
    lines = (tmp_path / "sweep" / "sweep.jsonl").read_text().splitlines()
    assert ["error" in json.loads(line) for line in lines] == [False, True]

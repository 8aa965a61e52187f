"""The command line of validate-delays."""

import json
import os
import shutil
import signal
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from firedex.wire import to_json
from firedex_models import predict
from firedex_spark.command import spark as spark_command
from tests.spark.simulated_deliveries import (
    add_drift,
)
from tests.spark.validation.four_classes_site import SCENARIO, write_broken_files
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(spark_command, words)
    return result.exit_code, result.output


@pytest.mark.usefixtures("spark")
def test_exit_code_is_1_if_a_prediction_does_not_hold(simulated: Path, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", str(tmp_path / "out")
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))
    words = ["validate-delays", "--predictions", str(plan), "--out", out]
    code, output = run(*words, str(simulated), "--json")
    assert code == 0, output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "within bounds" in page
    assert "data:image/png" in page
    assert pq.read_table(tmp_path / "out" / "measured.parquet").num_rows == 4 + 12
    assert json.loads((tmp_path / "out" / "quarantine.json").read_text()) == []
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for file in simulated.glob("*.parquet"):
        shutil.copy(file, wrong)
    add_drift(wrong, priority=3, growth=2.0)
    code, output = run(*words, str(wrong))
    assert code == 1, output
    assert "class 3" in output


@pytest.mark.usefixtures("spark")
def test_exit_code_of_a_stream_covers_all_files(simulated: Path, tmp_path: Path) -> None:
    records, plan = tmp_path / "records", tmp_path / "plan.json"
    records.mkdir()
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))
    words = ["validate-delays", str(records), "--predictions", str(plan), "--follow", "--once"]
    words += ["--out", str(tmp_path / "out")]
    code, output = run(*words)
    assert (code, "no delivery records found" in output) == (2, True), output
    write_broken_files(simulated, records)
    code, output = run(*words)
    assert (code, "no usable records" in output) == (2, True), output
    skipped = json.loads((tmp_path / "out" / "quarantine.json").read_text())
    assert {Path(bad["file"]).name for bad in skipped} == {"zz-broken.parquet", "short.parquet"}
    for number, file in enumerate(simulated.glob("*.parquet")):
        shutil.copy(file, records / f"old{number}.parquet")
    add_drift(records, priority=3, growth=2.0, files="old*.parquet")
    for file in records.glob("old*.parquet"):
        os.utime(file, (1.0, 1.0))  # as if written long before the others
    assert run(*words)[0] == 1
    assert run(*words)[0] == 1  # nothing new
    plan.write_text("{}")
    code, output = run(*words)
    assert (code, "invalid predictions" in output) == (2, True), output


@pytest.mark.usefixtures("spark")
def test_exit_code_is_2_if_nothing_can_be_judged(simulated: Path, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", str(tmp_path / "out")
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))
    words = ["validate-delays", str(simulated), "--predictions", str(plan), "--out", out]
    code, output = run(*words, "--site", "elsewhere")
    assert code == 2
    assert "records: site version 0; predictions: elsewhere version 0" in output
    code, output = run(*words, "--run", "another")
    assert (code, "no usable records" in output) == (2, True), output


@pytest.mark.usefixtures("spark")
def test_input_errors_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "plan.json").write_text("{}")
    out = ("--out", str(tmp_path / "out"))
    empty, plan = str(tmp_path / "empty"), str(tmp_path / "plan.json")
    code, output = run("validate-delays", empty, "--predictions", plan, *out)
    assert (code, "invalid predictions" in output) == (2, True)
    code, output = run("validate-delays", empty, "--predictions", empty, *out)
    assert (code, "no predictions found" in output) == (2, True)
    inside = ("--out", str(tmp_path / "empty" / "out"))
    code, output = run("validate-delays", empty, "--predictions", plan, *inside)
    assert (code, "is inside" in output) == (2, True), output
    code, output = run("fit-utility-weights", empty, *out)
    assert (code, "no feedback found" in output) == (2, True)


@pytest.mark.usefixtures("spark")
def test_interrupt_ends_the_stream_with_its_exit_code(simulated: Path, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))

    def interrupt() -> None:
        wait_until((out / "report.html").exists, "the first report", 300.0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=interrupt, daemon=True)
    thread.start()
    code, output = run(
        *("validate-delays", str(simulated), "--predictions", str(plan), "--follow"),
        *("--out", str(out)),
    )
    thread.join()
    assert code == 0, output
    assert "alarms: 0" in output

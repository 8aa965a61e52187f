"""validate-delays on Spark: whatever the order, the cuts and the interruptions."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from simulated_deliveries import (
    four_classes,
    judged_without_spark,
    plant_drift,
    predictions_of,
    write_simulated,
)

from firedex.wire import to_json
from firedex_models import predict
from firedex_spark import record_windows, validate_stream
from firedex_spark.arrange_records import arrange_records
from firedex_spark.command import spark as spark_command
from firedex_spark.errors import FileAway, StreamBroken
from firedex_spark.generated_records import RecordTruth, write_generated_records
from firedex_spark.prediction_files import (
    PredictedSubscription,
    read_predictions,
    write_predictions,
)
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
from firedex_spark.validate_delays import Validation, validate_delays
from firedex_spark.validate_stream import follow_delays

pytestmark = pytest.mark.xdist_group("spark")
PATIENCE_SECONDS = 300.0
SCENARIO = four_classes()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    write_simulated(folder, SCENARIO, replications=2, publications=8_000)
    return folder


def said() -> list[PredictedSubscription]:
    return [
        PredictedSubscription(site="site", configuration_version=0, prediction=row)
        for row in predictions_of(SCENARIO).values()
    ]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, simulated: Path) -> Validation:
    return validate_delays(spark, simulated, said())


def test_it_is_what_one_process_finds(whole: Validation, simulated: Path) -> None:
    assert list(whole.rows) == judged_without_spark(simulated, SCENARIO)
    classes = [row for row in whole.rows if row.subscriber is None]
    assert [row.priority for row in classes] == [0, 1, 2, 3]
    assert {row.verdict for row in whole.rows} == {"within bounds"}
    assert all(row.timely_fraction is not None for row in whole.rows)


def test_order_cuts_and_copies_change_nothing(
    spark: SparkSession,
    whole: Validation,
    simulated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scatter(simulated, tmp_path, parts=5)
    monkeypatch.setattr(record_windows, "ROWS_OF_A_WINDOW", 40_000)
    assert validate_delays(spark, tmp_path, said()).rows == whole.rows


def scatter(records: Path, into: Path, parts: int) -> None:
    """The same rows in another order, in other files, some of them twice."""
    table = pq.read_table(records, schema=DELIVERY_SCHEMA)
    random = np.random.default_rng(6)
    row = np.concatenate([np.arange(table.num_rows), random.integers(table.num_rows, size=2_000)])
    random.shuffle(row)
    into.mkdir(exist_ok=True)
    for number, some in enumerate(np.array_split(row, parts)):
        pq.write_table(table.take(pa.array(some)), into / f"part{number}.parquet")


def test_arranged_by_site_and_day_they_say_the_same(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    rows, _, _ = arrange_records(spark, simulated, tmp_path)
    assert [path.name for path in (tmp_path / "records").iterdir() if path.is_dir()] == [
        "site=site"
    ]
    days = [path.name for path in (tmp_path / "records" / "site=site").iterdir()]
    assert days == ["day=1970-01-01"]
    found = validate_delays(spark, tmp_path / "records", said())
    assert (found.records, found.rows) == (rows, whole.rows)


def test_bad_files_are_left_out_whole_however_late_that_shows(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    for file in simulated.glob("*.parquet"):
        shutil.copy(file, tmp_path)
    break_some(simulated, tmp_path)
    told: list[str] = []
    found = validate_delays(spark, tmp_path, said(), say=told.append)
    assert {bad.file.name for bad in found.left_out} == {"zz-broken.parquet", "short.parquet"}
    assert found.rows == whole.rows
    assert any("left out" in line and "zz-broken" in line for line in told)


def test_absurd_stamps_are_refused_and_the_rest_is_as_it_was(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    """In a file of their own, and within one; in one run, in a stream, and arranged by day."""
    records = tmp_path / "records"
    shutil.copytree(simulated, records)
    one = min(records.glob("*.parquet"))
    table = pq.read_table(one, schema=DELIVERY_SCHEMA)
    odd = table.filter(pc.equal(table["outcome"], "delivered")).slice(0, 4)
    far = pa.array([1e300, 1e25, 1e12, -1e13])
    for name in ("published_at_seconds", "received_at_seconds"):
        odd = odd.set_column(DELIVERY_SCHEMA.get_field_index(name), name, far)
    pq.write_table(odd, records / "odd.parquet")
    pq.write_table(pa.concat_tables([odd, table]).combine_chunks(), one)
    wanted = (whole.rows, {"a time is before 1970 or after the year 5138": 8})
    found = validate_delays(spark, records, said())
    assert (found.rows, found.refused) == wanted
    streamed: list[Validation] = []
    follow_delays(spark, records, said, tmp_path / "stream", once=True, told=streamed.append)
    assert (streamed[-1].rows, streamed[-1].refused) == wanted
    arrange_records(spark, records, tmp_path / "arranged")
    arranged = validate_delays(spark, tmp_path / "arranged" / "records", said())
    assert (arranged.rows, arranged.refused) == wanted


def break_some(records: Path, into: Path) -> None:
    """A file whose footer alone is whole, and one that is cut short."""
    content = bytearray(next(records.glob("*.parquet")).read_bytes())
    content[2_000:60_000] = bytes(58_000)
    (into / "zz-broken.parquet").write_bytes(content)
    (into / "short.parquet").write_bytes(content[:500])


def test_a_stream_too_leaves_bad_files_out(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, records)
    break_some(simulated, records)
    found: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=found.append)
    shutil.copy(other, records)
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert found[0].rows != whole.rows
    assert found[-1].rows == whole.rows
    left_out = {bad.file.name for bad in found[-1].left_out}
    assert left_out == {"zz-broken.parquet", "short.parquet"}


def test_a_flat_file_beside_those_by_site_is_left_out_and_they_go_on(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    place = records / "site=site"
    place.mkdir(parents=True)
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, place)
    found: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=found.append)
    shutil.copy(one, records / "stray.parquet")
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert found[-1].rows == found[0].rows
    shutil.copy(other, place)
    follow_delays(spark, records, said, out, once=True, told=found.append)
    for result in (found[-1], validate_delays(spark, records, said())):
        assert result.rows == whole.rows
        assert [(type(bad).__name__, bad.file.name) for bad in result.left_out] == [
            ("MixedLayout", "stray.parquet")
        ]


def test_a_file_that_is_away_is_waited_for_and_nothing_is_lost(
    spark: SparkSession,
    whole: Validation,
    simulated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, records, out = tmp_path / "parts", tmp_path / "records", tmp_path / "out"
    scatter(simulated, parts, parts=3)
    records.mkdir()
    one, two, three = sorted(parts.iterdir())
    shutil.copy(one, records)
    follow_delays(spark, records, said, out, once=True)
    (records / one.name).rename(tmp_path / "away")
    shutil.copy(two, records)
    told: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(validate_stream, "WAITS_SECONDS", (0.0, 0.0))
        with pytest.raises(FileAway, match=r"part0\.parquet.*start again"):
            follow_delays(spark, records, said, out, once=True, say=told.append)
    assert len(told) == 2
    shutil.copy(three, records)
    seconds: list[float] = []

    def back(wait: float) -> None:
        seconds.append(wait)
        (tmp_path / "away").rename(records / one.name)

    monkeypatch.setattr(validate_stream, "sleep", back)
    found: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert (found[-1].rows, found[-1].left_out, seconds) == (whole.rows, (), [1.0])


def test_a_file_that_is_being_copied_counts_when_it_is_whole(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, records)
    content = other.read_bytes()
    (records / other.name).write_bytes(content[: len(content) // 2])
    found: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert [bad.file.name for bad in found[-1].left_out] == [other.name]
    (records / other.name).write_bytes(content)
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert (found[-1].rows, found[-1].left_out) == (whole.rows, ())


@contextmanager
def following(
    records: Path, folder: Path, reached: Callable[[], bool]
) -> Iterator["subprocess.Popen[bytes]"]:
    """A stream as a process that has come so far, into ``folder``; killed if it still runs."""
    words = ["-m", "firedex_spark", "validate-delays", str(records), "--follow"]
    words += ["--predictions", str(folder / "predictions.parquet"), "--out", str(folder / "out")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_stream_killed_and_started_again_finds_the_same(
    spark: SparkSession, whole: Validation, simulated: Path, tmp_path: Path
) -> None:
    parts, records, out = tmp_path / "parts", tmp_path / "records", tmp_path / "out"
    scatter(simulated, parts, parts=4)
    records.mkdir()
    write_predictions(tmp_path / "predictions.parquet", said())
    files = sorted(parts.iterdir())
    shutil.copy(files[0], records)
    shutil.copy(files[1], records)
    # killed in the midst of its first batch
    with following(records, tmp_path, lambda: any(out.glob("state/files/*.json"))):
        pass
    for file in files[2:]:
        shutil.copy(file, records)
    found: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert found[-1].rows == whole.rows
    again: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=again.append)
    assert again == found[-1:]  # nothing new, and what stands is said


def test_who_has_a_wrong_clock_is_found_by_the_job_and_by_a_stream(
    spark: SparkSession, simulated: Path, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
    for file in simulated.glob("*.parquet"):
        table = pq.read_table(file, schema=DELIVERY_SCHEMA)
        late = pc.if_else(pc.equal(table["subscriber"], "crew0"), 0.02, 0.0)
        early = pc.subtract(table["received_at_seconds"], late)
        pq.write_table(
            table.set_column(column, DELIVERY_SCHEMA.field(column), early), records / file.name
        )
    whole = validate_delays(spark, records, said())
    assert list(whole.rows) == judged_without_spark(records, SCENARIO)
    assert {row.subscriber for row in whole.alarming} == {"crew0"}
    assert {row.verdict for row in whole.alarming} == {"clock is wrong"}
    found: list[Validation] = []
    follow_delays(spark, records, said, tmp_path / "out", once=True, told=found.append)
    assert found[-1].rows == whole.rows


def test_an_interrupt_ends_a_stream_without_a_trace(simulated: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_predictions(tmp_path / "predictions.parquet", said())
    with following(simulated, tmp_path, (out / "report.html").exists) as process:
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(PATIENCE_SECONDS)
    told = (tmp_path / "log").read_text()
    assert code == 0, told
    assert "alarms: 0" in told
    for trace in ("Traceback", "py4j", "KeyboardInterrupt", "Exception"):
        assert trace not in told, told


def test_generated_records_have_the_truth_they_say(spark: SparkSession, tmp_path: Path) -> None:
    truth = RecordTruth(sites=2, drift={3: 0.6}, wandering=0.02, wandering_seconds=2.0)
    written = write_generated_records(truth, tmp_path, 200_000)
    predictions = read_predictions(tmp_path / "predictions.parquet")
    found = validate_delays(spark, tmp_path / "records", predictions)
    assert found.records == written > 200_000
    classes = [row for row in found.rows if row.subscriber is None]
    assert sum(row.offered for row in classes) == 200_000
    for row in classes:
        drifted = row.priority == 3
        assert row.alarming == drifted, row
        if not drifted:
            wanted = truth.mean_seconds(np.array(row.priority))
            assert row.delay_mean_seconds == pytest.approx(float(wanted), rel=0.05)

    timely = [
        (row.timely_fraction, row.predicted_timely_fraction)
        for row in found.rows
        if row.subscriber is not None and row.priority != 3
    ]
    assert len(timely) == 2 * 4 * 6
    assert all(one == pytest.approx(said_, abs=0.05) for one, said_ in timely)
    assert min(said_ or 0.0 for _, said_ in timely) > 0.5


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(spark_command, words)
    return result.exit_code, result.output


@pytest.mark.usefixtures("spark")
def test_the_commands_exit_code_says_whether_the_model_holds(
    simulated: Path, tmp_path: Path
) -> None:
    plan, out = tmp_path / "plan.json", str(tmp_path / "out")
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))
    words = ["validate-delays", "--predictions", str(plan), "--out", out]
    code, said_ = run(*words, str(simulated), "--json")
    assert code == 0, said_
    page = (tmp_path / "out" / "report.html").read_text()
    assert "within bounds" in page
    assert "data:image/png" in page
    assert pq.read_table(tmp_path / "out" / "measured.parquet").num_rows == 4 + 12
    assert json.loads((tmp_path / "out" / "quarantine.json").read_text()) == []
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for file in simulated.glob("*.parquet"):
        shutil.copy(file, wrong)
    plant_drift(wrong, priority=3, growth=2.0)
    code, said_ = run(*words, str(wrong))
    assert code == 1, said_
    assert "class 3" in said_


@pytest.mark.usefixtures("spark")
def test_a_stream_ends_with_the_code_of_all_that_stands(simulated: Path, tmp_path: Path) -> None:
    records, plan = tmp_path / "records", tmp_path / "plan.json"
    records.mkdir()
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))
    words = ["validate-delays", str(records), "--predictions", str(plan), "--follow", "--once"]
    words += ["--out", str(tmp_path / "out")]
    code, said_ = run(*words)
    assert (code, "no delivery records there" in said_) == (2, True), said_
    break_some(simulated, records)
    code, said_ = run(*words)
    assert (code, "no record that can be used" in said_) == (2, True), said_
    left_out = json.loads((tmp_path / "out" / "quarantine.json").read_text())
    assert {Path(bad["file"]).name for bad in left_out} == {"zz-broken.parquet", "short.parquet"}
    for number, file in enumerate(simulated.glob("*.parquet")):
        shutil.copy(file, records / f"old{number}.parquet")
    plant_drift(records, priority=3, growth=2.0, files="old*.parquet")
    for file in records.glob("old*.parquet"):
        os.utime(file, (1.0, 1.0))  # as if written long before the others
    assert run(*words)[0] == 1
    assert run(*words)[0] == 1  # nothing new
    plan.write_text("{}")
    code, said_ = run(*words)
    assert (code, "not predictions" in said_) == (2, True), said_


def test_names_of_files_and_sites_are_taken_as_they_are(
    spark: SparkSession, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    folder = records / "site=north%3A1" / "day=1970-01-01"
    folder.mkdir(parents=True)
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, folder / "50%25 a#b.parquet")
    shutil.copy(other, folder / "c.parquet")
    found: list[Validation] = []
    follow_delays(spark, records, said, out, once=True, told=found.append)
    assert found[-1].left_out == ()
    assert {row.site for row in found[-1].rows} == {"north:1"}
    assert found[-1].rows == validate_delays(spark, records, said()).rows


def test_what_a_stream_keeps_is_of_one_folder_and_whole(
    spark: SparkSession, simulated: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    follow_delays(spark, simulated, said, out, once=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(StreamBroken, match="other records"):
        follow_delays(spark, tmp_path / "other", said, out, once=True)
    told: list[Validation] = []
    (summed,) = out.glob("state/files/*.summed")
    summed.unlink()  # as if killed in the midst of it
    follow_delays(spark, simulated, said, out, once=True, told=told.append)
    assert told == []
    shutil.rmtree(out / "state")
    with pytest.raises(StreamBroken, match="has lost a part"):
        follow_delays(spark, simulated, said, out, once=True)


@pytest.mark.usefixtures("spark")
def test_what_cannot_be_judged_is_no_success(simulated: Path, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", str(tmp_path / "out")
    plan.write_text(to_json(predict(SCENARIO).to_prediction()))
    words = ["validate-delays", str(simulated), "--predictions", str(plan), "--out", out]
    code, said_ = run(*words, "--site", "elsewhere")
    assert code == 2
    assert "records are of site version 0, predictions of elsewhere version 0" in said_
    code, said_ = run(*words, "--run", "another")
    assert (code, "no record that can be used" in said_) == (2, True), said_


@pytest.mark.usefixtures("spark")
def test_mistakes_of_users_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "plan.json").write_text("{}")
    out = ("--out", str(tmp_path / "out"))
    empty, plan = str(tmp_path / "empty"), str(tmp_path / "plan.json")
    code, said_ = run("validate-delays", empty, "--predictions", plan, *out)
    assert (code, "not predictions" in said_) == (2, True)
    code, said_ = run("validate-delays", empty, "--predictions", empty, *out)
    assert (code, "no predictions there" in said_) == (2, True)
    inside = ("--out", str(tmp_path / "empty" / "out"))
    code, said_ = run("validate-delays", empty, "--predictions", plan, *inside)
    assert (code, "is inside" in said_) == (2, True), said_
    code, said_ = run("fit-utility-weights", empty, *out)
    assert (code, "no feedback there" in said_) == (2, True)

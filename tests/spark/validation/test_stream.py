"""validate-delays --follow: the result is that of one run over all files."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firedex_spark.errors import FileMissing, StreamFailed
from firedex_spark.records.predictions import (
    write_predictions,
)
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
from firedex_spark.validation import stream as validate_stream
from firedex_spark.validation.job import Validation, validate_delays
from firedex_spark.validation.stream import follow_delays
from tests.spark.simulated_deliveries import (
    validate_in_one_process,
)
from tests.spark.validation.four_classes_site import (
    SCENARIO,
    predictions,
    scatter,
    write_broken_files,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 300.0


def test_stream_skips_bad_files(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, records)
    write_broken_files(simulated, records)
    found: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    shutil.copy(other, records)
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert found[0].rows != validation.rows
    assert found[-1].rows == validation.rows
    skipped = {bad.file.name for bad in found[-1].skipped}
    assert skipped == {"zz-broken.parquet", "short.parquet"}


def test_flat_file_beside_site_folders_is_skipped(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    place = records / "site=site"
    place.mkdir(parents=True)
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, place)
    found: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    shutil.copy(one, records / "stray.parquet")
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert found[-1].rows == found[0].rows
    shutil.copy(other, place)
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    for result in (found[-1], validate_delays(spark, records, predictions())):
        assert result.rows == validation.rows
        assert [(type(bad).__name__, bad.file.name) for bad in result.skipped] == [
            ("MixedLayout", "stray.parquet")
        ]


def test_stream_waits_for_an_unreachable_file(
    spark: SparkSession,
    validation: Validation,
    simulated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, records, out = tmp_path / "parts", tmp_path / "records", tmp_path / "out"
    scatter(simulated, parts, parts=3)
    records.mkdir()
    one, two, three = sorted(parts.iterdir())
    shutil.copy(one, records)
    follow_delays(spark, records, predictions, out, once=True)
    (records / one.name).rename(tmp_path / "away")
    shutil.copy(two, records)
    results: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(validate_stream, "RETRY_SECONDS", (0.0, 0.0))
        with pytest.raises(FileMissing, match=r"part0\.parquet.*start the job again"):
            follow_delays(
                spark, records, predictions, out, once=True, report_progress=results.append
            )
    assert len(results) == 2
    shutil.copy(three, records)
    seconds: list[float] = []

    def restore_file(wait: float) -> None:
        seconds.append(wait)
        (tmp_path / "away").rename(records / one.name)

    monkeypatch.setattr(validate_stream, "sleep", restore_file)
    found: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert (found[-1].rows, found[-1].skipped, seconds) == (validation.rows, (), [1.0])


def test_incomplete_file_counts_when_it_is_complete(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, records)
    content = other.read_bytes()
    (records / other.name).write_bytes(content[: len(content) // 2])
    found: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert [bad.file.name for bad in found[-1].skipped] == [other.name]
    (records / other.name).write_bytes(content)
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert (found[-1].rows, found[-1].skipped) == (validation.rows, ())


@contextmanager
def running_stream(
    records: Path, folder: Path, reached: Callable[[], bool]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a stream as a process and wait until ``reached``; kill it at the end if it still runs."""
    command = ["-m", "firedex_spark", "validate-delays", str(records), "--follow"]
    command += ["--predictions", str(folder / "predictions.parquet"), "--out", str(folder / "out")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=log, stderr=log, start_new_session=True
        )
    try:

        def has_progressed() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            return reached()

        wait_until(has_progressed, "the stream to progress", TIMEOUT_SECONDS)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_killed_stream_continues_with_the_same_result(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
) -> None:
    parts, records, out = tmp_path / "parts", tmp_path / "records", tmp_path / "out"
    scatter(simulated, parts, parts=4)
    records.mkdir()
    write_predictions(tmp_path / "predictions.parquet", predictions())
    files = sorted(parts.iterdir())
    shutil.copy(files[0], records)
    shutil.copy(files[1], records)
    # killed during its first batch
    with running_stream(records, tmp_path, lambda: any(out.glob("state/files/*.json"))):
        pass
    for file in files[2:]:
        shutil.copy(file, records)
    found: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert found[-1].rows == validation.rows
    again: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=again.append)
    assert again == found[-1:]  # nothing new: the stored result is reported


def test_wrong_clock_is_found_by_job_and_stream(
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
    validation = validate_delays(spark, records, predictions())
    assert list(validation.rows) == validate_in_one_process(records, SCENARIO)
    assert {row.subscriber for row in validation.alarming} == {"crew0"}
    assert {row.verdict for row in validation.alarming} == {"wrong clock"}
    found: list[Validation] = []
    follow_delays(spark, records, predictions, tmp_path / "out", once=True, on_result=found.append)
    assert found[-1].rows == validation.rows


@pytest.mark.long  # starts a Java process; test_command checks the same in this process
def test_interrupted_process_exits_without_a_traceback(simulated: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_predictions(tmp_path / "predictions.parquet", predictions())
    with running_stream(simulated, tmp_path, (out / "report.html").exists) as process:
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(TIMEOUT_SECONDS)
    results = (tmp_path / "log").read_text()
    assert code == 0, results
    assert "alarms: 0" in results
    for trace in ("Traceback", "py4j", "KeyboardInterrupt", "Exception"):
        assert trace not in results, results


def test_file_names_with_special_characters_are_read(
    spark: SparkSession, simulated: Path, tmp_path: Path
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    folder = records / "site=north%3A1" / "day=1970-01-01"
    folder.mkdir(parents=True)
    one, other = sorted(simulated.glob("*.parquet"))
    shutil.copy(one, folder / "50%25 a#b.parquet")
    shutil.copy(other, folder / "c.parquet")
    found: list[Validation] = []
    follow_delays(spark, records, predictions, out, once=True, on_result=found.append)
    assert found[-1].skipped == ()
    assert {row.site for row in found[-1].rows} == {"north:1"}
    assert found[-1].rows == validate_delays(spark, records, predictions()).rows


def test_state_of_other_records_or_incomplete_state_is_rejected(
    spark: SparkSession, simulated: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    follow_delays(spark, simulated, predictions, out, once=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(StreamFailed, match="other records"):
        follow_delays(spark, tmp_path / "other", predictions, out, once=True)
    results: list[Validation] = []
    (summed,) = out.glob("state/files/*.summed")
    summed.unlink()  # as if killed during a batch
    follow_delays(spark, simulated, predictions, out, once=True, on_result=results.append)
    assert results == []
    shutil.rmtree(out / "state")
    with pytest.raises(StreamFailed, match="incomplete state"):
        follow_delays(spark, simulated, predictions, out, once=True)

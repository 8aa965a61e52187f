"""validate-delays on Spark, compared with the same computation in one process."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firedex_spark.records import windows as record_windows
from firedex_spark.records.arrange import arrange_records
from firedex_spark.records.generated import RecordParameters, write_generated_records
from firedex_spark.records.predictions import (
    read_predictions,
)
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
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

pytestmark = pytest.mark.slow


def test_result_equals_that_of_one_process(validation: Validation, simulated: Path) -> None:
    assert list(validation.rows) == validate_in_one_process(simulated, SCENARIO)
    classes = [row for row in validation.rows if row.subscriber is None]
    assert [row.priority for row in classes] == [0, 1, 2, 3]
    assert {row.verdict for row in validation.rows} == {"within bounds"}
    assert all(row.timely_fraction is not None for row in validation.rows)


def test_order_files_and_duplicates_do_not_change_the_result(
    spark: SparkSession,
    validation: Validation,
    simulated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scatter(simulated, tmp_path, parts=5)
    monkeypatch.setattr(record_windows, "ROWS_PER_WINDOW", 40_000)
    assert validate_delays(spark, tmp_path, predictions()).rows == validation.rows


def test_arranged_records_have_the_same_result(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
) -> None:
    rows, _, _ = arrange_records(spark, simulated, tmp_path)
    assert [path.name for path in (tmp_path / "records").iterdir() if path.is_dir()] == [
        "site=site"
    ]
    days = [path.name for path in (tmp_path / "records" / "site=site").iterdir()]
    assert days == ["day=1970-01-01"]
    found = validate_delays(spark, tmp_path / "records", predictions())
    assert (found.records, found.rows) == (rows, validation.rows)


def test_unreadable_files_are_skipped_completely(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
) -> None:
    for file in simulated.glob("*.parquet"):
        shutil.copy(file, tmp_path)
    write_broken_files(simulated, tmp_path)
    on_result: list[str] = []
    found = validate_delays(spark, tmp_path, predictions(), report_progress=on_result.append)
    assert {bad.file.name for bad in found.skipped} == {"zz-broken.parquet", "short.parquet"}
    assert found.rows == validation.rows
    assert any("skipped" in line and "zz-broken" in line for line in on_result)


def test_rows_with_absurd_times_are_refused(
    spark: SparkSession, validation: Validation, simulated: Path, tmp_path: Path
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
    wanted = (validation.rows, {"a time is before 1970 or after the year 5138": 8})
    found = validate_delays(spark, records, predictions())
    assert (found.rows, found.refused) == wanted
    streamed: list[Validation] = []
    follow_delays(
        spark, records, predictions, tmp_path / "stream", once=True, on_result=streamed.append
    )
    assert (streamed[-1].rows, streamed[-1].refused) == wanted
    arrange_records(spark, records, tmp_path / "arranged")
    arranged = validate_delays(spark, tmp_path / "arranged" / "records", predictions())
    assert (arranged.rows, arranged.refused) == wanted


def test_generated_records_have_the_stated_parameters(spark: SparkSession, tmp_path: Path) -> None:
    truth = RecordParameters(sites=2, drift={3: 0.6}, wandering=0.02, wandering_seconds=2.0)
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
    assert all(one == pytest.approx(output, abs=0.05) for one, output in timely)
    assert min(output or 0.0 for _, output in timely) > 0.5

"""fit-utility-weights on Spark, compared with the same computation in one process."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex_spark.errors import NoUsableRows
from firedex_spark.session import SparkSession
from firedex_spark.weights.generated import FeedbackParameters, write_generated_feedback
from firedex_spark.weights.job import fit_utility_weights
from tests.spark.feedback_fits import fit_all_worths
from tests.spark.simulated_deliveries import break_pages

pytestmark = pytest.mark.slow


def test_result_equals_that_of_one_process_and_bad_rows_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    truth = FeedbackParameters(
        roles=("command", "crew"),
        classes=("smoke", "heat", "doors"),
        topics_of_a_class=3,
        raters_of_a_role=30,
        ratings=20,
        acknowledgements=10,
        dwells=10,
        choices=10,
    )
    feedback = write_generated_feedback(truth, tmp_path)
    # the same people's names at another site: other people, whose ratings count for themselves
    at = feedback.table.column_names.index("site")
    other = pa.array(["other" if n % 2 else "site" for n in range(feedback.table.num_rows)])
    feedback = replace(
        feedback, table=feedback.table.set_column(at, feedback.table.schema.field(at), other)
    )
    row = feedback.table.slice(0, 1).to_pylist()[0] | {"kind": "rating"}
    bad = [row | {"value": v} for v in (7.0, 7.0, float("nan"), 1e30)] + [row | {"role": "no role"}]
    wrong = pa.Table.from_pylist(bad, schema=feedback.table.schema)
    pq.write_table(feedback.table, tmp_path / "feedback.parquet", row_group_size=1_000)
    late = pa.concat_tables([feedback.table.slice(5, 50), wrong])
    pq.write_table(late, tmp_path / "late.parquet")
    pq.write_table(feedback.table, tmp_path / "broken.parquet")
    break_pages(tmp_path / "broken.parquet")
    (tmp_path / "nonsense.parquet").write_text("nonsense")
    found = fit_utility_weights(spark, tmp_path)
    assert found.duplicates == 50
    assert found.refused == {
        "a rating is not 1 to 5": 3,
        "role is not a valid identifier": 1,
        "value is not a finite number": 1,
    }
    assert [bad.file.name for bad in found.skipped] == ["nonsense.parquet", "broken.parquet"]
    alone = sorted(
        fit_all_worths(feedback), key=lambda w: (w.role, w.phase, w.topic_class, w.topic or "")
    )
    assert [w.topic for w in found.worths] == [w.topic for w in alone]
    assert [w.ratings for w in found.worths] == [w.ratings for w in alone]
    # logarithms of dwells are summed as decimals there
    assert [w.worth for w in found.worths] == pytest.approx([w.worth for w in alone], abs=1e-6)


def test_feedback_without_usable_rows_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    feedback = write_generated_feedback(FeedbackParameters(roles=("crew",), ratings=1), tmp_path)
    pq.write_table(feedback.table.slice(0, 0), tmp_path / "feedback.parquet")
    with pytest.raises(NoUsableRows, match="the files are empty"):
        fit_utility_weights(spark, tmp_path)
    nobody = feedback.table.set_column(3, "role", pa.nulls(feedback.table.num_rows, pa.string()))
    pq.write_table(nobody, tmp_path / "feedback.parquet")
    with pytest.raises(NoUsableRows, match=r"role is missing \(60\)"):
        fit_utility_weights(spark, tmp_path)

"""``fit-utility-weights``: learn utility profiles in one pass over the feedback.

Rows that are equal in every column are duplicates and count once. The order of rows has no effect.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from firedex_spark.errors import BadFile, NoUsableRows, UnreadableFile
from firedex_spark.records.files import RecordFile, check_files, find_files, without_files
from firedex_spark.schemas import FEEDBACK_SCHEMA
from firedex_spark.session import SparkSession, run_tasks
from firedex_spark.weights.feedback import CHECKED_SCHEMA, check_feedback
from firedex_spark.weights.role_fit import FitTooLarge, LearntWorth, fit_role

__all__ = ["FittedWeights", "feedback_statistics", "fit_utility_weights"]

ReportProgress = Callable[[str], None]
FIT_COLUMNS = "learnt string"
UNREADABLE = "unreadable file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWeights:
    """The worths by role and phase, and how the raters of each role rate.

    ``duplicates``: number of duplicate rows; ``refused``: rows that do not count, by reason;
    ``roles_not_fitted``: the reason for each role that could not be fitted.
    """

    worths: tuple[LearntWorth, ...]
    raters: dict[str, dict[str, float]]
    feedback: int
    duplicates: int
    refused: dict[str, int]
    roles_not_fitted: dict[str, str]
    skipped: tuple[BadFile, ...]


def fit_utility_weights(
    spark: SparkSession, feedback: Path, report_progress: ReportProgress = lambda _text: None
) -> FittedWeights:
    """Fit every role, in parallel."""
    checked = check_files(feedback, find_files(feedback, "feedback"), FEEDBACK_SCHEMA)
    while True:
        for bad in checked.skipped:
            report_progress(f"skipped: {bad}")
        report_progress(f"{checked.rows} rows of feedback in {len(checked.good)} files")
        statistics = feedback_statistics(_checked_rows(spark, checked.good)).cache()
        try:
            refused, broken = _find_problems(statistics)
            if not broken:
                good = statistics.where(f.col("problem").isNull())
                extra = good.agg(f.sum(f.col("rows") - f.col("count"))).collect()[0][0]
                found = good.groupBy("role").applyInPandas(_fit_rows, FIT_COLUMNS).collect()
                break
        finally:
            statistics.unpersist()
        checked = without_files(feedback, checked, broken)
    learnt = sorted((json.loads(row["learnt"]) for row in found), key=lambda part: part["role"])
    worths = [LearntWorth(**row) for part in learnt for row in part["worths"]]
    if not learnt:
        raise NoUsableRows(feedback, refused)
    return FittedWeights(
        worths=tuple(sorted(worths, key=_sort_key)),
        raters={part["role"]: part["raters"] for part in learnt if part["raters"]},
        feedback=checked.rows,
        duplicates=int(extra or 0),
        refused=refused,
        roles_not_fitted={part["role"]: part["why_not"] for part in learnt if part["why_not"]},
        skipped=checked.skipped,
    )


def _checked_rows(spark: SparkSession, files: Sequence[RecordFile]) -> DataFrame:
    """Return valid rows, counts of refused rows, and a row for each unreadable file."""
    groups = [(str(file.path), file.site, group.number) for file in files for group in file.groups]
    return run_tasks(spark, groups, check_row_group, CHECKED_SCHEMA)


def check_row_group(piece: tuple[str, str | None, int]) -> pa.Table:
    """Return the checked rows of a row group, or a row with the error of the file."""
    path, site, group = piece
    wanted = [name for name in FEEDBACK_SCHEMA.names if name != "site" or site is None]
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, wanted, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        row = {"problem": UNREADABLE, "topic": path, "rater": reason, "count": 0}
        return pa.Table.from_pylist([row], schema=CHECKED_SCHEMA)
    if site is not None:
        table = table.append_column("site", pa.array([site] * table.num_rows, pa.string()))
    return check_feedback(table)


def _find_problems(statistics: DataFrame) -> tuple[dict[str, int], list[BadFile]]:
    """Return the number of refused rows by reason, and the unreadable files."""
    refused: dict[str, int] = {}
    broken: dict[str, BadFile] = {}
    for row in statistics.where(f.col("problem").isNotNull()).collect():
        if row["problem"] == UNREADABLE:
            broken[row["topic"]] = UnreadableFile(Path(row["topic"]), row["rater"])
        else:
            refused[row["problem"]] = refused.get(row["problem"], 0) + int(row["rows"])
    return dict(sorted(refused.items())), [broken[name] for name in sorted(broken)]


def feedback_statistics(rows: DataFrame) -> DataFrame:
    """Return sufficient statistics: counts and sums.

    ``count`` is without duplicates, ``rows`` with them; rows with a ``problem`` are separate. A
    rater is identified by site and name.
    """
    kind = f.col("kind")
    rating = kind == "rating"
    different = rows.groupBy(*FEEDBACK_SCHEMA.names, "problem").agg(f.sum("count").alias("times"))
    logarithm = f.when(kind == "dwell", f.log("value")).when(
        kind == "acknowledgement", f.col("value")
    )
    # as decimals: their sum is the same in any order
    amount = f.coalesce(logarithm, f.lit(0.0))
    keys = ("problem", "role", "phase", "topic", "other_topic", "kind", "rating")
    of_raters = different.groupBy(
        "problem",
        "role",
        "phase",
        "topic",
        f.when(kind == "choice", f.col("other_topic")).alias("other_topic"),
        "kind",
        f.when(rating, f.col("value")).otherwise(0).cast("long").alias("rating"),
        "site",
        "rater",
    ).agg(
        f.count(f.lit(1)).alias("count"),
        f.sum("times").alias("rows"),
        f.sum(amount.cast("decimal(20,12)")).alias("total"),
        f.sum((amount**2).cast("decimal(20,12)")).alias("squares"),
    )
    named = rating | f.col("problem").isNotNull()
    return of_raters.groupBy(
        *keys,
        f.when(rating, f.col("site")).alias("site"),
        f.when(named, f.col("rater")).alias("rater"),
    ).agg(
        f.sum("count").alias("count"),
        f.sum("rows").alias("rows"),
        f.sum("total").cast("double").alias("total"),
        f.sum("squares").cast("double").alias("squares"),
        f.sum(f.col("count") ** 2).alias("together"),
    )


def _fit_rows(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    role = str(key[0])
    result: dict[str, Any] = {"role": role, "raters": {}, "worths": [], "why_not": ""}
    try:
        worths, fit = fit_role(role, rows)
    except (FitTooLarge, np.linalg.LinAlgError) as error:
        result["why_not"] = str(error)
    else:
        result["worths"] = [asdict(worth) for worth in worths]
        result["raters"] = {
            "bias_spread": fit.rater_spread,
            "noise": fit.noise,
            "top_of_scale_share": fit.top_share,
            "topic_spread": fit.topic_spread,
            "class_spread": fit.class_spread,
        }
    return pd.DataFrame({"learnt": [json.dumps(result)]})


def _sort_key(worth: LearntWorth) -> tuple[str, ...]:
    return (worth.role, worth.phase, worth.topic_class, worth.topic or "")

"""``fit-utility-weights``: from feedback to utility profiles, in one pass over the feedback.

A copy is a row that is the same in every column: it counts once. Rows come late or early as they
like: all of them are summed up together.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from firedex_spark.errors import BadFile, NothingCounts, UnreadableFile
from firedex_spark.feedback_rows import CHECKED_SCHEMA, checked_feedback
from firedex_spark.files_left_out import without
from firedex_spark.record_files import RecordFile, check_files, files_under
from firedex_spark.role_worth import LearntWorth, TooMuchForAFit, fit_role
from firedex_spark.schemas import FEEDBACK_SCHEMA
from firedex_spark.session import SparkSession

__all__ = ["FittedWeights", "feedback_statistics", "fit_utility_weights"]

Say = Callable[[str], None]
LEARNT = "learnt string"
UNREADABLE = "unreadable file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWeights:
    """The worth of topics and classes by role and phase, and how raters of each role are.

    ``copies``: rows that were there already; ``refused``: rows that do not count, by reason;
    ``not_fitted``: roles that could not be, and why.
    """

    worths: tuple[LearntWorth, ...]
    raters: dict[str, dict[str, float]]
    feedback: int
    copies: int
    refused: dict[str, int]
    not_fitted: dict[str, str]
    left_out: tuple[BadFile, ...]


def fit_utility_weights(
    spark: SparkSession, feedback: Path, say: Say = lambda _text: None
) -> FittedWeights:
    """Fit every role; roles are fitted side by side."""
    checked = check_files(feedback, files_under(feedback, "feedback"), FEEDBACK_SCHEMA)
    while True:
        for bad in checked.left_out:
            say(f"left out: {bad}")
        say(f"{checked.rows} rows of feedback in {len(checked.good)} files")
        statistics = feedback_statistics(_rows_of(spark, checked.good)).cache()
        try:
            refused, broken = _what_was_wrong(statistics)
            if not broken:
                good = statistics.where(f.col("problem").isNull())
                extra = good.agg(f.sum(f.col("rows") - f.col("count"))).collect()[0][0]
                found = good.groupBy("role").applyInPandas(_fitted, LEARNT).collect()
                break
        finally:
            statistics.unpersist()
        checked = without(feedback, checked, broken)
    learnt = sorted((json.loads(row["learnt"]) for row in found), key=lambda part: part["role"])
    worths = [LearntWorth(**row) for part in learnt for row in part["worths"]]
    if not learnt:
        raise NothingCounts(feedback, refused)
    return FittedWeights(
        worths=tuple(sorted(worths, key=_place)),
        raters={part["role"]: part["raters"] for part in learnt if part["raters"]},
        feedback=checked.rows,
        copies=int(extra or 0),
        refused=refused,
        not_fitted={part["role"]: part["why_not"] for part in learnt if part["why_not"]},
        left_out=checked.left_out,
    )


def _rows_of(spark: SparkSession, files: Sequence[RecordFile]) -> DataFrame:
    """Rows that count, how many do not and why, and files that cannot be read after all."""
    pieces = [(str(file.path), file.site, group.number) for file in files for group in file.groups]
    tasks = spark.createDataFrame(pieces, "path string, site string, group long")
    tasks = tasks.repartition(max(len(pieces), 1))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                yield from checked_piece(**piece).to_batches()

    return tasks.mapInArrow(work, from_arrow_schema(CHECKED_SCHEMA))


def checked_piece(path: str, site: str | None, group: int) -> pa.Table:
    """The rows of a file's row group, checked; or that the file cannot be read."""
    wanted = [name for name in FEEDBACK_SCHEMA.names if name != "site" or site is None]
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, wanted, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0]
        row = {"problem": UNREADABLE, "topic": path, "rater": said, "count": 0}
        return pa.Table.from_pylist([row], schema=CHECKED_SCHEMA)
    if site is not None:
        table = table.append_column("site", pa.array([site] * table.num_rows, pa.string()))
    return checked_feedback(table)


def _what_was_wrong(statistics: DataFrame) -> tuple[dict[str, int], list[BadFile]]:
    """Rows that do not count, by reason; and files that turned out to be unreadable."""
    refused: dict[str, int] = {}
    broken: dict[str, BadFile] = {}
    for row in statistics.where(f.col("problem").isNotNull()).collect():
        if row["problem"] == UNREADABLE:
            broken[row["topic"]] = UnreadableFile(Path(row["topic"]), row["rater"])
        else:
            refused[row["problem"]] = refused.get(row["problem"], 0) + int(row["rows"])
    return dict(sorted(refused.items())), [broken[name] for name in sorted(broken)]


def feedback_statistics(rows: DataFrame) -> DataFrame:
    """The sufficient statistics: counts and sums, few whatever the number of rows.

    ``count`` is without copies, ``rows`` with them; what has a ``problem`` is kept apart. A rater
    is somebody of a site: the same name at another site is somebody else.
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


def _fitted(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    role = str(key[0])
    told: dict[str, Any] = {"role": role, "raters": {}, "worths": [], "why_not": ""}
    try:
        worths, fit = fit_role(role, rows)
    except (TooMuchForAFit, np.linalg.LinAlgError) as error:
        told["why_not"] = str(error)
    else:
        told["worths"] = [asdict(worth) for worth in worths]
        told["raters"] = {
            "bias_spread": fit.rater_spread,
            "noise": fit.noise,
            "top_of_scale_share": fit.top_share,
            "topic_spread": fit.topic_spread,
            "class_spread": fit.class_spread,
        }
    return pd.DataFrame({"learnt": [json.dumps(told)]})


def _place(worth: LearntWorth) -> tuple[str, ...]:
    return (worth.role, worth.phase, worth.topic_class, worth.topic or "")

"""``fit-utility-weights``: from feedback to utility profiles, in one pass over the feedback."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from firedex_spark.errors import BadFile
from firedex_spark.feedback_schema import FEEDBACK_SCHEMA, FeedbackKind
from firedex_spark.record_files import check_files, files_under, frame_of
from firedex_spark.role_worth import LearntWorth, fit_role
from firedex_spark.session import SparkSession

__all__ = ["FittedWeights", "feedback_statistics", "fit_utility_weights"]

Say = Callable[[str], None]
LEARNT = "learnt string"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWeights:
    """The worth of topics and classes by role and phase, and how raters of each role are."""

    worths: tuple[LearntWorth, ...]
    raters: dict[str, dict[str, float]]
    feedback: int
    refused: dict[str, int]
    left_out: tuple[BadFile, ...]


def fit_utility_weights(
    spark: SparkSession, feedback: Path, say: Say = lambda _text: None
) -> FittedWeights:
    """Fit every role; roles are fitted side by side."""
    files = files_under(feedback, "feedback")
    checked = check_files(feedback, files, FEEDBACK_SCHEMA)
    for bad in checked.left_out:
        say(f"left out: {bad}")
    say(f"{checked.rows} rows of feedback in {len(checked.good)} files")
    rows = _with_problem(frame_of(spark, checked.good, FEEDBACK_SCHEMA).dropDuplicates())
    statistics = feedback_statistics(rows).cache()
    try:
        refused = _refused(statistics)
        good = statistics.where(f.col("problem").isNull())
        found = good.groupBy("role").applyInPandas(_fitted, LEARNT).collect()
    finally:
        statistics.unpersist()
    learnt = [json.loads(row["learnt"]) for row in found]
    worths = [LearntWorth(**row) for part in learnt for row in part["worths"]]
    return FittedWeights(
        worths=tuple(sorted(worths, key=_place)),
        raters={part["role"]: part["raters"] for part in sorted(learnt, key=lambda p: p["role"])},
        feedback=checked.rows,
        refused=refused,
        left_out=checked.left_out,
    )


def _with_problem(rows: DataFrame) -> DataFrame:
    """A column that says what is wrong with a row, if anything is."""
    kind, value = f.col("kind"), f.col("value")
    missing = [
        f.col(name).isNull() for name in ("rater", "role", "phase", "topic", "kind", "value")
    ]
    nothing = missing[0]
    for one in missing[1:]:
        nothing = nothing | one
    known = kind.isin(*get_args(FeedbackKind))
    whole = value.isin(*[float(n) for n in range(1, 6)])
    problem = (
        f.when(nothing, "a column is missing")
        .when(~known, "kind is unknown")
        .when((kind == "rating") & ~whole, "a rating is not 1 to 5")
        .when((kind == "acknowledgement") & ~value.isin(0.0, 1.0), "neither acknowledged nor not")
        .when((kind == "dwell") & ~(value > 0), "a dwell is not above 0")
        .when(
            (kind == "choice") & f.col("other_topic").isNull(), "a choice without the other topic"
        )
    )
    return rows.withColumn("problem", problem)


def _refused(statistics: DataFrame) -> dict[str, int]:
    refused: dict[str, int] = {}
    for row in statistics.where(f.col("problem").isNotNull()).select("problem", "count").collect():
        refused[row["problem"]] = refused.get(row["problem"], 0) + int(row["count"])
    return dict(sorted(refused.items()))


def feedback_statistics(rows: DataFrame) -> DataFrame:
    """The sufficient statistics: counts and sums, few whatever the number of rows.

    Those of rows with a ``problem`` are kept apart.
    """
    kind = f.col("kind")
    rating = kind == "rating"
    logarithm = f.when(kind == "dwell", f.log("value")).when(
        kind == "acknowledgement", f.col("value")
    )
    return rows.groupBy(
        "problem",
        "role",
        "phase",
        "topic",
        f.when(kind == "choice", f.col("other_topic")).alias("other_topic"),
        "kind",
        f.when(rating, f.col("rater")).alias("rater"),
        f.when(rating, f.col("value")).otherwise(0).cast("long").alias("rating"),
    ).agg(
        f.count(f.lit(1)).alias("count"),
        # as decimals: their sum is the same in any order
        f.sum(f.coalesce(logarithm, f.lit(0.0)).cast("decimal(20,12)"))
        .cast("double")
        .alias("total"),
        f.sum((f.coalesce(logarithm, f.lit(0.0)) ** 2).cast("decimal(20,12)"))
        .cast("double")
        .alias("squares"),
    )


def _fitted(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    role = str(key[0])
    worths, fit = fit_role(role, rows)
    raters = {
        "bias_spread": fit.rater_spread,
        "noise": fit.noise,
        "top_of_scale_share": fit.top_share,
        "topic_spread": fit.topic_spread,
        "class_spread": fit.class_spread,
    }
    told = {"role": role, "raters": raters, "worths": [asdict(worth) for worth in worths]}
    return pd.DataFrame({"learnt": [json.dumps(told)]})


def _place(worth: LearntWorth) -> tuple[str, ...]:
    return (worth.role, worth.phase, worth.topic_class, worth.topic or "")

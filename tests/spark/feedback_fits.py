"""Generated feedback fitted in one process, as the job does it on Spark."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from firedex_spark.generated_feedback import GeneratedFeedback
from firedex_spark.role_worth import STATISTICS, LearntWorth, fit_role


def statistics_of(made: GeneratedFeedback) -> pd.DataFrame:
    """As Spark sums them up."""
    counted: Counter[tuple[Any, ...]] = Counter()
    sums: dict[tuple[Any, ...], list[float]] = {}
    for row in made.table.to_pylist():
        kind, value = row["kind"], row["value"]
        rated = kind == "rating"
        key = (
            row["role"],
            row["phase"],
            row["topic"],
            row["other_topic"],
            kind,
            row["site"] if rated else None,
            row["rater"] if rated else None,
            int(value) if rated else 0,
        )
        counted[key] += 1
        amount = np.log(value) if kind == "dwell" else value if kind == "acknowledgement" else 0.0
        into = sums.setdefault(key, [0.0, 0.0])
        into[0] += amount
        into[1] += amount**2
    rows = [(*key, count, *sums[key]) for key, count in counted.items()]
    return pd.DataFrame(rows, columns=list(STATISTICS))


def all_worths(made: GeneratedFeedback) -> list[LearntWorth]:
    roles = statistics_of(made).groupby("role")
    return [worth for role, rows in roles for worth in fit_role(str(role), rows)[0]]


def by_cell(worths: list[LearntWorth]) -> dict[tuple[str, str, str], LearntWorth]:
    return {(w.role, w.phase, w.topic): w for w in worths if w.topic is not None}

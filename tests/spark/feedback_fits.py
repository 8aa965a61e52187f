"""Generated feedback fitted in one process, as the job does it on Spark."""

import numpy as np
import pandas as pd

from firedex_spark.weights.generated import FeedbackParameters, GeneratedFeedback
from firedex_spark.weights.role_fit import STATISTICS, LearntWorth, fit_role


def compute_statistics(feedback: GeneratedFeedback) -> pd.DataFrame:
    """Return the statistics that the job computes on Spark."""
    rows = feedback.table.to_pandas()
    kind, value = rows["kind"], rows["value"]
    rows["rating"] = value.where(kind == "rating", 0).astype(np.int64)
    shown = value.where(kind == "acknowledgement", 0.0)
    amount = np.log(value.where(kind == "dwell", 1.0)).where(kind == "dwell", shown)
    rows = rows.assign(count=1, total=amount, squares=amount**2)
    cells = ["role", "phase", "topic", "other_topic", "kind", "rating"]
    of_raters = rows.groupby([*cells, "site", "rater"], dropna=False, as_index=False)
    found = of_raters[["count", "total", "squares"]].sum()
    found["together"] = found["count"] ** 2
    rated = found["kind"] == "rating"
    for name in ("site", "rater"):
        found[name] = found[name].astype(object).where(rated, None)
    return found.groupby([*cells, "site", "rater"], dropna=False, as_index=False).sum()[
        list(STATISTICS)
    ]


def fit_all_worths(feedback: GeneratedFeedback) -> list[LearntWorth]:
    roles = compute_statistics(feedback).groupby("role")
    return [worth for role, rows in roles for worth in fit_role(str(role), rows)[0]]


def by_cell(worths: list[LearntWorth]) -> dict[tuple[str, str, str], LearntWorth]:
    return {(w.role, w.phase, w.topic): w for w in worths if w.topic is not None}


ACCEPTANCE_TRUTH = FeedbackParameters(
    roles=("command", "crew", "medic", "police"), raters_of_a_role=300, ratings=200, seed=10
)

"""Parameters of the acceptance tests: rater bias and noise of 1 point, 30 % top-of-scale raters."""

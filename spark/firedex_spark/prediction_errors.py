"""How far predictions are from delays and successes that they were not made from. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from firedex_models import PredictionTable
from firedex_spark.errors import NothingMatches

__all__ = ["PredictionError", "prediction_error"]

Z = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """How far predictions are from what was measured, over subscriptions.

    ``delay_noise``: how uncertain the measured means are themselves (half of a 95 % interval,
    relatively, the median); None if they are of too little to say. ``success_worst`` is None if
    records do not tell of losses. ``subscriptions``: how many were compared.
    """

    delay_median: float
    delay_worst: float
    delay_noise: float | None
    success_worst: float | None
    subscriptions: int


def prediction_error(
    table: PredictionTable, delays: pd.DataFrame, telling: Collection[str]
) -> PredictionError:
    """From rows of kind ``delays`` (``traffic_sums``); ``telling``: runs that tell of losses."""
    said = {(row.subscriber, row.filter): row for row in table.to_prediction().subscriptions}
    errors, noises, successes, compared, other_class = [], [], [], 0, 0
    for (subscriber, filter_, priority), blocks in delays.groupby(["of", "name", "high"]):
        one = said.get((str(subscriber), str(filter_)))
        if one is None:
            continue
        if one.priority != priority:  # made under another assignment
            other_class += 1
            continue
        mean, noise = _mean(blocks)
        if mean:
            # a delay that the model calls endless is wrong by all of it
            predicted = one.delay_mean_seconds
            errors.append(1.0 if predicted is None else abs(predicted / mean - 1))
            noises += [] if noise is None else [noise / mean]
        told = blocks[blocks["run"].isin(list(telling))]
        if len(told):
            successes.append(abs(float(told["low"].sum() / told["count"].sum()) - one.success_rate))
        compared += bool(mean) or len(told) > 0
    if not errors:
        raise NothingMatches(_why_none(other_class))
    return PredictionError(
        delay_median=float(np.median(errors)),
        delay_worst=float(np.max(errors)),
        delay_noise=float(np.median(noises)) if noises else None,
        success_worst=float(np.max(successes)) if successes else None,
        subscriptions=compared,
    )


def _mean(blocks: pd.DataFrame) -> tuple[float | None, float | None]:
    """The mean delay, and half of its interval by how the blocks scatter around it."""
    count, total = blocks["low"].to_numpy(), blocks["total"].to_numpy()
    if not count.sum():
        return None, None
    mean = float(total.sum() / count.sum())
    number = int((count > 0).sum())
    if number < 2:
        return mean, None
    squares = float(((total - mean * count) ** 2).sum()) * number / (number - 1)
    return mean, Z * float(np.sqrt(squares)) / float(count.sum())


def _why_none(other_class: int) -> str:
    if other_class:
        return (
            f"no delay can be compared with a prediction: {other_class} subscriptions came in "
            "another class than the scenario assigns them; give the scenario with the assignment "
            "that the records were made under"
        )
    return (
        "no delay can be compared with a prediction: none of the scenario's was measured in the "
        "later half of the records"
    )

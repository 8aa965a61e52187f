"""What follows from what was measured. Pure.

A row is out of bounds when chance does not explain how far beyond them it is; it drifts when chance
does not explain how much more than its bound its delay rises or falls. Of what was not predicted
nothing is asked. Chance is judged for all rows of a report together
(Holm), at the report's level: with a model that is right, a report without any alarm has at least
the probability 1 − level.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from firedex_spark.batch_means import holm
from firedex_spark.measured_row import ALARMS, NOTHING_ARRIVED, WRONG_CLOCK, Bounds, MeasuredRow

__all__ = ["judge"]

NOTHING_EXPECTED = "nothing was to arrive"
NOTHING = ("nothing-delivered", "nothing-offered")
"""Predicted without a delay: none of it was to come."""
QUESTIONS = ("chance_of_delay", "chance_of_success", "chance_of_drift")


def judge(rows: Iterable[MeasuredRow], bounds: Bounds) -> list[MeasuredRow]:
    """Every row with its verdict, chances adjusted for how many there are."""
    rows = list(rows)
    for name in QUESTIONS:
        known = [number for number, row in enumerate(rows) if getattr(row, name) is not None]
        # each question gets its part of the report's level
        chances = [len(QUESTIONS) * getattr(rows[number], name) for number in known]
        adjusted = holm(np.array(chances, dtype=float)).tolist()
        for number, chance in zip(known, adjusted, strict=True):
            rows[number] = replace(rows[number], **{name: chance})
    return [replace(row, verdict=_verdict(row, bounds)) for row in rows]


def _verdict(row: MeasuredRow, bounds: Bounds) -> str:
    if row.wrong_clocks and (row.subscriber is not None or not row.offered):
        return WRONG_CLOCK
    chances = [getattr(row, name) for name in QUESTIONS]
    found = [
        name
        for name, chance in zip(ALARMS, chances, strict=True)
        if chance is not None and chance <= bounds.level
    ]
    if not row.offered:
        if found:
            return NOTHING_ARRIVED
        return "no records" if row.predicted_success_rate else NOTHING_EXPECTED
    if row.method is None:
        return "not predicted"
    return found[0] if found else _without_alarm(row, chances, bounds)


def _without_alarm(row: MeasuredRow, chances: Sequence[float | None], bounds: Bounds) -> str:
    if row.method in NOTHING and not row.delivered:
        return NOTHING_EXPECTED
    if all(chance is None for chance in chances):
        return "too little data"
    if row.method != "queueing":
        return f"delay not judged ({row.method})"
    if row.chance_of_delay is None and row.predicted_delay_mean_seconds is not None:
        return "too little data"
    if _is_off(row, bounds):
        return "unclear"
    return "wanders" if row.wanders else "within bounds"


def _is_off(row: MeasuredRow, bounds: Bounds) -> bool:
    """Whether a figure is beyond bounds, be it by chance."""
    delay, said = row.delay_mean_seconds, row.predicted_delay_mean_seconds
    if delay is not None and said is not None and abs(delay - said) > bounds.delay_allowed(said):
        return True
    success, said = row.success_rate, row.predicted_success_rate
    return success is not None and said is not None and abs(success - said) > bounds.success

"""Measured rows and their verdicts. Pure.

A row is out of bounds if the difference to its bound is statistically significant; it drifts if its
delay changes significantly more than the bound. Rows that were not predicted are not tested. The
p-values of a report are adjusted together (Holm): with a correct model a report has no alarm with a
probability of at least 1 − level.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firedex_spark.validation.batch_means import holm_adjusted

__all__ = ["ALARMS", "NO_DELIVERIES", "WRONG_CLOCK", "Bounds", "MeasuredRow", "judge"]

NO_DELIVERIES = "no deliveries"
WRONG_CLOCK = "wrong clock"
ALARMS = ("delay out of bounds", "success out of bounds", "drift")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The accuracy that the model states for itself.

    A mean delay is within the fraction ``delay`` of the prediction, or within ``delay_seconds``; a
    success rate is within ``success``; a mean delay changes by at most the fraction ``drift``
    during a run. ``level``: the probability of any false alarm in a report.
    """

    delay: float = 0.25
    delay_seconds: float = 0.002
    success: float = 0.05
    drift: float = 0.03
    level: float = 0.05

    def delay_allowed(self, predicted_seconds: float) -> float:
        """Return the allowed error of a mean delay in seconds."""
        return max(self.delay * predicted_seconds, self.delay_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """Measurement and prediction of a subscription, or of a class (no subscriber and filter).

    Half-widths are of 95 % intervals. ``success_rate`` is None if the records hold deliveries only;
    ``timely_fraction`` then refers to deliveries. ``drift``: relative change of the mean during the
    run; ``wanders``: the mean varies too slowly to test for drift. ``wrong_clocks``: number of
    subscribers whose delays are not used. ``…_p_value``: adjusted by ``judge``. ``means``: batch
    means for plots.
    """

    site: str
    configuration_version: int
    priority: int
    subscriber: str | None
    filter: str | None
    offered: int
    delivered: int
    success_rate: float | None = None
    success_rate_half_width: float | None = None
    delay_mean_seconds: float | None = None
    delay_mean_half_width_seconds: float | None = None
    delay_p50_seconds: float | None = None
    delay_p95_seconds: float | None = None
    delay_p95_half_width_seconds: float | None = None
    delay_p99_seconds: float | None = None
    timely_fraction: float | None = None
    timely_fraction_half_width: float | None = None
    predicted_delay_mean_seconds: float | None = None
    predicted_delay_p95_seconds: float | None = None
    predicted_success_rate: float | None = None
    predicted_timely_fraction: float | None = None
    method: str | None = None
    relative_error: float | None = None
    drift: float | None = None
    delay_p_value: float | None = None
    success_p_value: float | None = None
    drift_p_value: float | None = None
    wanders: bool = False
    wrong_clocks: int = 0
    verdict: str = ""
    means: tuple[float, ...] = ()

    @property
    def judged(self) -> bool:
        """Return whether any prediction of this row was tested."""
        chances = (self.delay_p_value, self.success_p_value, self.drift_p_value)
        tested = self.method is not None and any(chance is not None for chance in chances)
        return tested or self.alarming

    @property
    def alarming(self) -> bool:
        """Return whether the prediction does not hold, or cannot be checked because of a clock."""
        return self.verdict in (*ALARMS, NO_DELIVERIES, WRONG_CLOCK)


NO_DELIVERIES_EXPECTED = "no deliveries expected"
METHODS_WITHOUT_DELAY = ("nothing-delivered", "nothing-offered")
"""Prediction methods without a delay, because no delivery is expected."""
P_VALUES = ("delay_p_value", "success_p_value", "drift_p_value")


def judge(rows: Iterable[MeasuredRow], bounds: Bounds) -> list[MeasuredRow]:
    """Return every row with its verdict and adjusted p-values."""
    rows = list(rows)
    for name in P_VALUES:
        known = [number for number, row in enumerate(rows) if getattr(row, name) is not None]
        # each of the tests gets an equal part of the level of the report
        chances = [len(P_VALUES) * getattr(rows[number], name) for number in known]
        adjusted = holm_adjusted(np.array(chances, dtype=float)).tolist()
        for number, chance in zip(known, adjusted, strict=True):
            rows[number] = replace(rows[number], **{name: chance})
    return [replace(row, verdict=_verdict(row, bounds)) for row in rows]


def _verdict(row: MeasuredRow, bounds: Bounds) -> str:
    if row.wrong_clocks and (row.subscriber is not None or not row.offered):
        return WRONG_CLOCK
    chances = [getattr(row, name) for name in P_VALUES]
    found = [
        name
        for name, chance in zip(ALARMS, chances, strict=True)
        if chance is not None and chance <= bounds.level
    ]
    if not row.offered:
        if found:
            return NO_DELIVERIES
        return "no records" if row.predicted_success_rate else NO_DELIVERIES_EXPECTED
    if row.method is None:
        return "not predicted"
    return found[0] if found else _verdict_without_alarm(row, chances, bounds)


def _verdict_without_alarm(
    row: MeasuredRow, chances: Sequence[float | None], bounds: Bounds
) -> str:
    if row.method in METHODS_WITHOUT_DELAY and not row.delivered:
        return NO_DELIVERIES_EXPECTED
    if all(chance is None for chance in chances):
        return "too little data"
    if row.method != "queueing":
        return f"delay not judged ({row.method})"
    if row.delay_p_value is None and row.predicted_delay_mean_seconds is not None:
        return "too little data"
    if _is_out_of_bounds(row, bounds):
        return "inconclusive"
    return "wanders" if row.wanders else "within bounds"


def _is_out_of_bounds(row: MeasuredRow, bounds: Bounds) -> bool:
    """Return whether a figure is beyond its bounds, significantly or not."""
    delay, predicted = row.delay_mean_seconds, row.predicted_delay_mean_seconds
    if (
        delay is not None
        and predicted is not None
        and abs(delay - predicted) > bounds.delay_allowed(predicted)
    ):
        return True
    success, predicted = row.success_rate, row.predicted_success_rate
    return (
        success is not None and predicted is not None and abs(success - predicted) > bounds.success
    )

"""Estimates of how publishers publish: the rate of each publication and its arrivals. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from firedex.wire import Scenario
from firedex.wire.mqtt_names import matches
from firedex_models import predict
from firedex_spark.calibration.intervals import Uncertainty, count_interval, mean_interval
from firedex_spark.calibration.parameter_estimate import ParameterEstimate
from firedex_spark.sweep.scenario_paths import join_path

__all__ = ["estimate_publications"]

PERIODIC_VARIABILITY = 0.2
"""Squared coefficient of variation of the gaps below which arrivals are periodic."""
ENOUGH_GAPS = 30
MIN_PUBLICATIONS_FOR_ACTIVE_TIME = 30
"""With this many publications in a run, a rate is computed over the time from the first to the
last of them, because a stream may begin late or end early; otherwise over the whole run."""
NEARLY_ALL = 0.99
"""Without recorded losses, a rate is estimated from deliveries only if at least this fraction of
the publications is predicted to reach a subscriber."""


def _seconds(spans: pd.DataFrame) -> float:
    """Return the total time from the first to the last record of each run."""
    runs = spans.groupby("run").agg({"low": "min", "high": "max"})
    return max(float((runs.high - runs.low).sum()), 1e-9)


def _while_active(spans: pd.DataFrame, count: float, whole: float) -> tuple[float, float]:
    """Return the number of publications and the time in which they were published."""
    runs = int(spans["run"].nunique())
    if count < runs * MIN_PUBLICATIONS_FOR_ACTIVE_TIME:
        return count, whole
    # a time from the first to the last holds one less than were seen
    return count - runs, _seconds(spans)


@dataclass(frozen=True, slots=True)
class _Published:
    """The number of publications, and how it is known."""

    count: float
    applied: bool
    note: str


def estimate_publications(
    sums: pd.DataFrame, scenario: Scenario, losses_recorded: bool
) -> Iterator[ParameterEstimate]:
    """Return arrivals and rate of each publication; ``losses_recorded``: losses are recorded."""
    rows = sums[sums.kind == "publications"]
    if not len(rows):
        return
    whole, active = _seconds(sums[sums.kind == "span"]), sums[sums.kind == "active"]
    seen = rows.groupby(["name", "of"])[["count", "total", "squares", "low"]].sum()
    numbers = _numbers(sums[sums.kind == "numbered"])
    expected = {} if losses_recorded else _fractions_reaching_a_subscriber(scenario)
    totals: dict[str, float] = {}
    for publisher in scenario.publishers:
        for one in publisher.publications:
            totals[one.topic] = totals.get(one.topic, 0.0) + one.rate_per_second
    for publisher in scenario.publishers:
        for one in publisher.publications:
            share, who = 1.0, publisher.id
            if (one.topic, who) not in seen.index:
                # the publisher is unknown: the rate is divided as declared
                if (one.topic, "") not in seen.index or totals[one.topic] <= 0:
                    continue
                share, who = one.rate_per_second / totals[one.topic], ""
            row = seen.loc[(one.topic, who)]
            numbered = numbers.get((one.topic, who))
            there = _published(
                float(row["count"]), numbered, losses_recorded, expected.get(one.topic, 0.0)
            )
            name = f"{publisher.id} {one.topic}"
            at = ("publishers", publisher.id, "publications", one.topic)
            if who:
                known = losses_recorded or numbered is not None or there.applied
                path = join_path(*at, "arrivals")
                yield _arrivals(name, path, one.arrivals, row, known)
            spans = active[(active.name == one.topic) & (active["of"] == who)]
            count, seconds = _while_active(spans, there.count, whole)
            declared = totals[one.topic] if not who else one.rate_per_second
            uncertainty = _rate_uncertainty(count, seconds, declared, row)
            yield ParameterEstimate(
                kind="rate_per_second",
                name=name,
                path=join_path(*at, "rate_per_second"),
                declared=one.rate_per_second,
                estimated=share * count / seconds,
                interval=(share * uncertainty.interval[0], share * uncertainty.interval[1]),
                applied=there.applied,
                chance=uncertainty.p_value,
                note=there.note + ("; divided among publishers as declared" if not who else ""),
            )


def _rate_uncertainty(count: float, seconds: float, declared: float, row: pd.Series) -> Uncertainty:
    """Return the uncertainty of a rate, from the variability of gaps if enough were seen."""
    if float(row["low"]) < ENOUGH_GAPS:
        uncertainty = count_interval(count, declared * seconds)
        return Uncertainty(
            (uncertainty.interval[0] / seconds, uncertainty.interval[1] / seconds),
            uncertainty.p_value,
        )
    error = float(np.sqrt(max(count * _variability(row), 1.0))) / seconds
    return mean_interval(count / seconds, error, declared)


def _variability(row: pd.Series) -> float:
    """Return the squared coefficient of variation of the gaps between publications."""
    gaps = max(float(row["low"]), 1.0)
    mean = float(row["total"]) / gaps
    return (float(row["squares"]) / gaps - mean**2) / mean**2 if mean > 0 else 1.0


def _numbers(rows: pd.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    """Return, by topic and publisher, how many numbered events were seen and how many existed."""
    streams = rows.groupby(["run", "name", "of", "stream"]).agg(
        {"count": "sum", "low": "min", "high": "max"}
    )
    streams["there"] = streams["high"] - streams["low"] + 1
    found = streams.groupby(["name", "of"])[["count", "there"]].sum()
    return {
        (str(name), str(of)): (float(row["count"]), float(row["there"]))
        for (name, of), row in found.iterrows()
    }


def _published(
    seen: float, numbered: tuple[float, float] | None, losses_recorded: bool, expected: float
) -> _Published:
    if losses_recorded:
        return _Published(seen, True, "losses are recorded")
    if numbered is not None:
        known, there = numbered
        return _Published(
            there + seen - known,
            True,
            f"from sequence numbers; {known / there:.0%} of the events seen",
        )
    if expected >= NEARLY_ALL:
        return _Published(
            seen / expected,
            True,
            f"{expected:.1%} of the events are predicted to reach a subscriber",
        )
    return _Published(
        seen,
        False,
        "lower bound: only deliveries are recorded, and events have no sequence numbers",
    )


def _fractions_reaching_a_subscriber(scenario: Scenario) -> Mapping[str, float]:
    """Return, by topic, the predicted fraction that reaches at least one subscriber."""
    missed = {topic.name: 1.0 for topic in scenario.topics}
    for row in predict(scenario).to_prediction().subscriptions:
        for topic in missed:
            if matches(row.filter, topic):
                missed[topic] *= 1.0 - row.success_rate
    return {topic: 1.0 - part for topic, part in missed.items()}


def _arrivals(
    name: str, path: str, declared: str, row: pd.Series, known: bool
) -> ParameterEstimate:
    variability = _variability(row)
    note = f"squared coefficient of variation of the gaps {variability:.2f}"
    return ParameterEstimate(
        kind="arrivals",
        name=name,
        path=path,
        declared=declared,
        estimated="periodic" if variability < PERIODIC_VARIABILITY else "poisson",
        interval=None,
        applied=known and float(row["low"]) >= ENOUGH_GAPS,
        note=note if known else f"{note}; losses between them are unknown",
    )

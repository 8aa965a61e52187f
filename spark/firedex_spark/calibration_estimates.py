"""From sums over windows to parameters of the model, each with its uncertainty. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from firedex.wire import Scenario
from firedex_models.demand import event_wire_bytes

__all__ = ["ParameterEstimate", "estimate_parameters", "overlay_of"]

Z = 1.959963984540054
PERIODIC_VARIABILITY = 0.2
FIXED_VARIABILITY = 0.1
"""Squared coefficients of variation below which arrivals are clockwork, and sizes all alike."""
PLAIN_LINK_PACKETS = 1.3
"""A plain link lets one packet pass at once; what is measured of it is a little more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterEstimate:
    """A parameter: what the scenario declares, what the records say; half of a 95 % interval.

    ``applied``: whether it goes into the overlay; ``note`` says why not, or what else is known.
    """

    kind: str
    name: str
    declared: float | str | None
    estimated: float | str
    half_width: float | None
    applied: bool
    note: str = ""


def estimate_parameters(sums: pd.DataFrame, scenario: Scenario) -> list[ParameterEstimate]:
    """All that can be told of a scenario's parameters."""
    return [
        *_rates(sums[sums.kind == "publications"], scenario),
        *_sizes(sums[sums.kind == "sizes"], scenario),
        *_fan_out(sums, scenario),
        *_error_rates(sums[sums.kind == "outcomes"], scenario),
        *_links(sums, scenario),
    ]


def _seconds(publications: pd.DataFrame) -> float:
    """How long all runs were, together."""
    runs = publications.groupby("run").agg({"low": "min", "high": "max"})
    return max(float((runs.high - runs.low).sum()), 1e-9)


def _rates(rows: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    if not len(rows):
        return
    seconds = _seconds(rows)
    seen = rows.groupby(["name", "of"]).agg({"count": "sum", "total": "sum", "squares": "sum"})
    anonymous = rows[rows["of"] == ""].groupby("name")["count"].sum()
    totals: dict[str, float] = {}
    for publisher in scenario.publishers:
        for one in publisher.publications:
            totals[one.topic] = totals.get(one.topic, 0.0) + one.rate_per_second
    for publisher in scenario.publishers:
        for one in publisher.publications:
            name = f"{publisher.id} {one.topic}"
            if (one.topic, publisher.id) in seen.index:
                row = seen.loc[(one.topic, publisher.id)]
                count = float(row["count"])
                yield _arrivals(name, one.arrivals, row)
            elif one.topic in anonymous.index and totals[one.topic] > 0:
                # nobody says who published: shared out as declared
                count = float(anonymous[one.topic]) * one.rate_per_second / totals[one.topic]
            else:
                continue
            yield ParameterEstimate(
                kind="rate_per_second",
                name=name,
                declared=one.rate_per_second,
                estimated=count / seconds,
                half_width=Z * float(np.sqrt(count)) / seconds,
                applied=True,
            )


def _arrivals(name: str, declared: str, row: pd.Series) -> ParameterEstimate:
    gaps = max(float(row["count"]) - 1, 1.0)
    mean = float(row["total"]) / gaps
    variability = (float(row["squares"]) / gaps - mean**2) / mean**2 if mean > 0 else 1.0
    return ParameterEstimate(
        kind="arrivals",
        name=name,
        declared=declared,
        estimated="periodic" if variability < PERIODIC_VARIABILITY else "poisson",
        half_width=None,
        applied=gaps >= 30,
        note=f"squared variability of the gaps {variability:.2f}",
    )


def _sizes(rows: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    transports = {s.id: s.transport or scenario.transport for s in scenario.subscribers}
    for topic in scenario.topics:
        of_topic = rows[(rows.name == topic.name) & rows["of"].isin(list(transports))]
        if not len(of_topic):
            continue
        subscriber = sorted(of_topic["of"])[0]
        of_one = of_topic[of_topic["of"] == subscriber]
        count = float(of_one["count"].sum())
        mean = float(of_one["total"].sum()) / count
        variance = max(float(of_one["squares"].sum()) / count - mean**2, 0.0)
        headers = event_wire_bytes(scenario, topic, transports[subscriber], 0) - topic.event_bytes
        variability = variance / mean**2
        yield ParameterEstimate(
            kind="event_bytes",
            name=topic.name,
            declared=float(topic.event_bytes),
            estimated=float(max(round(mean - headers), 0)),
            half_width=Z * float(np.sqrt(variance / count)),
            applied=True,
        )
        yield ParameterEstimate(
            kind="size_distribution",
            name=topic.name,
            declared=topic.size_distribution,
            estimated="fixed" if variability < FIXED_VARIABILITY else "exponential",
            half_width=None,
            applied=count >= 30,
            note=f"squared variability {variability:.2f}",
        )


def _fan_out(sums: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    published = sums[sums.kind == "publications"].groupby("name")["count"].sum()
    notified = sums[sums.kind == "fan-out"].groupby("name")["count"].sum()
    for topic in scenario.topics:
        if topic.name in published.index and topic.name in notified.index:
            yield ParameterEstimate(
                kind="fan_out",
                name=topic.name,
                declared=None,
                estimated=float(notified[topic.name] / published[topic.name]),
                half_width=None,
                applied=False,
                note="follows from who subscribes; a scenario does not declare it",
            )


def _error_rates(rows: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    switch_of = {s.id: s.switch for s in scenario.subscribers}
    behind = rows["of"].map(switch_of)
    told = rows[rows.name != "delivered"]["count"].sum() > 0
    for switch in scenario.network.switches:
        here = rows[behind == switch.id]
        delivered = float(here[here.name == "delivered"]["count"].sum())
        lost = float(here[here.name == "lost-on-link"]["count"].sum())
        if not told or delivered + lost == 0:
            continue
        part = lost / (delivered + lost)
        yield ParameterEstimate(
            kind="error_rate",
            name=switch.id,
            declared=switch.error_rate,
            estimated=part,
            half_width=Z * float(np.sqrt(max(part * (1 - part), 1e-12) / (delivered + lost))),
            applied=part < 1,
        )


def _links(sums: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    for switch in scenario.network.switches:
        speeds = sums[(sums.kind == "speed") & (sums.name == switch.id)]
        bursts = sums[(sums.kind == "burst") & (sums.name == switch.id)]
        if not len(speeds):
            continue
        speed = float(speeds.total.median())
        yield ParameterEstimate(
            kind="bandwidth_bits_per_second",
            name=switch.id,
            declared=switch.bandwidth_bits_per_second,
            estimated=speed,
            half_width=_spread(speeds.total) if len(speeds) > 1 else None,
            applied=True,
            note=f"{float(speeds.low.mean()):.0%} of the packets left back to back",
        )
        burst = float(bursts.total.median())
        plain = burst <= PLAIN_LINK_PACKETS * float(bursts.high.max())
        yield ParameterEstimate(
            kind="burst_bytes",
            name=switch.id,
            declared=switch.burst_bytes,
            estimated=0.0 if plain else burst,
            half_width=_spread(bursts.total) if len(bursts) > 1 else None,
            applied=True,
            note="a plain link" if plain else "a token bucket",
        )


def _spread(values: pd.Series) -> float:
    return float(Z * values.std(ddof=1) / np.sqrt(len(values)))


def overlay_of(estimates: list[ParameterEstimate]) -> dict[str, Any]:
    """The parts of a scenario that the estimates replace, by path (``scenario_paths``)."""
    places = {
        "rate_per_second": "publishers.{}.publications.{}.rate_per_second",
        "arrivals": "publishers.{}.publications.{}.arrivals",
        "event_bytes": "topics.{}.event_bytes",
        "size_distribution": "topics.{}.size_distribution",
        "error_rate": "network.switches.{}.error_rate",
        "bandwidth_bits_per_second": "network.switches.{}.bandwidth_bits_per_second",
        "burst_bytes": "network.switches.{}.burst_bytes",
    }
    overlay: dict[str, Any] = {}
    for one in estimates:
        if one.applied and one.kind in places:
            names = [_quoted(part) for part in one.name.split(" ", 1)]
            value = int(one.estimated) if one.kind == "event_bytes" else one.estimated
            overlay[places[one.kind].format(*names)] = value
    return overlay


def _quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name

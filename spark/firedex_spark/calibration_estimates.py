"""From sums over windows to parameters of the model, each with its uncertainty. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from firedex.wire import Scenario, Switch
from firedex.wire.mqtt_names import matches
from firedex_models import predict
from firedex_models.demand import event_wire_bytes
from firedex_spark.batch_means import holm
from firedex_spark.parameter_intervals import (
    Uncertainty,
    of_blocks,
    of_count,
    of_highest,
    of_mean,
    of_part,
)
from firedex_spark.scenario_paths import path_of

__all__ = ["ParameterEstimate", "estimate_parameters", "losses_are_told", "overlay_of"]

LEVEL = 0.05
PERIODIC_VARIABILITY = 0.2
FIXED_VARIABILITY = 0.1
"""Squared coefficients of variation below which arrivals are clockwork, and sizes all alike."""
PLAIN_LINK_PACKETS = 1.3
"""A plain link lets one packet pass at once; what is measured of it is a little more."""
ALIKE = 1e-3
"""By which part what is measured of a link differs from what it is, with times that are exact."""
ENOUGH_GAPS = 30
ENOUGH_TO_SEE_WHEN = 30
"""Publications of a run from which on a rate is that of the time between first and last: streams
begin later than others, and end earlier. Of fewer it is that of the whole run."""
NEARLY_ALL = 0.99
"""If losses are not told: which part of the publications somebody must be expected to get, for a
rate to be told from what was delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterEstimate:
    """A parameter: what the scenario declares, what the records say; a 95 % interval.

    ``path``: where it is in a scenario (``scenario_paths``), if it is there. ``chance``: how likely
    so much of a difference is if what is declared is right. ``applied``: whether it goes into the
    overlay; it does not if it is ``as_declared``, as far as records tell, or as ``note`` says.
    """

    kind: str
    name: str
    path: str | None
    declared: float | str | None
    estimated: float | str
    interval: tuple[float, float] | None
    applied: bool
    chance: float | None = None
    as_declared: bool = False
    note: str = ""


def losses_are_told(sums: pd.DataFrame) -> bool:
    """Whether records say what was not delivered; clients know only of what they got."""
    outcomes = sums[sums.kind == "outcomes"]
    return bool((outcomes.name != "delivered").any())


def estimate_parameters(
    sums: pd.DataFrame, scenario: Scenario, told: bool
) -> list[ParameterEstimate]:
    """All that can be told of a scenario's parameters; ``told``: whether losses are."""
    return _unless_by_chance(
        [
            *_rates(sums, scenario, told),
            *_sizes(sums[sums.kind == "sizes"], scenario),
            *_fan_out(sums, scenario, told),
            *_error_rates(sums[sums.kind == "outcomes"], scenario, told),
            *_links(sums, scenario),
        ]
    )


def _unless_by_chance(estimates: list[ParameterEstimate]) -> list[ParameterEstimate]:
    """What is declared stays where chance explains that the records say otherwise.

    For all parameters together (Holm): a scenario that is right stays as it is, all of it, with a
    probability of 95 %. An estimate of something that is declared right makes predictions worse.
    """
    asked = [n for n, one in enumerate(estimates) if one.applied and one.chance is not None]
    chances = holm(np.array([estimates[n].chance for n in asked], dtype=float)).tolist()
    likely = {n for n, chance in zip(asked, chances, strict=True) if chance > LEVEL}
    return [
        replace(one, applied=False, as_declared=True)
        if one.applied and (number in likely or one.estimated == one.declared)
        else one
        for number, one in enumerate(estimates)
    ]


def _seconds(spans: pd.DataFrame) -> float:
    """From the first to the last in each run, together."""
    runs = spans.groupby("run").agg({"low": "min", "high": "max"})
    return max(float((runs.high - runs.low).sum()), 1e-9)


def _while_active(spans: pd.DataFrame, count: float, whole: float) -> tuple[float, float]:
    """How many publications in how many seconds: while there were any, if that can be told."""
    runs = int(spans["run"].nunique())
    if count < runs * ENOUGH_TO_SEE_WHEN:
        return count, whole
    # a time from the first to the last holds one less than were seen
    return count - runs, _seconds(spans)


@dataclass(frozen=True, slots=True)
class _Published:
    """How many publications there were, and how that is known."""

    count: float
    applied: bool
    note: str


def _rates(sums: pd.DataFrame, scenario: Scenario, told: bool) -> Iterator[ParameterEstimate]:
    rows = sums[sums.kind == "publications"]
    if not len(rows):
        return
    whole, active = _seconds(sums[sums.kind == "span"]), sums[sums.kind == "active"]
    seen = rows.groupby(["name", "of"])[["count", "total", "squares", "low"]].sum()
    numbers = _numbers(sums[sums.kind == "numbered"])
    expected = {} if told else _seen_by_somebody(scenario)
    totals: dict[str, float] = {}
    for publisher in scenario.publishers:
        for one in publisher.publications:
            totals[one.topic] = totals.get(one.topic, 0.0) + one.rate_per_second
    for publisher in scenario.publishers:
        for one in publisher.publications:
            share, who = 1.0, publisher.id
            if (one.topic, who) not in seen.index:
                # nobody says who published: shared out as declared
                if (one.topic, "") not in seen.index or totals[one.topic] <= 0:
                    continue
                share, who = one.rate_per_second / totals[one.topic], ""
            row = seen.loc[(one.topic, who)]
            numbered = numbers.get((one.topic, who))
            there = _published(float(row["count"]), numbered, told, expected.get(one.topic, 0.0))
            name = f"{publisher.id} {one.topic}"
            at = ("publishers", publisher.id, "publications", one.topic)
            if who:
                known = told or numbered is not None or there.applied
                path = path_of(*at, "arrivals")
                yield _arrivals(name, path, one.arrivals, row, known)
            spans = active[(active.name == one.topic) & (active["of"] == who)]
            count, seconds = _while_active(spans, there.count, whole)
            declared = totals[one.topic] if not who else one.rate_per_second
            sure = _sure_of_rate(count, seconds, declared, row)
            yield ParameterEstimate(
                kind="rate_per_second",
                name=name,
                path=path_of(*at, "rate_per_second"),
                declared=one.rate_per_second,
                estimated=share * count / seconds,
                interval=(share * sure.interval[0], share * sure.interval[1]),
                applied=there.applied,
                chance=sure.chance,
                note=there.note + ("; shared out as declared" if not who else ""),
            )


def _sure_of_rate(count: float, seconds: float, declared: float, row: pd.Series) -> Uncertainty:
    """By how regular the gaps are, if enough were seen: clockwork is told more exactly."""
    if float(row["low"]) < ENOUGH_GAPS:
        sure = of_count(count, declared * seconds)
        return Uncertainty((sure.interval[0] / seconds, sure.interval[1] / seconds), sure.chance)
    error = float(np.sqrt(max(count * _variability(row), 1.0))) / seconds
    return of_mean(count / seconds, error, declared)


def _variability(row: pd.Series) -> float:
    """The squared coefficient of variation of the gaps between publications."""
    gaps = max(float(row["low"]), 1.0)
    mean = float(row["total"]) / gaps
    return (float(row["squares"]) / gaps - mean**2) / mean**2 if mean > 0 else 1.0


def _numbers(rows: pd.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    """By topic and publisher: how many numbered publications were seen, and how many there were."""
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
    seen: float, numbered: tuple[float, float] | None, told: bool, expected: float
) -> _Published:
    if told:
        return _Published(seen, True, "records tell of losses too")
    if numbered is not None:
        known, there = numbered
        return _Published(
            there + seen - known, True, f"by the numbers of the events; {known / there:.0%} seen"
        )
    if expected >= NEARLY_ALL:
        return _Published(seen / expected, True, f"{expected:.1%} expected to reach somebody")
    return _Published(
        seen, False, "at least: records hold only what was delivered, and events have no numbers"
    )


def _seen_by_somebody(scenario: Scenario) -> Mapping[str, float]:
    """By topic, the part of the publications that at least one subscriber is expected to get."""
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
    note = f"squared variability of the gaps {variability:.2f}"
    return ParameterEstimate(
        kind="arrivals",
        name=name,
        path=path,
        declared=declared,
        estimated="periodic" if variability < PERIODIC_VARIABILITY else "poisson",
        interval=None,
        applied=known and float(row["low"]) >= ENOUGH_GAPS,
        note=note if known else f"{note}; losses between them are not told",
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
        rounded = float(max(round(mean - headers), 0))
        sure = of_mean(mean - headers, float(np.sqrt(variance / count)), float(topic.event_bytes))
        yield ParameterEstimate(
            kind="event_bytes",
            name=topic.name,
            path=path_of("topics", topic.name, "event_bytes"),
            declared=float(topic.event_bytes),
            estimated=rounded,
            interval=sure.interval,
            applied=True,
            chance=1.0 if rounded == topic.event_bytes else sure.chance,
        )
        yield ParameterEstimate(
            kind="size_distribution",
            name=topic.name,
            path=path_of("topics", topic.name, "size_distribution"),
            declared=topic.size_distribution,
            estimated="fixed" if variability < FIXED_VARIABILITY else "exponential",
            interval=None,
            applied=count >= 30,
            note=f"squared variability {variability:.2f}",
        )


def _fan_out(sums: pd.DataFrame, scenario: Scenario, told: bool) -> Iterator[ParameterEstimate]:
    published = sums[sums.kind == "publications"].groupby("name")["count"].sum()
    notified = sums[sums.kind == "fan-out"].groupby("name")["count"].sum()
    for topic in scenario.topics:
        if topic.name in published.index and topic.name in notified.index:
            yield ParameterEstimate(
                kind="fan_out",
                name=topic.name,
                path=None,
                declared=None,
                estimated=float(notified[topic.name] / published[topic.name]),
                interval=None,
                applied=False,
                note="follows from who subscribes; a scenario does not declare it"
                + ("" if told else "; of what was delivered"),
            )


def _error_rates(rows: pd.DataFrame, scenario: Scenario, told: bool) -> Iterator[ParameterEstimate]:
    switch_of = {s.id: s.switch for s in scenario.subscribers}
    behind = rows["of"].map(switch_of)
    for switch in scenario.network.switches:
        here = rows[behind == switch.id]
        delivered = int(here[here.name == "delivered"]["count"].sum())
        lost = int(here[here.name == "lost-on-link"]["count"].sum())
        if not told or delivered + lost == 0:
            continue
        sure = of_part(lost, delivered + lost, switch.error_rate)
        yield ParameterEstimate(
            kind="error_rate",
            name=switch.id,
            path=path_of("network", "switches", switch.id, "error_rate"),
            declared=switch.error_rate,
            estimated=lost / (delivered + lost),
            interval=sure.interval,
            applied=delivered > 0,
            chance=sure.chance,
        )


def _links(sums: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    for switch in scenario.network.switches:
        speeds = sums[(sums.kind == "speed") & (sums.name == switch.id)]
        bursts = sums[(sums.kind == "burst") & (sums.name == switch.id)]
        blurred = int(((sums.kind == "blurred") & (sums.name == switch.id)).sum())
        if not len(speeds) or blurred >= len(speeds):
            if blurred:
                yield _not_shown(switch)
            continue
        blocks = sums[sums.name == switch.id]
        yield _bandwidth(switch, speeds, list(blocks[blocks.kind == "block-speed"].total))
        yield _burst(switch, bursts, list(blocks[blocks.kind == "block-burst"].total))


def _bandwidth(switch: Switch, speeds: pd.DataFrame, blocks: list[float]) -> ParameterEstimate:
    speed, declared = float(speeds.total.median()), switch.bandwidth_bits_per_second
    sure = of_blocks(speed, blocks, declared, float(speeds.high.median()))
    return ParameterEstimate(
        kind="bandwidth_bits_per_second",
        name=switch.id,
        path=path_of("network", "switches", switch.id, "bandwidth_bits_per_second"),
        declared=declared,
        estimated=speed,
        interval=sure.interval if sure else None,
        applied=True,
        chance=_chance(sure, speed, declared),
        note=f"{float(speeds.low.mean()):.0%} of the packets left back to back",
    )


def _burst(switch: Switch, bursts: pd.DataFrame, blocks: list[float]) -> ParameterEstimate:
    burst, declared = float(bursts.total.median()), switch.burst_bytes
    packet = PLAIN_LINK_PACKETS * float(bursts.high.max())
    sure = of_highest(burst, blocks, declared)
    if burst <= packet:  # and a bucket of no more than a packet is none
        burst, sure = 0.0, Uncertainty((0.0, packet), float(declared <= packet))
    return ParameterEstimate(
        kind="burst_bytes",
        name=switch.id,
        path=path_of("network", "switches", switch.id, "burst_bytes"),
        declared=declared,
        estimated=burst,
        interval=sure.interval if sure else None,
        applied=True,
        chance=_chance(sure, burst, declared),
        note="a token bucket, at least" if burst else "a plain link",
    )


def _chance(sure: Uncertainty | None, estimated: float, declared: float) -> float | None:
    """What is measured of a link is a little off, however often."""
    if abs(estimated - declared) <= ALIKE * declared:
        return 1.0
    return sure.chance if sure else None


def _not_shown(switch: Switch) -> ParameterEstimate:
    return ParameterEstimate(
        kind="bandwidth_bits_per_second",
        name=switch.id,
        path=None,
        declared=switch.bandwidth_bits_per_second,
        estimated="not told",
        interval=None,
        applied=False,
        note="times of arrival are too blurred to show packets that leave back to back",
    )


def overlay_of(estimates: list[ParameterEstimate]) -> dict[str, Any]:
    """The parts of a scenario that the estimates replace, by path (``scenario_paths``)."""
    return {
        one.path: int(one.estimated) if one.kind == "event_bytes" else one.estimated
        for one in estimates
        if one.applied and one.path is not None
    }

"""Estimates of scenario parameters from sums over windows, with intervals. Pure."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from firedex.wire import Scenario, Switch
from firedex_models.site import event_wire_bytes
from firedex_spark.calibration.intervals import (
    Uncertainty,
    block_interval,
    fraction_interval,
    maximum_interval,
    mean_interval,
)
from firedex_spark.calibration.parameter_estimate import ParameterEstimate
from firedex_spark.calibration.publication_estimates import estimate_publications
from firedex_spark.sweep.scenario_paths import join_path
from firedex_spark.validation.batch_means import holm_adjusted

__all__ = ["estimate_parameters", "losses_are_recorded"]

LEVEL = 0.05
FIXED_VARIABILITY = 0.1
"""Squared coefficient of variation below which all events of a topic have the same size."""
PLAIN_LINK_PACKETS = 1.3
"""A plain link lets one packet pass at once; what is measured of it is a little more."""
ALIKE = 1e-3
"""By which part what is measured of a link differs from what it is, with times that are exact."""


def losses_are_recorded(sums: pd.DataFrame) -> bool:
    """Return whether the records include losses; clients record deliveries only."""
    outcomes = sums[sums.kind == "outcomes"]
    return bool((outcomes.name != "delivered").any())


def estimate_parameters(
    sums: pd.DataFrame, scenario: Scenario, losses_recorded: bool
) -> list[ParameterEstimate]:
    """Return all parameters that can be estimated; ``losses_recorded``: losses are recorded."""
    return _keep_declared_unless_significant(
        [
            *estimate_publications(sums, scenario, losses_recorded),
            *_sizes(sums[sums.kind == "sizes"], scenario),
            *_fan_out(sums, scenario, losses_recorded),
            *_error_rates(sums[sums.kind == "outcomes"], scenario, losses_recorded),
            *_links(sums, scenario),
        ]
    )


def _keep_declared_unless_significant(
    estimates: list[ParameterEstimate],
) -> list[ParameterEstimate]:
    """Keep the declared value where the difference is not significant.

    All parameters are tested together (Holm): a correct scenario stays unchanged with a probability
    of 95 %. Replacing a correct value by an estimate makes predictions worse.
    """
    asked = [n for n, one in enumerate(estimates) if one.applied and one.chance is not None]
    chances = holm_adjusted(np.array([estimates[n].chance for n in asked], dtype=float)).tolist()
    likely = {n for n, chance in zip(asked, chances, strict=True) if chance > LEVEL}
    return [
        replace(one, applied=False, as_declared=True)
        if one.applied and (number in likely or one.estimated == one.declared)
        else one
        for number, one in enumerate(estimates)
    ]


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
        uncertainty = mean_interval(
            mean - headers, float(np.sqrt(variance / count)), float(topic.event_bytes)
        )
        yield ParameterEstimate(
            kind="event_bytes",
            name=topic.name,
            path=join_path("topics", topic.name, "event_bytes"),
            declared=float(topic.event_bytes),
            estimated=rounded,
            interval=uncertainty.interval,
            applied=True,
            chance=1.0 if rounded == topic.event_bytes else uncertainty.p_value,
        )
        yield ParameterEstimate(
            kind="size_distribution",
            name=topic.name,
            path=join_path("topics", topic.name, "size_distribution"),
            declared=topic.size_distribution,
            estimated="fixed" if variability < FIXED_VARIABILITY else "exponential",
            interval=None,
            applied=count >= 30,
            note=f"squared coefficient of variation {variability:.2f}",
        )


def _fan_out(
    sums: pd.DataFrame, scenario: Scenario, losses_recorded: bool
) -> Iterator[ParameterEstimate]:
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
                note="follows from the subscriptions; not declared in a scenario"
                + ("" if losses_recorded else "; deliveries only"),
            )


def _error_rates(
    rows: pd.DataFrame, scenario: Scenario, losses_recorded: bool
) -> Iterator[ParameterEstimate]:
    switch_of = {s.id: s.switch for s in scenario.subscribers}
    behind = rows["of"].map(switch_of)
    for switch in scenario.network.switches:
        here = rows[behind == switch.id]
        delivered = int(here[here.name == "delivered"]["count"].sum())
        lost = int(here[here.name == "lost-on-link"]["count"].sum())
        if not losses_recorded or delivered + lost == 0:
            continue
        uncertainty = fraction_interval(lost, delivered + lost, switch.error_rate)
        yield ParameterEstimate(
            kind="error_rate",
            name=switch.id,
            path=join_path("network", "switches", switch.id, "error_rate"),
            declared=switch.error_rate,
            estimated=lost / (delivered + lost),
            interval=uncertainty.interval,
            applied=delivered > 0,
            chance=uncertainty.p_value,
        )


def _links(sums: pd.DataFrame, scenario: Scenario) -> Iterator[ParameterEstimate]:
    for switch in scenario.network.switches:
        speeds = sums[(sums.kind == "speed") & (sums.name == switch.id)]
        bursts = sums[(sums.kind == "burst") & (sums.name == switch.id)]
        blurred = int(((sums.kind == "blurred") & (sums.name == switch.id)).sum())
        if not len(speeds) or blurred >= len(speeds):
            if blurred:
                yield _unknown_bandwidth(switch)
            continue
        blocks = sums[sums.name == switch.id]
        yield _bandwidth(switch, speeds, list(blocks[blocks.kind == "block-speed"].total))
        yield _burst(switch, bursts, list(blocks[blocks.kind == "block-burst"].total))


def _bandwidth(switch: Switch, speeds: pd.DataFrame, blocks: list[float]) -> ParameterEstimate:
    speed, declared = float(speeds.total.median()), switch.bandwidth_bits_per_second
    uncertainty = block_interval(speed, blocks, declared, float(speeds.high.median()))
    return ParameterEstimate(
        kind="bandwidth_bits_per_second",
        name=switch.id,
        path=join_path("network", "switches", switch.id, "bandwidth_bits_per_second"),
        declared=declared,
        estimated=speed,
        interval=uncertainty.interval if uncertainty else None,
        applied=True,
        chance=_link_p_value(uncertainty, speed, declared),
        note=f"{float(speeds.low.mean()):.0%} of the packets left back to back",
    )


def _burst(switch: Switch, bursts: pd.DataFrame, blocks: list[float]) -> ParameterEstimate:
    burst, declared = float(bursts.total.median()), switch.burst_bytes
    packet = PLAIN_LINK_PACKETS * float(bursts.high.max())
    uncertainty = maximum_interval(burst, blocks, declared)
    if burst <= packet:  # and a bucket of no more than a packet is none
        burst, uncertainty = 0.0, Uncertainty((0.0, packet), float(declared <= packet))
    return ParameterEstimate(
        kind="burst_bytes",
        name=switch.id,
        path=join_path("network", "switches", switch.id, "burst_bytes"),
        declared=declared,
        estimated=burst,
        interval=uncertainty.interval if uncertainty else None,
        applied=True,
        chance=_link_p_value(uncertainty, burst, declared),
        note="a token bucket; lower bound" if burst else "a plain link",
    )


def _link_p_value(
    uncertainty: Uncertainty | None, estimated: float, declared: float
) -> float | None:
    """Return the p-value; a difference within the accuracy of link measurements has p-value 1."""
    if abs(estimated - declared) <= ALIKE * declared:
        return 1.0
    return uncertainty.p_value if uncertainty else None


def _unknown_bandwidth(switch: Switch) -> ParameterEstimate:
    return ParameterEstimate(
        kind="bandwidth_bits_per_second",
        name=switch.id,
        path=None,
        declared=switch.bandwidth_bits_per_second,
        estimated="unknown",
        interval=None,
        applied=False,
        note="arrival times are too inexact to show packets that leave back to back",
    )

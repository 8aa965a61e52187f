"""Effects of a scenario's timeline on hosts (pure) and on the site (performed on a testbed)."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from firedex.transport.http import HttpClient, HttpError
from firedex.wire import Network, Publisher, Scenario, Switch, from_plain, to_json
from firedex.wire.incident import PhaseChange
from firedex.wire.scenario import (
    BandwidthChange,
    Join,
    Leave,
    LinkChange,
    PartKill,
    PhaseStart,
    Surge,
    TimelineEvent,
)
from firedex_emulation.errors import EmulationError
from firedex_emulation.measurement.observation import Action
from firedex_emulation.testbed.interface import Testbed

__all__ = ["describe_event", "perform_event", "presence_intervals", "publication_times"]

Span = tuple[float, float | None]


def presence_intervals(scenario: Scenario, subscriber: str) -> tuple[Span, ...]:
    """Return when a subscriber is connected; the last end is None if it stays."""
    own_events = (
        event
        for event in scenario.timeline
        if isinstance(event, Join | Leave) and event.subscriber == subscriber
    )
    # Sorting is stable: events at the same time keep the order of the file.
    changes = [
        (event.at_seconds, isinstance(event, Join))
        for event in sorted(own_events, key=lambda event: event.at_seconds)
    ]
    began: float | None = None if changes and changes[0][1] else 0.0
    spans: list[Span] = []
    for at, joins in changes:
        if joins:
            began = at
        elif began is not None:
            spans.append((began, at))
            began = None
    if began is not None:
        spans.append((began, None))
    return tuple(spans)


def publication_times(
    publisher: Publisher,
    timeline: Sequence[TimelineEvent],
    seconds: float,
    generator: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return sorted times and the publication index of each, with surges applied."""
    times: list[NDArray[np.float64]] = []
    numbers: list[NDArray[np.int64]] = []
    for number, publication in enumerate(publisher.publications):
        surges = [
            event
            for event in timeline
            if isinstance(event, Surge)
            and event.publisher == publisher.id
            and event.topic in (None, publication.topic)
        ]
        for began, ended, factor in _rate_intervals(surges, seconds):
            rate = publication.rate_per_second * factor
            times.append(
                began + _arrival_times(rate, ended - began, publication.arrivals, generator)
            )
            numbers.append(np.full(len(times[-1]), number, dtype=np.int64))
    when = np.concatenate([*times, np.empty(0)])
    what = np.concatenate([*numbers, np.empty(0, dtype=np.int64)])
    order = np.argsort(when, kind="stable")
    return when[order], what[order]


def _rate_intervals(surges: Sequence[Surge], seconds: float) -> list[tuple[float, float, float]]:
    """Split the run where a surge starts or ends; return (start, end, rate factor)."""
    edges = {0.0, seconds}
    for surge in surges:
        edges |= {surge.at_seconds, surge.at_seconds + surge.for_seconds}
    boundaries = sorted(edge for edge in edges if 0 <= edge <= seconds)
    found = []
    for began, ended in pairwise(boundaries):
        factor = 1.0
        for surge in surges:
            if surge.at_seconds <= began < surge.at_seconds + surge.for_seconds:
                factor *= surge.factor
        found.append((began, ended, factor))
    return found


def _arrival_times(
    rate: float, seconds: float, arrivals: str, generator: np.random.Generator
) -> NDArray[np.float64]:
    if rate <= 0:
        return np.empty(0)
    if arrivals == "periodic":
        return np.arange(generator.uniform(0, 1 / rate), seconds, 1 / rate)
    return np.sort(generator.uniform(0, seconds, generator.poisson(rate * seconds)))


def describe_event(event: TimelineEvent) -> str:
    """Return a short description for reports."""
    match event:
        case BandwidthChange():
            return f"{event.switch}: {event.bandwidth_bits_per_second / 1e6:g} Mbit/s"
        case LinkChange():
            return f"{event.from_}–{event.to} {'up' if event.up else 'down'}"
        case PartKill():
            return f"{event.part} killed"
        case PhaseStart():
            return f"phase {event.phase}"
    return event.kind


def perform_event(event: TimelineEvent, testbed: Testbed) -> Action:
    """Perform a timeline event; an error is recorded in the returned action."""
    requested_at = time.time()
    change, error_message = None, None
    try:
        match event:
            case PhaseStart():
                body = to_json(PhaseChange(phase=event.phase))
                change = _request_change(testbed.service, "PUT", "/v1/incident/phase", body)
            case BandwidthChange():
                change = _set_bandwidth(testbed.service, event)
            case LinkChange():
                testbed.set_link(event.from_, event.to, up=event.up)
            case PartKill():
                testbed.kill(event.part, event.down_seconds)
    except (HttpError, EmulationError) as error:
        error_message = str(error)
    return Action(
        description=describe_event(event),
        kind=event.kind,
        asked_at=requested_at,
        done_at=time.time(),
        change=change,
        phase=event.phase if isinstance(event, PhaseStart) else None,
        is_failure=isinstance(event, PartKill) or (isinstance(event, LinkChange) and not event.up),
        error_message=error_message,
    )


def _set_bandwidth(service: HttpClient, event: BandwidthChange) -> int | None:
    plain = json.loads(service.request("GET", "/v1/network").body)["network"]
    network = from_plain(Network, plain)
    switches = tuple(
        _with_bandwidth(each, event.bandwidth_bits_per_second) if each.id == event.switch else each
        for each in network.switches
    )
    body = to_json(replace(network, switches=switches))
    return _request_change(service, "PUT", "/v1/network", body)


def _with_bandwidth(switch: Switch, bits_per_second: float) -> Switch:
    """Scale the guaranteed rates down with the bandwidth; the burst stays at least a packet."""
    share = bits_per_second / switch.bandwidth_bits_per_second
    return replace(
        switch,
        bandwidth_bits_per_second=bits_per_second,
        guaranteed_bits_per_second=switch.guaranteed_bits_per_second * min(share, 1.0),
    )


def _request_change(service: HttpClient, method: str, path: str, body: str) -> int | None:
    answer = json.loads(service.request(method, f"{path}?wait_seconds=0", body).body)
    change = answer.get("change")
    return int(change) if change is not None else None

"""A link with priorities, simulated event by event: slow to trust nothing, short enough to read.

Every publication makes, at one instant, one packet for each stream that its drop coin spares; the
packets of a publication share one size factor and join their queues in random order. One server,
FIFO within a class, no preemption. Shares no code with ``firedex_models``.
"""

from dataclasses import dataclass

import numpy as np
from bottleneck_cases import Bottleneck
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NOBODY = -1
READY = -1e-9
"""Tokens above this count as none owed: refilling to exactly 0 is not exact in floating point."""
WARM_UP, COOL_DOWN = 0.1, 0.02
"""Shares of the time that are not looked at: the queue still fills, or stays unfinished."""


@dataclass(frozen=True, kw_only=True)
class Deliveries:
    """Every packet that was looked at: its stream and the time from publication to delivery."""

    stream: Integers
    delay: Floats


def simulate(
    case: Bottleneck, *, publications: float, generator: np.random.Generator
) -> Deliveries:
    """Run for as long as ``publications`` take on average."""
    streams = case.streams
    duration = publications / sum(topic.rate for topic in case.topics)
    published_at, topic = _publish(case, duration, generator)
    exponential = np.array([t.exponential for t in case.topics])[topic]
    size_factor = np.where(exponential, generator.exponential(size=len(topic)), 1.0)
    first_stream = np.searchsorted([s.topic for s in streams], np.arange(len(case.topics) + 1))
    publication, stream = _fan_out(
        topic, first_stream, np.array([s.survival for s in streams]), generator
    )
    arrival = published_at[publication]
    size = np.array([s.wire_bytes for s in streams])[stream] * size_factor[publication]
    priority = np.array([s.priority for s in streams])[stream]
    if case.burst_bytes or case.guaranteed_bytes_per_second:
        delay = _leave_shaper(
            arrival,
            priority,
            size,
            case.classes,
            case.bytes_per_second,
            case.burst_bytes,
            case.guaranteed_bytes_per_second,
        )
    else:
        delay = _leave_plain_link(arrival, priority, size / case.bytes_per_second, case.classes)
    kept = (arrival > WARM_UP * duration) & (arrival < (1 - COOL_DOWN) * duration)
    return Deliveries(stream=stream[kept], delay=delay[kept])


def class_of(case: Bottleneck, deliveries: Deliveries) -> Integers:
    return np.array([s.priority for s in case.streams])[deliveries.stream]


def mean_by(group: Integers, value: Floats, groups: int) -> Floats:
    return np.bincount(group, value, minlength=groups) / np.bincount(group, minlength=groups)


def _publish(
    case: Bottleneck, duration: float, generator: np.random.Generator
) -> tuple[Floats, Integers]:
    """When something is published, in order, and to which topic."""
    times, topics = [], []
    for number, topic in enumerate(case.topics):
        if topic.periodic:
            # A phase of its own, new in every replication: nobody winds the publishers' clocks.
            period = 1.0 / topic.rate
            moments = np.arange(generator.uniform(0.0, period), duration, period)
        else:
            count = generator.poisson(topic.rate * duration)
            moments = generator.uniform(0.0, duration, size=count)
        times.append(moments)
        topics.append(np.full(len(moments), number))
    moment, topic_of = np.concatenate(times), np.concatenate(topics)
    order = np.argsort(moment)
    return moment[order], topic_of[order]


@njit
def _fan_out(topic, first_stream, survival, generator):  # type: ignore[no-untyped-def]
    """Which publication and which stream each packet is of, in the order in which they join."""
    packets = 0
    for v in topic:
        packets += first_stream[v + 1] - first_stream[v]
    publication = np.empty(packets, dtype=np.int64)
    stream = np.empty(packets, dtype=np.int64)
    made = 0
    for number in range(len(topic)):
        begin = made
        for member in range(first_stream[topic[number]], first_stream[topic[number] + 1]):
            if generator.random() < survival[member]:
                publication[made] = number
                stream[made] = member
                # Each newcomer changes places with a random one: a random order in the end.
                other = begin + int(generator.random() * (made - begin + 1))
                stream[made], stream[other] = stream[other], stream[made]
                made += 1
    return publication[:made], stream[:made]


@njit
def _join(packet, k, first, last, behind):  # type: ignore[no-untyped-def]
    if first[k] == NOBODY:
        first[k] = packet
    else:
        behind[last[k]] = packet
    last[k] = packet


@njit
def _highest_waiting(first):  # type: ignore[no-untyped-def]
    for k in range(len(first)):
        if first[k] != NOBODY:
            return k
    return NOBODY


@njit
def _leave_plain_link(arrival, priority, service, classes):  # type: ignore[no-untyped-def]
    """Delay of every packet, its own transmission included."""
    packets = len(arrival)
    delay = np.empty(packets)
    first, last = np.full(classes, NOBODY), np.full(classes, NOBODY)
    behind = np.full(packets, NOBODY)
    clock, arrived = 0.0, 0
    for _ in range(packets):
        if _highest_waiting(first) == NOBODY:
            clock = max(clock, arrival[arrived])
        while arrived < packets and arrival[arrived] <= clock:
            _join(arrived, priority[arrived], first, last, behind)
            arrived += 1
        k = _highest_waiting(first)
        packet = first[k]
        first[k] = behind[packet]
        clock += service[packet]
        delay[packet] = clock - arrival[packet]
    return delay


@njit
def _within_guarantee(first, leaf_tokens, guaranteed):  # type: ignore[no-untyped-def]
    """The highest waiting class that owes nothing, or else how long until one does not."""
    pause = np.inf
    if guaranteed > 0:
        for k in range(len(first)):
            if first[k] != NOBODY:
                if leaf_tokens[k] >= READY:
                    return k, 0.0
                pause = min(pause, -leaf_tokens[k] / guaranteed)
    return NOBODY, pause


@njit
def _leave_shaper(arrival, priority, size, classes, speed, burst, guaranteed):  # type: ignore[no-untyped-def]
    """The same behind a token bucket, with leaves that are served within their guarantee first.

    A packet leaves when no tokens are owed, and then owes its size. An idle link passes ``burst``
    bytes at once, the packet itself included; without a burst it takes its transmission time.
    """
    packets = len(arrival)
    delay = np.empty(packets)
    first, last = np.full(classes, NOBODY), np.full(classes, NOBODY)
    behind = np.full(packets, NOBODY)
    full = max(burst - size.mean(), 0.0)
    tokens, leaf_tokens = full, np.zeros(classes)
    clock, arrived, left = 0.0, 0, 0
    while left < packets:
        while arrived < packets and arrival[arrived] <= clock:
            _join(arrived, priority[arrived], first, last, behind)
            arrived += 1
        chosen, leaf_pause = _within_guarantee(first, leaf_tokens, guaranteed)
        within_guarantee = chosen != NOBODY
        if not within_guarantee and tokens >= READY:
            chosen = _highest_waiting(first)
        if chosen == NOBODY:
            pause = leaf_pause
            if arrived < packets:
                pause = min(pause, arrival[arrived] - clock)
            if arrived > left:
                pause = min(pause, -tokens / speed)
            clock += pause
            tokens = min(tokens + pause * speed, full)
            for k in range(classes):
                leaf_tokens[k] = min(leaf_tokens[k] + pause * guaranteed, 0.0)
            continue
        packet = first[chosen]
        first[chosen] = behind[packet]
        tokens -= size[packet]
        if within_guarantee:
            leaf_tokens[chosen] -= size[packet]
        own_transmission = size[packet] / speed if burst == 0 else 0.0
        delay[packet] = clock + own_transmission - arrival[packet]
        left += 1
    return delay

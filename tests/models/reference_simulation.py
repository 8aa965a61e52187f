"""An event-by-event simulation of a link with priorities: simple rather than fast.

A publication creates one packet at the same time for each stream that does not drop it. The packets
of a publication share one size factor and join their queues in random order. There is one server;
a class is served in FIFO order without preemption. Shares no code with ``firedex_models``.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tests.models.bottleneck_cases import Bottleneck

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NONE = -1
NO_DEBT = -1e-9
"""A token count above this is treated as 0, because of rounding errors when tokens are added."""
WARM_UP, COOL_DOWN = 0.1, 0.02
"""Fractions of the simulated time at its start and end that are not evaluated."""


@dataclass(frozen=True, kw_only=True)
class Deliveries:
    """Every evaluated packet: its stream, and the time from publication to delivery."""

    stream: Integers
    delay: Floats


def simulate(
    case: Bottleneck, *, publications: float, generator: np.random.Generator
) -> Deliveries:
    """Simulate the time that ``publications`` take on average."""
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
        delay = _shaped_link_delays(
            arrival,
            priority,
            size,
            case.classes,
            case.bytes_per_second,
            case.burst_bytes,
            case.guaranteed_bytes_per_second,
        )
    else:
        delay = _plain_link_delays(arrival, priority, size / case.bytes_per_second, case.classes)
    evaluated = (arrival > WARM_UP * duration) & (arrival < (1 - COOL_DOWN) * duration)
    return Deliveries(stream=stream[evaluated], delay=delay[evaluated])


def packet_classes(case: Bottleneck, deliveries: Deliveries) -> Integers:
    return np.array([s.priority for s in case.streams])[deliveries.stream]


def group_means(group: Integers, value: Floats, groups: int) -> Floats:
    return np.bincount(group, value, minlength=groups) / np.bincount(group, minlength=groups)


def _publish(
    case: Bottleneck, duration: float, generator: np.random.Generator
) -> tuple[Floats, Integers]:
    """Return the times of all publications, in order, and their topics."""
    times, topics = [], []
    for number, topic in enumerate(case.topics):
        if topic.periodic:
            # Publishers are not synchronised: each has a random phase in every replication.
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
    """Return the publication and the stream of each packet, in the order in which they join."""
    packets = 0
    for v in topic:
        packets += first_stream[v + 1] - first_stream[v]
    publication = np.empty(packets, dtype=np.int64)
    stream = np.empty(packets, dtype=np.int64)
    packet_count = 0
    for number in range(len(topic)):
        first_packet = packet_count
        for member in range(first_stream[topic[number]], first_stream[topic[number] + 1]):
            if generator.random() < survival[member]:
                publication[packet_count] = number
                stream[packet_count] = member
                # Swap each new packet with a random one (Fisher–Yates shuffle).
                other = first_packet + int(generator.random() * (packet_count - first_packet + 1))
                stream[packet_count], stream[other] = stream[other], stream[packet_count]
                packet_count += 1
    return publication[:packet_count], stream[:packet_count]


@njit
def _join(packet, k, first, last, behind):  # type: ignore[no-untyped-def]
    if first[k] == NONE:
        first[k] = packet
    else:
        behind[last[k]] = packet
    last[k] = packet


@njit
def _highest_waiting(first):  # type: ignore[no-untyped-def]
    for k in range(len(first)):
        if first[k] != NONE:
            return k
    return NONE


@njit
def _plain_link_delays(arrival, priority, service, classes):  # type: ignore[no-untyped-def]
    """Return the delay of every packet, including its transmission."""
    packets = len(arrival)
    delay = np.empty(packets)
    first, last = np.full(classes, NONE), np.full(classes, NONE)
    behind = np.full(packets, NONE)
    clock, arrived = 0.0, 0
    for _ in range(packets):
        if _highest_waiting(first) == NONE:
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
    """Return the highest waiting class without token debt, or the time until there is one."""
    pause = np.inf
    if guaranteed > 0:
        for k in range(len(first)):
            if first[k] != NONE:
                if leaf_tokens[k] >= NO_DEBT:
                    return k, 0.0
                pause = min(pause, -leaf_tokens[k] / guaranteed)
    return NONE, pause


@njit
def _shaped_link_delays(arrival, priority, size, classes, speed, burst, guaranteed):  # type: ignore[no-untyped-def]
    """Return the delay of every packet behind a token bucket; guaranteed rates are served first.

    A packet is sent when the bucket has no debt, and then takes tokens for its size. An idle link
    sends ``burst`` bytes immediately, including the packet itself; without a burst a packet takes
    its transmission time.
    """
    packets = len(arrival)
    delay = np.empty(packets)
    first, last = np.full(classes, NONE), np.full(classes, NONE)
    behind = np.full(packets, NONE)
    full = max(burst - size.mean(), 0.0)
    tokens, leaf_tokens = full, np.zeros(classes)
    clock, arrived, left = 0.0, 0, 0
    while left < packets:
        while arrived < packets and arrival[arrived] <= clock:
            _join(arrived, priority[arrived], first, last, behind)
            arrived += 1
        chosen, leaf_pause = _within_guarantee(first, leaf_tokens, guaranteed)
        within_guarantee = chosen != NONE
        if not within_guarantee and tokens >= NO_DEBT:
            chosen = _highest_waiting(first)
        if chosen == NONE:
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

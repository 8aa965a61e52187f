"""Compiled kernels that simulate one outbound port packet by packet.

Packets are in order of arrival. A port has one server and is FIFO within a class, without
preemption; of packets that arrive at the same time, the highest class is sent first. The buffer
contains waiting packets only, not the packet in transmission. An idle link has room for one more
packet, which is sent immediately.

``SHARED``: ``room`` packets in total. If the buffer is full, an arrival of the lowest waiting class
or below is dropped; any other arrival replaces the last packet of that class (paper §5.3).
``PER_CLASS``: ``room`` packets for each class; a full buffer drops its oldest packet (as the HTB
classes of Open vSwitch do). ``INFINITE``: unshaped links have a faster kernel,
``transmit_infinite``.

A call processes the arrivals of one time slice. The first ``carried`` packets were already waiting
at its start. Packets that wait at its end have the departure time ``WAITING``; the caller passes
them to the next call.
"""

import numpy as np
from numba import njit

__all__ = [
    "INFINITE",
    "PER_CLASS",
    "SHARED",
    "WAITING",
    "fan_out",
    "serve",
    "transmit_finite",
    "transmit_infinite",
    "transmit_shaped",
]

INFINITE, SHARED, PER_CLASS = range(3)
NONE = -1
WAITING = -1.0
NO_DEBT = -1e-12
"""A token debt (in seconds) smaller than this is treated as 0, because of rounding errors."""


@njit(cache=True, inline="always")
def _append(packet, k, first, last, behind, ahead, waiting):  # type: ignore[no-untyped-def]
    ahead[packet] = last[k]
    behind[packet] = NONE
    if last[k] == NONE:
        first[k] = packet
    else:
        behind[last[k]] = packet
    last[k] = packet
    waiting[k] += 1
    waiting[-1] += 1


@njit(cache=True, inline="always")
def _pop(k, first, last, behind, ahead, waiting):  # type: ignore[no-untyped-def]
    """Remove and return the oldest packet of a class."""
    packet = first[k]
    first[k] = behind[packet]
    if first[k] == NONE:
        last[k] = NONE
    else:
        ahead[first[k]] = NONE
    waiting[k] -= 1
    waiting[-1] -= 1
    return packet


@njit(cache=True, inline="always")
def _pop_last(k, first, last, behind, ahead, waiting):  # type: ignore[no-untyped-def]
    """Remove and return the newest packet of a class."""
    packet = last[k]
    last[k] = ahead[packet]
    if last[k] == NONE:
        first[k] = NONE
    else:
        behind[last[k]] = NONE
    waiting[k] -= 1
    waiting[-1] -= 1
    return packet


@njit(cache=True, inline="always")
def _highest_waiting_class(first):  # type: ignore[no-untyped-def]
    for k in range(len(first)):
        if first[k] != NONE:
            return k
    return NONE


@njit(cache=True, inline="always")
def _enqueue(packet, k, kind, room, first, last, behind, ahead, waiting, departure):  # type: ignore[no-untyped-def]
    """Add a packet to the buffer; a packet that is dropped gets the departure time NaN."""
    if kind == SHARED and waiting[-1] >= room:
        lowest = len(first) - 1
        while lowest >= 0 and first[lowest] == NONE:
            lowest -= 1
        if lowest < 0 or k >= lowest:
            departure[packet] = np.nan
            return
        departure[_pop_last(lowest, first, last, behind, ahead, waiting)] = np.nan
    elif kind == PER_CLASS and waiting[k] >= room:
        departure[_pop(k, first, last, behind, ahead, waiting)] = np.nan
    _append(packet, k, first, last, behind, ahead, waiting)


@njit(cache=True)
def transmit_finite(  # type: ignore[no-untyped-def]
    arrival, priority, service, classes, kind, room, carried, until, free
):
    """Return departure times, the time when the link is free, and the packets found waiting.

    A packet whose transmission starts before ``until`` is sent; the others wait. The number of
    packets found waiting is the sum over all arrivals.
    """
    packets = len(arrival)
    departure = np.full(packets, WAITING)
    first, last = np.full(classes, NONE), np.full(classes, NONE)
    behind = np.empty(packets, dtype=np.int32)
    ahead = np.empty(packets, dtype=np.int32)
    waiting = np.zeros(classes + 1, dtype=np.int64)  # the last entry is the total
    found = 0.0
    for packet in range(carried):
        _append(packet, priority[packet], first, last, behind, ahead, waiting)
    for packet in range(carried, packets + 1):
        now = arrival[packet] if packet < packets else until
        k = _highest_waiting_class(first)
        while k != NONE and free < now:  # an arrival at this time is considered first
            chosen = _pop(k, first, last, behind, ahead, waiting)
            free += service[chosen]
            departure[chosen] = free
            k = _highest_waiting_class(first)
        if packet == packets:
            break
        found += waiting[-1]
        idle = free <= now
        if k == NONE and idle:
            free = now
            if packet + 1 == packets or arrival[packet + 1] > now:  # no other arrival at this time
                free = now + service[packet]
                departure[packet] = free
                continue
        _enqueue(
            packet, priority[packet], kind, room + idle, first, last, behind, ahead, waiting,
            departure,
        )  # fmt: skip
    return departure, free, found


@njit(cache=True)
def _within_guarantee(first, debt, guaranteed):  # type: ignore[no-untyped-def]
    """Return the highest waiting class within its guarantee, or the time until there is one."""
    pause = np.inf
    if guaranteed > 0:
        for k in range(len(first)):
            if first[k] != NONE:
                if debt[k] >= NO_DEBT:
                    return k, 0.0
                pause = min(pause, -debt[k] / guaranteed)
    return NONE, pause


@njit(cache=True)
def _refill(debt, tokens):  # type: ignore[no-untyped-def]
    for k in range(len(debt)):
        debt[k] = min(debt[k] + tokens, 0.0)


@njit(cache=True)
def transmit_shaped(  # type: ignore[no-untyped-def]
    arrival, priority, service, classes, kind, room, carried, until, state, debt,
    full, burst, guaranteed,
):  # fmt: skip
    """Do the same behind a token bucket (HTB). Times are in seconds of link time.

    A packet is sent if the bucket has no debt, and then takes tokens. ``full``: the tokens of an
    idle bucket beyond the packet itself. ``burst``: the part of a packet's transmission that takes
    no time. Classes within their guaranteed rate (``guaranteed``, a fraction of the link) are sent
    before all others. ``state``: clock and tokens; ``debt``: the token debt of each class.
    """
    packets = len(arrival)
    departure = np.full(packets, WAITING)
    first, last = np.full(classes, NONE), np.full(classes, NONE)
    behind = np.empty(packets, dtype=np.int32)
    ahead = np.empty(packets, dtype=np.int32)
    waiting = np.zeros(classes + 1, dtype=np.int64)
    clock, tokens, found = state[0], state[1], 0.0
    for packet in range(carried):
        _append(packet, priority[packet], first, last, behind, ahead, waiting)
    arrived = carried
    while True:
        while arrived < packets and arrival[arrived] <= clock:
            found += waiting[-1]
            _enqueue(
                arrived, priority[arrived], kind, room + (tokens >= NO_DEBT), first, last,
                behind, ahead, waiting, departure,
            )  # fmt: skip
            arrived += 1
        chosen, pause = _within_guarantee(first, debt, guaranteed)
        within_guarantee = chosen != NONE
        if not within_guarantee and tokens >= NO_DEBT:
            chosen = _highest_waiting_class(first)
        if chosen == NONE or clock >= until:
            if arrived < packets:
                pause = min(pause, arrival[arrived] - clock)
            if waiting[-1] > 0:
                pause = min(pause, -tokens)
            pause = min(pause, until - clock)
            if not 0 < pause < np.inf:
                break
            clock += pause
            tokens = min(tokens + pause, full)
            _refill(debt, pause * guaranteed)
            continue
        packet = _pop(chosen, first, last, behind, ahead, waiting)
        tokens -= service[packet]
        if within_guarantee:
            debt[chosen] -= service[packet]
        departure[packet] = clock + max(service[packet] - burst, 0.0)
    state[0], state[1] = clock, tokens
    return departure, found


@njit(cache=True)
def transmit_infinite(arrival, priority, service, classes, carried, until, free):  # type: ignore[no-untyped-def]
    """Do the same as ``transmit_finite`` with an infinite buffer."""
    packets = len(arrival)
    departure = np.full(packets, WAITING)
    first, last = np.full(classes, NONE), np.full(classes, NONE)
    behind = np.empty(packets, dtype=np.int32)
    arrived = waiting = found = 0
    highest = classes  # no packet waits in the classes above
    while True:
        # an arrival at the time when the link becomes free is considered
        while arrived < packets and (arrived < carried or arrival[arrived] <= free):
            k = priority[arrived]
            if first[k] == NONE:
                first[k] = arrived
            else:
                behind[last[k]] = arrived
            behind[arrived] = NONE
            last[k] = arrived
            highest = min(highest, k)
            if arrived >= carried:
                found += waiting
            waiting += 1
            arrived += 1
        if waiting == 0:
            if arrived == packets:
                break
            free = arrival[arrived]
            continue
        if free >= until:
            break
        while first[highest] == NONE:
            highest += 1
        chosen = first[highest]
        first[highest] = behind[chosen]
        waiting -= 1
        free += service[chosen]
        departure[chosen] = free
    return departure, free, float(found)


@njit(cache=True)
def serve(arrival, server, service, free):  # type: ignore[no-untyped-def]
    """Return the time when each customer leaves its server; customers are in order of arrival.

    ``free``: the time when each server becomes free; it is updated.
    """
    departure = np.empty(len(arrival))
    for row in range(len(arrival)):
        at = server[row]
        free[at] = max(free[at], arrival[row]) + service[row]
        departure[row] = free[at]
    return departure


@njit(cache=True)
def fan_out(topic, first_stream, streams_of, generator):  # type: ignore[no-untyped-def]
    """Create one packet for each stream of each publication's topic, in random order.

    The streams of topic v are streams_of[first_stream[v]] … streams_of[first_stream[v + 1] − 1].
    Returns the row of the publication and the stream of each packet.
    """
    packets = 0
    for v in topic:
        packets += first_stream[v + 1] - first_stream[v]
    publication = np.empty(packets, dtype=np.int64)
    stream = np.empty(packets, dtype=np.int32)
    count = 0
    for number in range(len(topic)):
        start = count
        for row in range(first_stream[topic[number]], first_stream[topic[number] + 1]):
            publication[count] = number
            stream[count] = streams_of[row]
            # Swap each new packet with a random one (Fisher–Yates shuffle).
            other = start + int(generator.random() * (count - start + 1))
            stream[count], stream[other] = stream[other], stream[count]
            count += 1
    return publication, stream

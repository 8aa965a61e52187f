"""One outbound port, packet by packet: priorities, buffers, shaping. Compiled.

Packets come in the order of their arrival. One server, FIFO within a class, no preemption; of those
that arrive at one instant the highest class goes first. The buffer counts packets that wait: the
one being sent has left it, and while none is there is room for one more, which is about to be.

``SHARED``: ``room`` packets in all; when it is full, an arrival of the lowest waiting class or
below is dropped, any other evicts the last packet of that class (paper §5.3). ``PER_CLASS``:
``room`` packets for each class; the oldest gives way (Open vSwitch's leaves). ``ENDLESS`` buffers
have a faster kernel of their own (``endless_kernel``) where nothing is shaped.

A call works off the arrivals of one slice of time. The first ``carried`` packets are those that
were still waiting before; whoever waits at the end is ``WAITING`` and to be carried to the next.
"""

import numpy as np
from numba import njit

__all__ = ["ENDLESS", "PER_CLASS", "SHARED", "WAITING", "transmit_plain", "transmit_shaped"]

ENDLESS, SHARED, PER_CLASS = range(3)
NOBODY = -1
WAITING = -1.0
OWES_NOTHING = -1e-12
"""Seconds of link time owed that are as good as none: refilling to exactly 0 is not exact."""


@njit(cache=True, inline="always")
def _append(packet, k, first, last, behind, ahead, waiting):  # type: ignore[no-untyped-def]
    ahead[packet] = last[k]
    behind[packet] = NOBODY
    if last[k] == NOBODY:
        first[k] = packet
    else:
        behind[last[k]] = packet
    last[k] = packet
    waiting[k] += 1
    waiting[-1] += 1


@njit(cache=True, inline="always")
def _pop(k, first, last, behind, ahead, waiting):  # type: ignore[no-untyped-def]
    """Take the oldest packet of a class out."""
    packet = first[k]
    first[k] = behind[packet]
    if first[k] == NOBODY:
        last[k] = NOBODY
    else:
        ahead[first[k]] = NOBODY
    waiting[k] -= 1
    waiting[-1] -= 1
    return packet


@njit(cache=True, inline="always")
def _pop_last(k, first, last, behind, ahead, waiting):  # type: ignore[no-untyped-def]
    """Take the newest packet of a class out."""
    packet = last[k]
    last[k] = ahead[packet]
    if last[k] == NOBODY:
        first[k] = NOBODY
    else:
        behind[last[k]] = NOBODY
    waiting[k] -= 1
    waiting[-1] -= 1
    return packet


@njit(cache=True, inline="always")
def _highest(first):  # type: ignore[no-untyped-def]
    for k in range(len(first)):
        if first[k] != NOBODY:
            return k
    return NOBODY


@njit(cache=True, inline="always")
def _enqueue(packet, k, kind, room, first, last, behind, ahead, waiting, departure):  # type: ignore[no-untyped-def]
    """Put a packet into the buffer; whoever has no place in it never departs (NaN)."""
    if kind == SHARED and waiting[-1] >= room:
        lowest = len(first) - 1
        while lowest >= 0 and first[lowest] == NOBODY:
            lowest -= 1
        if lowest < 0 or k >= lowest:
            departure[packet] = np.nan
            return
        departure[_pop_last(lowest, first, last, behind, ahead, waiting)] = np.nan
    elif kind == PER_CLASS and waiting[k] >= room:
        departure[_pop(k, first, last, behind, ahead, waiting)] = np.nan
    _append(packet, k, first, last, behind, ahead, waiting)


@njit(cache=True)
def transmit_plain(  # type: ignore[no-untyped-def]
    arrival, priority, service, classes, kind, room, carried, until, free
):
    """When each packet has left, when the link is free next, and the packets found waiting.

    A packet that starts before ``until`` has left (whatever comes later), others wait.
    """
    packets = len(arrival)
    departure = np.full(packets, WAITING)
    first, last = np.full(classes, NOBODY), np.full(classes, NOBODY)
    behind = np.empty(packets, dtype=np.int32)
    ahead = np.empty(packets, dtype=np.int32)
    waiting = np.zeros(classes + 1, dtype=np.int64)  # the last is the sum
    found = 0.0
    for packet in range(carried):
        _append(packet, priority[packet], first, last, behind, ahead, waiting)
    for packet in range(carried, packets + 1):
        now = arrival[packet] if packet < packets else until
        k = _highest(first)
        while k != NOBODY and free < now:  # who comes at the same instant is considered, too
            chosen = _pop(k, first, last, behind, ahead, waiting)
            free += service[chosen]
            departure[chosen] = free
            k = _highest(first)
        if packet == packets:
            break
        found += waiting[-1]
        idle = free <= now
        if k == NOBODY and idle:
            free = now
            if packet + 1 == packets or arrival[packet + 1] > now:  # nobody to be compared with
                free = now + service[packet]
                departure[packet] = free
                continue
        _enqueue(
            packet, priority[packet], kind, room + idle, first, last, behind, ahead, waiting,
            departure,
        )  # fmt: skip
    return departure, free, found


@njit(cache=True)
def _within_guarantee(first, owed, guaranteed):  # type: ignore[no-untyped-def]
    """The highest waiting class that owes its leaf nothing, or else how long until one does not."""
    pause = np.inf
    if guaranteed > 0:
        for k in range(len(first)):
            if first[k] != NOBODY:
                if owed[k] >= OWES_NOTHING:
                    return k, 0.0
                pause = min(pause, -owed[k] / guaranteed)
    return NOBODY, pause


@njit(cache=True)
def _pay_back(owed, tokens):  # type: ignore[no-untyped-def]
    for k in range(len(owed)):
        owed[k] = min(owed[k] + tokens, 0.0)


@njit(cache=True)
def transmit_shaped(  # type: ignore[no-untyped-def]
    arrival, priority, service, classes, kind, room, carried, until, state, owed,
    full, burst, guaranteed,
):  # fmt: skip
    """The same behind a token bucket (HTB): a packet leaves when no tokens are owed, then owes.

    ``full``: what an idle bucket holds beyond the packet itself, in seconds of the link's time; of
    a packet's own transmission the ``burst`` passes at once. Leaves within their guarantee (a share
    of the link) go before all others. ``state``: the clock and the tokens; ``owed``: of each leaf.
    """
    packets = len(arrival)
    departure = np.full(packets, WAITING)
    first, last = np.full(classes, NOBODY), np.full(classes, NOBODY)
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
                arrived, priority[arrived], kind, room + (tokens >= OWES_NOTHING), first, last,
                behind, ahead, waiting, departure,
            )  # fmt: skip
            arrived += 1
        chosen, pause = _within_guarantee(first, owed, guaranteed)
        guaranteed_turn = chosen != NOBODY
        if not guaranteed_turn and tokens >= OWES_NOTHING:
            chosen = _highest(first)
        if chosen == NOBODY or clock >= until:
            if arrived < packets:
                pause = min(pause, arrival[arrived] - clock)
            if waiting[-1] > 0:
                pause = min(pause, -tokens)
            pause = min(pause, until - clock)
            if not 0 < pause < np.inf:
                break
            clock += pause
            tokens = min(tokens + pause, full)
            _pay_back(owed, pause * guaranteed)
            continue
        packet = _pop(chosen, first, last, behind, ahead, waiting)
        tokens -= service[packet]
        if guaranteed_turn:
            owed[chosen] -= service[packet]
        departure[packet] = clock + max(service[packet] - burst, 0.0)
    state[0], state[1] = clock, tokens
    return departure, found

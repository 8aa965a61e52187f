"""One outbound port that never drops, packet by packet: priorities, an endless buffer. Compiled.

The same port as in ``link_kernel``, and to the last bit the same times; but nobody ever gives way
here, so a class is a line that is only joined at its end and left at its front. Time goes from
one start of a transmission to the next, not from arrival to arrival. Both together make it several
times as fast. Arrays are kept local: handing them to helpers costs more than what those would do.
"""

import numpy as np
from numba import njit

from firedex_models.simulation.link_kernel import NOBODY, WAITING

__all__ = ["transmit_endless"]


@njit(cache=True)
def transmit_endless(arrival, priority, service, classes, carried, until, free):  # type: ignore[no-untyped-def]
    """When each packet has left, when the link is free next, and the packets found waiting.

    Packets come in the order of their arrival, the first ``carried`` were waiting before. A packet
    that starts before ``until`` has left (whatever comes later), others are ``WAITING``.
    """
    packets = len(arrival)
    departure = np.full(packets, WAITING)
    first, last = np.full(classes, NOBODY), np.full(classes, NOBODY)
    behind = np.empty(packets, dtype=np.int32)
    come = waiting = found = 0
    highest = classes  # nobody waits in the classes above it
    while True:
        # who comes at the instant at which the link becomes free is considered, too
        while come < packets and (come < carried or arrival[come] <= free):
            k = priority[come]
            if first[k] == NOBODY:
                first[k] = come
            else:
                behind[last[k]] = come
            behind[come] = NOBODY
            last[k] = come
            highest = min(highest, k)
            if come >= carried:
                found += waiting
            waiting += 1
            come += 1
        if waiting == 0:
            if come == packets:
                break
            free = arrival[come]
            continue
        if free >= until:
            break
        while first[highest] == NOBODY:
            highest += 1
        chosen = first[highest]
        first[highest] = behind[chosen]
        waiting -= 1
        free += service[chosen]
        departure[chosen] = free
    return departure, free, float(found)

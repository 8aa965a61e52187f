"""Single servers in the order of arrival, and the fan-out of publications. Compiled."""

import numpy as np
from numba import njit

__all__ = ["fan_out", "serve"]


@njit(cache=True)
def serve(arrival, server, service, free):  # type: ignore[no-untyped-def]
    """When each customer leaves its server; they come in the order of arrival.

    ``free``: when each server is free next; brought up to date.
    """
    departure = np.empty(len(arrival))
    for row in range(len(arrival)):
        at = server[row]
        free[at] = max(free[at], arrival[row]) + service[row]
        departure[row] = free[at]
    return departure


@njit(cache=True)
def fan_out(topic, first_stream, streams_of, generator):  # type: ignore[no-untyped-def]
    """One packet for each stream of each publication's topic, in random order.

    The streams of topic v are streams_of[first_stream[v]] … streams_of[first_stream[v + 1] − 1].
    Returns the row of the publication and the stream of each packet.
    """
    packets = 0
    for v in topic:
        packets += first_stream[v + 1] - first_stream[v]
    publication = np.empty(packets, dtype=np.int64)
    stream = np.empty(packets, dtype=np.int32)
    made = 0
    for number in range(len(topic)):
        begin = made
        for row in range(first_stream[topic[number]], first_stream[topic[number] + 1]):
            publication[made] = number
            stream[made] = streams_of[row]
            # each newcomer changes places with a random one: a random order in the end
            other = begin + int(generator.random() * (made - begin + 1))
            stream[made], stream[other] = stream[other], stream[made]
            made += 1
    return publication, stream

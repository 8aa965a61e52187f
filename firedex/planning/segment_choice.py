"""The best cut of ranked lists at given prices: a one-dimensional partition by dynamic programming.

A *segment* is a run of neighbouring items that would share a flow, and its value at the prices is
max_x [Σ U(x) − p x]. The best cut of a list into at most F segments maximises the sum of values.
"""

import numpy as np
from numba import njit

from firedex.planning.flow_choice import choose, finish_pieces, worth_of_flow

__all__ = ["best_cuts", "segment_values"]


@njit(cache=True, error_model="numpy")
def segment_values(start, logs, powers, ramps, edges, price, first, beyond):  # type: ignore[no-untyped-def]
    """values[i, j]: what items first + i … first + j − 1 are worth on one flow."""
    count = beyond - first
    values = np.full((count + 1, count + 1), -np.inf)
    own_start = np.zeros((2, 3), dtype=np.int64)
    own_edges = np.zeros((1, 3))
    scratch = np.empty((start[beyond, 2] - start[first, 2], 3))
    for i in range(count):
        begin = start[first + i]
        pays, sorted_ramps = 0.0, 0
        own_edges[0, 0] = 0.0
        for j in range(i + 1, count + 1):
            item = first + j - 1
            pays += price[item]
            own_edges[0, 0] += edges[item, 0]
            for row in range(start[item, 2], start[item + 1, 2]):
                place = sorted_ramps  # insert it where its end belongs
                while place > 0 and scratch[place - 1, 1] > ramps[row, 1]:
                    scratch[place, 0] = scratch[place - 1, 0]
                    scratch[place, 1] = scratch[place - 1, 1]
                    place -= 1
                scratch[place, 0], scratch[place, 1] = ramps[row, 0], ramps[row, 1]
                sorted_ramps += 1
            own_start[1, 0] = start[item + 1, 0] - begin[0]
            own_start[1, 1] = start[item + 1, 1] - begin[1]
            own_start[1, 2] = sorted_ramps
            own_logs = logs[begin[0] : start[item + 1, 0]]
            own_powers = powers[begin[1] : start[item + 1, 1]]
            own_ramps = scratch[:sorted_ramps]
            finish_pieces(own_start, own_logs, own_powers, own_ramps, own_edges)
            x = choose(own_start, own_logs, own_powers, own_ramps, own_edges, 0, pays, 0.0)[0]
            worth = worth_of_flow(own_start, own_logs, own_powers, own_ramps, own_edges, 0, x)
            values[i, j] = worth - pays * x if x > 0.0 else worth
    return values


@njit(cache=True, error_model="numpy")
def best_cuts(start, logs, powers, ramps, edges, price, bounds, most):  # type: ignore[no-untyped-def]
    """The part that each item goes to, list by list, and what all lists are worth so.

    List g is items bounds[g] … bounds[g + 1] − 1, to be cut into at most most[g] parts.
    """
    part = np.zeros(len(price), dtype=np.int64)
    total = 0.0
    for g in range(len(most)):
        first, beyond = bounds[g], bounds[g + 1]
        count = beyond - first
        if count == 0:
            continue
        values = segment_values(start, logs, powers, ramps, edges, price, first, beyond)
        parts = min(most[g], count)
        best, cut = _best_ends(values, parts)
        used = parts
        for p in range(parts, 0, -1):  # of equals the most flows: they can be told apart later
            if best[p, count] > best[used, count]:
                used = p
        total += best[used, count]
        j = count
        for p in range(used, 0, -1):
            for row in range(cut[p, j], j):
                part[first + row] = p - 1
            j = cut[p, j]
    return part, total


@njit(cache=True, error_model="numpy")
def _best_ends(values, parts):  # type: ignore[no-untyped-def]
    """best[p, j]: what the first j items are worth in p parts; cut[p, j]: where the last begins."""
    count = len(values) - 1
    best = np.full((parts + 1, count + 1), -np.inf)
    cut = np.zeros((parts + 1, count + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for p in range(1, parts + 1):
        for j in range(p, count + 1):
            for i in range(p - 1, j):
                value = best[p - 1, i] + values[i, j]
                if value > best[p, j]:
                    best[p, j], cut[p, j] = value, i
    return best, cut

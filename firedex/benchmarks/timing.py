"""Timing on one core, without the collector."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["best_seconds"]


@contextmanager
def _one_core() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of so many runs."""
    gc.collect()
    gc.freeze()  # the scenario's millions of values are not the work's garbage
    best = float("inf")
    with _one_core():
        for _ in range(repeats):
            start = perf_counter()
            work()
            best = min(best, perf_counter() - start)
    gc.unfreeze()
    return best

"""Timing on one core, without the collector."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["best_seconds", "seconds_by_round"]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """On one core; the scenario's millions of values are not the work's garbage."""
    allowed = os.sched_getaffinity(0)
    gc.collect()
    gc.freeze()
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        gc.unfreeze()


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of so many runs."""
    with _undisturbed():
        return min(_seconds(work) for _ in range(repeats))


def seconds_by_round(rounds: int, *works: Callable[[], object]) -> Iterator[tuple[float, ...]]:
    """How long each takes, in turns: what slows the machine for a while slows all of a round."""
    with _undisturbed():
        for _ in range(rounds):
            yield tuple(_seconds(work) for work in works)

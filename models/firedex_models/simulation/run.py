"""Replications: each from a generator of its own, side by side on several cores."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from firedex.wire import Assignment, Scenario
from firedex_models.demand import compile_demand
from firedex_models.errors import NotAssigned
from firedex_models.network_hops import uplinks
from firedex_models.simulation.batch import Batch
from firedex_models.simulation.replication import (
    Arrivals,
    Workload,
    replicate,
)
from firedex_models.simulation.summary import SimulationSummary
from firedex_models.simulation.tally import Tally
from firedex_models.site import Site, assigned

__all__ = ["Keep", "SimulationSettings", "simulate"]

Keep = Callable[[int, Workload], AbstractContextManager[Callable[[Batch], None]]]
"""Opens a place for a replication's notifications, which come as their fate becomes known.

Picklable, for several workers.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How much to simulate.

    ``arrivals``: whether packets of one publication reach a link together (the truth), or streams
    know nothing of each other. ``workers``: processes side by side.
    """

    replications: int = 5
    publications: int = 100_000
    arrivals: Arrivals = "fan-out"
    seed: int = 0
    workers: int = 1


def simulate(
    scenario: Scenario,
    settings: SimulationSettings | None = None,
    *,
    assignment: Sequence[Assignment] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    keep: Keep | None = None,
) -> SimulationSummary:
    """Simulate the scenario's assignment, or another; ``progress`` is told what is done."""
    settings = settings or SimulationSettings()
    chosen = scenario.assignment if assignment is None else assignment
    if chosen is None:
        raise NotAssigned(scenario.name)
    site = assigned(compile_demand(scenario), chosen)
    tallies: dict[int, Tally] = {}
    for number, tally in _replications(site, settings, keep):
        tallies[number] = tally
        progress(len(tallies), settings.replications)
    route, _ = uplinks(scenario)
    return SimulationSummary(
        site=site, uplinks=route.hops, tallies=[tallies[n] for n in sorted(tallies)]
    )


def _replications(
    site: Site, settings: SimulationSettings, keep: Keep | None
) -> Iterator[tuple[int, Tally]]:
    if settings.workers <= 1 or settings.replications <= 1:
        workload = Workload(site)
        for number in range(settings.replications):
            yield number, _one(workload, settings, number, keep)
        return
    with ProcessPoolExecutor(
        min(settings.workers, settings.replications),
        mp_context=get_context("spawn"),
        initializer=_prepare,
        initargs=(site, settings, keep),
    ) as pool:
        running = {pool.submit(_one_of_many, n): n for n in range(settings.replications)}
        for done in as_completed(running):
            yield running[done], done.result()


_job: tuple[Workload, SimulationSettings, Keep | None] | None = None
"""A worker's own: the site is sent to each once, and not with every replication."""


def _prepare(site: Site, settings: SimulationSettings, keep: Keep | None) -> None:
    global _job  # a worker process has nowhere else
    _job = (Workload(site), settings, keep)


def _one_of_many(number: int) -> Tally:
    if _job is None:
        raise RuntimeError("this worker was not prepared")
    workload, settings, keep = _job
    return _one(workload, settings, number, keep)


def _one(workload: Workload, settings: SimulationSettings, number: int, keep: Keep | None) -> Tally:
    seed = np.random.SeedSequence(entropy=settings.seed, spawn_key=(number,))
    with keep(number, workload) if keep else nullcontext() as write:
        return replicate(
            workload,
            publications=settings.publications,
            arrivals=settings.arrivals,
            generator=np.random.default_rng(seed),
            keep=write,
        )

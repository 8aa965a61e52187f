"""Runs replications of a simulation in parallel, each with its own random generator."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from firedex.wire import Assignment, Scenario
from firedex_models.errors import MissingAssignment
from firedex_models.routes import uplinks
from firedex_models.simulation.batch import Batch
from firedex_models.simulation.replication import (
    Arrivals,
    Workload,
    replicate,
)
from firedex_models.simulation.summary import SimulationSummary, Tally
from firedex_models.site import Site, compile_demand, site_from_assignment

__all__ = ["RecordWriter", "SimulationSettings", "simulate"]

RecordWriter = Callable[[int, Workload], AbstractContextManager[Callable[[Batch], None]]]
"""Opens a writer for the notifications of a replication. The writer is called with batches whose
outcome is known. It must be picklable if there are several workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """The settings of a simulation.

    ``publications``: per replication. ``arrivals``: packets of one publication reach a link
    together (``fan-out``, as in reality), or streams are independent. ``workers``: number of
    parallel processes.
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
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    record_writer: RecordWriter | None = None,
) -> SimulationSummary:
    """Simulate the scenario's assignment or the given one.

    ``progress`` is called with the number of finished replications and their total.
    """
    settings = settings or SimulationSettings()
    selected = scenario.assignment if assignment is None else assignment
    if selected is None:
        raise MissingAssignment(scenario.name)
    site = site_from_assignment(compile_demand(scenario), selected)
    tallies: dict[int, Tally] = {}
    for number, tally in _replications(site, settings, record_writer):
        tallies[number] = tally
        progress(len(tallies), settings.replications)
    route, _ = uplinks(scenario)
    return SimulationSummary(
        site=site, uplinks=route.hops, tallies=[tallies[n] for n in sorted(tallies)]
    )


def _replications(
    site: Site, settings: SimulationSettings, record_writer: RecordWriter | None
) -> Iterator[tuple[int, Tally]]:
    if settings.workers <= 1 or settings.replications <= 1:
        workload = Workload(site)
        for number in range(settings.replications):
            yield number, _run_replication(workload, settings, number, record_writer)
        return
    with ProcessPoolExecutor(
        min(settings.workers, settings.replications),
        mp_context=get_context("spawn"),
        initializer=_initialize_worker,
        initargs=(site, settings, record_writer),
    ) as pool:
        running = {pool.submit(_run_in_worker, n): n for n in range(settings.replications)}
        for future in as_completed(running):
            yield running[future], future.result()


_job: tuple[Workload, SimulationSettings, RecordWriter | None] | None = None
"""The job of a worker process: the site is sent once per worker, not per replication."""


def _initialize_worker(
    site: Site, settings: SimulationSettings, record_writer: RecordWriter | None
) -> None:
    global _job  # the pool's initializer can pass state to jobs only through a global
    _job = (Workload(site), settings, record_writer)


def _run_in_worker(number: int) -> Tally:
    if _job is None:
        raise RuntimeError("the initializer of this worker process did not run")
    workload, settings, record_writer = _job
    return _run_replication(workload, settings, number, record_writer)


def _run_replication(
    workload: Workload,
    settings: SimulationSettings,
    number: int,
    record_writer: RecordWriter | None,
) -> Tally:
    seed = np.random.SeedSequence(entropy=settings.seed, spawn_key=(number,))
    with record_writer(number, workload) if record_writer else nullcontext() as write:
        return replicate(
            workload,
            publications=settings.publications,
            arrivals=settings.arrivals,
            generator=np.random.default_rng(seed),
            on_decided=write,
        )

"""``simulate-sweep``: replications of the simulator over a grid of parameters, side by side.

Every replication is a task. One of the same number and seed is the same run as in ``firedex
simulate``, so that a point of the grid is what that command says of it.
"""

import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firedex.planning import PlanningError, plan_scenario
from firedex.wire import Scenario, SimulationReport
from firedex_models.demand import compile_demand
from firedex_models.network_hops import uplinks
from firedex_models.simulation import SimulationSummary, Workload, report_of
from firedex_models.simulation.replication import replicate
from firedex_models.simulation.tally import Tally
from firedex_models.site import Site, assigned
from firedex_spark.errors import BadGrid
from firedex_spark.scenario_paths import changed
from firedex_spark.session import SparkSession

__all__ = ["SweepPoint", "grid_points", "simulate_sweep"]

Say = Callable[[str], None]
MOST_POINTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A point of the grid, and what was simulated there."""

    values: Mapping[str, Any]
    report: SimulationReport


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    for path, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise BadGrid(f"{path}: a list of values is wanted, not {values!r}")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if len(points) > MOST_POINTS:
        raise BadGrid(f"{len(points)} points are more than {MOST_POINTS}")
    return points


def simulate_sweep(
    spark: SparkSession,
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]],
    *,
    replications: int = 5,
    publications: int = 100_000,
    seed: int = 0,
    say: Say = lambda _text: None,
) -> list[SweepPoint]:
    """Simulate every point; each is planned first if the scenario has no assignment."""
    points = grid_points(grid)
    scenarios = [_assigned(changed(scenario, values)) for values in points]
    say(f"{len(points)} points, {replications} replications each")
    shared = spark.sparkContext.broadcast([pickle.dumps(one) for one in scenarios])
    tasks = [(point, number) for point in range(len(points)) for number in range(replications)]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                one = pickle.loads(shared.value[row["point"]])  # noqa: S301  # our own
                tally = _replication(one, row["number"], publications, seed)
                row["tally"] = pickle.dumps(tally)
                yield pa.RecordBatch.from_pylist([row])

    frame = spark.createDataFrame(tasks, "point long, number long").repartition(len(tasks))
    done = frame.mapInArrow(work, "point long, number long, tally binary").collect()
    tallies: dict[tuple[int, int], Tally] = {
        (row["point"], row["number"]): pickle.loads(row["tally"])  # noqa: S301  # our own
        for row in done
    }
    return [
        SweepPoint(
            values=values,
            report=_report(scenarios[point], [tallies[point, n] for n in range(replications)]),
        )
        for point, values in enumerate(points)
    ]


def _assigned(scenario: Scenario) -> Scenario:
    if scenario.assignment is not None:
        return scenario
    try:
        return plan_scenario(scenario).planned
    except PlanningError as error:
        raise BadGrid(str(error)) from error


def _site(scenario: Scenario) -> Site:
    return assigned(compile_demand(scenario), scenario.assignment or ())


def _replication(scenario: Scenario, number: int, publications: int, seed: int) -> Tally:
    return replicate(
        Workload(_site(scenario)),
        publications=publications,
        arrivals="fan-out",
        generator=np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(number,))),
    )


def _report(scenario: Scenario, tallies: list[Tally]) -> SimulationReport:
    route, _ = uplinks(scenario)
    return report_of(SimulationSummary(site=_site(scenario), uplinks=route.hops, tallies=tallies))

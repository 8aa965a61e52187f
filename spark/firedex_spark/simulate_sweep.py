"""``simulate-sweep``: replications of the simulator over a grid of parameters, side by side.

Every replication is a task. One of the same number and seed is the same run as in ``firedex
simulate``, so that a point of the grid is what that command says of it.
"""

import itertools
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.planning import PlanningError, plan_scenario
from firedex.wire import Scenario, SimulationReport
from firedex.yaml_file import InvalidFile, UnreadableFile, parse_yaml, read_text
from firedex_models import ModelError
from firedex_models.demand import compile_demand
from firedex_models.network_hops import uplinks
from firedex_models.simulation import SimulationSummary, Workload, report_of
from firedex_models.simulation.replication import replicate
from firedex_models.simulation.tally import Tally
from firedex_models.site import Site, assigned
from firedex_spark.errors import BadGrid
from firedex_spark.scenario_paths import changed
from firedex_spark.session import SparkSession

__all__ = ["SweepPoint", "grid_points", "read_grid", "simulate_sweep"]

Say = Callable[[str], None]
Grid = Mapping[str, Sequence[Any]]
MOST_POINTS = 10_000
MOST_RUNS = 200_000
MOST_TASKS = 2_000
WANTED = (
    "a mapping of paths to lists of values is wanted, such as "
    "network.switches.core.error_rate: [0.0, 0.1]"
)
DONE = pa.schema(
    [
        ("point", pa.int64()),
        ("number", pa.int64()),
        ("tally", pa.binary()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A point of the grid, and what was simulated there; or why it was not (``error``)."""

    values: Mapping[str, Any]
    report: SimulationReport | None
    error: str | None = None


def read_grid(file: Path) -> Grid:
    """A grid as YAML; ``4e6`` is a number."""
    values = Annotated[list[Any], Field(min_length=1)]
    try:
        grid: Grid = parse_yaml(
            dict[str, values],
            str(file),
            read_text(str(file)),
            expected=WANTED,
        )
    except (InvalidFile, UnreadableFile) as error:
        raise BadGrid(f"{error}\n{WANTED}") from error
    if not grid:
        raise BadGrid(f"{file}: is empty; {WANTED}")
    return grid


def grid_points(grid: Grid) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    if not grid:
        raise BadGrid(f"the grid is empty; {WANTED}")
    for path, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise BadGrid(f"{path}: a list of values is wanted, not {values!r}")
    number = math.prod(len(values) for values in grid.values())
    if number > MOST_POINTS:
        raise BadGrid(f"{number} points are more than {MOST_POINTS}")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def simulate_sweep(
    spark: SparkSession,
    scenario: Scenario,
    grid: Grid,
    *,
    replications: int = 5,
    publications: int = 100_000,
    seed: int = 0,
    say: Say = lambda _text: None,
) -> list[SweepPoint]:
    """Simulate every point; each is planned first if the scenario has no assignment.

    A point that cannot be simulated is told, and the others go on.
    """
    points = grid_points(grid)
    if len(points) * replications > MOST_RUNS:
        raise BadGrid(f"{len(points)} points {replications} times are more than {MOST_RUNS} runs")
    scenarios, errors = _scenarios(scenario, points)
    say(f"{len(scenarios)} of {len(points)} points, {replications} replications each")
    runs = [(point, number) for point in scenarios for number in range(replications)]
    shared = spark.sparkContext.broadcast({k: pickle.dumps(one) for k, one in scenarios.items()})

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                one = pickle.loads(shared.value[row["point"]])  # noqa: S301  # our own
                yield pa.RecordBatch.from_pylist(
                    [_simulated(one, **row, publications=publications, seed=seed)],
                    DONE,
                )

    frame = spark.createDataFrame(runs, "point long, number long")
    tasks = frame.repartition(min(len(runs), MOST_TASKS))
    done = tasks.mapInArrow(work, from_arrow_schema(DONE)).collect()
    tallies: dict[tuple[int, int], Tally] = {}
    for row in sorted(done, key=lambda row: (row["point"], row["number"])):
        if row["error"] is not None:
            errors.setdefault(row["point"], row["error"])
        else:
            tally = pickle.loads(row["tally"])  # noqa: S301  # our own
            tallies[row["point"], row["number"]] = tally
    return [
        SweepPoint(
            values=values,
            report=None
            if point in errors
            else _report(scenarios[point], [tallies[point, n] for n in range(replications)]),
            error=errors.get(point),
        )
        for point, values in enumerate(points)
    ]


def _scenarios(
    base: Scenario, points: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, Scenario], dict[int, str]]:
    """The scenario of each point, or what is wrong with it; BadGrid if nothing is right."""
    scenarios: dict[int, Scenario] = {}
    errors: dict[int, str] = {}
    for number, values in enumerate(points):
        try:
            scenarios[number] = _assigned(changed(base, values))
        except (BadGrid, PlanningError, ModelError) as error:
            errors[number] = str(error)
    if not scenarios:
        first = errors[0]
        raise BadGrid(f"no point can be simulated; the first: {first}")
    return scenarios, errors


def _assigned(scenario: Scenario) -> Scenario:
    return scenario if scenario.assignment is not None else plan_scenario(scenario).planned


def _simulated(
    scenario: Scenario, point: int, number: int, publications: int, seed: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"point": point, "number": number, "tally": None, "error": None}
    try:
        row["tally"] = pickle.dumps(_replication(scenario, number, publications, seed))
    except Exception as error:  # whatever it is, the other points go on
        row["error"] = f"{type(error).__name__}: {error}"
    return row


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

"""``simulate-sweep``: replications of the simulator over a grid of parameters, side by side.

Every replication is a task. One of the same number and seed is the same run as in ``firedex
simulate``, so that a point of the grid is what that command says of it. What the replications of a
point came to (megabytes each) is brought together in a worker; reports alone come back.
"""

import itertools
import math
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, overload

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
RUN_SCHEMA = pa.schema(
    [
        ("point", pa.int64()),
        ("number", pa.int64()),
        ("tally", pa.binary()),
        ("error", pa.string()),
    ]
)
"""A replication: its tally, packed; or what went wrong."""
POINT_SCHEMA = pa.schema(
    [("point", pa.int64()), ("report", pa.binary()), ("error", pa.string())],
)
"""A point: its report, packed; or what went wrong."""


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
                    RUN_SCHEMA,
                )

    def together(done: pa.Table) -> pa.Table:
        one = pickle.loads(shared.value[done["point"][0].as_py()])  # noqa: S301  # our own
        return pa.Table.from_pylist([_reported(one, done.to_pylist())], POINT_SCHEMA)

    frame = spark.createDataFrame(runs, "point long, number long")
    tasks = frame.repartition(min(len(runs), MOST_TASKS))
    done = tasks.mapInArrow(work, from_arrow_schema(RUN_SCHEMA))
    by_point = done.repartition(min(len(scenarios), MOST_TASKS), "point").groupBy("point")
    found = by_point.applyInArrow(together, from_arrow_schema(POINT_SCHEMA)).collect()
    reports: dict[int, SimulationReport] = {}
    for row in found:
        if row["error"] is not None:
            errors[row["point"]] = row["error"]
        else:
            reports[row["point"]] = _unpacked(row["report"])
    return [
        SweepPoint(values=values, report=reports.get(point), error=errors.get(point))
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
        row["tally"] = _packed(_replication(scenario, number, publications, seed))
    except Exception as error:  # whatever it is, the other points go on
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _reported(scenario: Scenario, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report of a point from all its replications, in whatever order they come."""
    ordered = sorted(runs, key=lambda run: run["number"])
    wrong = [run["error"] for run in ordered if run["error"] is not None]
    row: dict[str, Any] = {"point": ordered[0]["point"], "report": None, "error": None}
    if wrong:
        return row | {"error": wrong[0]}
    try:
        row["report"] = _packed(_report(scenario, _Tallies([run["tally"] for run in ordered])))
    except Exception as error:  # whatever it is, the other points go on
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _packed(value: Tally | SimulationReport) -> bytes:
    """Histograms are nearly all zeros."""
    return zlib.compress(pickle.dumps(value), level=1)


def _unpacked(packed: bytes) -> Any:
    return pickle.loads(zlib.decompress(packed))  # noqa: S301  # our own


class _Tallies(Sequence[Tally]):
    """Tallies that are unpacked when they are looked at: there may be thousands, of megabytes."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, at: int) -> Tally: ...

    @overload
    def __getitem__(self, at: slice) -> "_Tallies": ...

    def __getitem__(self, at: int | slice) -> "Tally | _Tallies":
        if isinstance(at, slice):
            return _Tallies(self._packed[at])
        tally: Tally = _unpacked(self._packed[at])
        return tally


def _site(scenario: Scenario) -> Site:
    return assigned(compile_demand(scenario), scenario.assignment or ())


def _replication(scenario: Scenario, number: int, publications: int, seed: int) -> Tally:
    return replicate(
        Workload(_site(scenario)),
        publications=publications,
        arrivals="fan-out",
        generator=np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(number,))),
    )


def _report(scenario: Scenario, tallies: Sequence[Tally]) -> SimulationReport:
    route, _ = uplinks(scenario)
    return report_of(SimulationSummary(site=_site(scenario), uplinks=route.hops, tallies=tallies))

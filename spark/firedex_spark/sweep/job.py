"""``simulate-sweep``: run the simulator for every point of a grid of parameters.

Every replication is a task. A replication with the same number and seed equals that of ``firedex
simulate``, so a point has the same result. The replications of a point (megabytes each) are
combined on a worker; only reports are returned to the driver.
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
from firedex.scenario import InvalidFile, UnreadableFile, parse_yaml, read_text
from firedex.wire import Scenario, SimulationReport
from firedex_models import ModelError
from firedex_models.routes import uplinks
from firedex_models.simulation import SimulationSummary, Workload, simulation_report
from firedex_models.simulation.replication import replicate
from firedex_models.simulation.summary import Tally
from firedex_models.site import Site, compile_demand, site_from_assignment
from firedex_spark.errors import InvalidGrid
from firedex_spark.session import SparkSession
from firedex_spark.sweep.scenario_paths import with_values

__all__ = ["SweepPoint", "grid_points", "read_grid", "simulate_sweep"]

ReportProgress = Callable[[str], None]
Grid = Mapping[str, Sequence[Any]]
MAX_POINTS = 10_000
MAX_RUNS = 200_000
MAX_TASKS = 2_000
EXPECTED_FORMAT = (
    "expected a mapping of paths to lists of values, such as "
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
"""A replication: its packed tally, or the error."""
POINT_SCHEMA = pa.schema(
    [("point", pa.int64()), ("report", pa.binary()), ("error", pa.string())],
)
"""A point: its packed report, or the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A point of the grid with its report, or the ``error``."""

    values: Mapping[str, Any]
    report: SimulationReport | None
    error: str | None = None


def read_grid(file: Path) -> Grid:
    """Read a grid from YAML; ``4e6`` is a number."""
    values = Annotated[list[Any], Field(min_length=1)]
    try:
        grid: Grid = parse_yaml(
            dict[str, values],
            str(file),
            read_text(str(file)),
            expected=EXPECTED_FORMAT,
        )
    except (InvalidFile, UnreadableFile) as error:
        raise InvalidGrid(f"{error}\n{EXPECTED_FORMAT}") from error
    if not grid:
        raise InvalidGrid(f"{file}: is empty; {EXPECTED_FORMAT}")
    return grid


def grid_points(grid: Grid) -> list[dict[str, Any]]:
    """Return every combination of the values of the grid."""
    if not grid:
        raise InvalidGrid(f"the grid is empty; {EXPECTED_FORMAT}")
    for path, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise InvalidGrid(f"{path}: expected a list of values, not {values!r}")
    number = math.prod(len(values) for values in grid.values())
    if number > MAX_POINTS:
        raise InvalidGrid(f"{number} points exceed the limit of {MAX_POINTS}")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def simulate_sweep(
    spark: SparkSession,
    scenario: Scenario,
    grid: Grid,
    *,
    replications: int = 5,
    publications: int = 100_000,
    seed: int = 0,
    report_progress: ReportProgress = lambda _text: None,
) -> list[SweepPoint]:
    """Simulate every point; each is planned first if the scenario has no assignment.

    A point that cannot be simulated has an error, and the others are simulated.
    """
    points = grid_points(grid)
    if len(points) * replications > MAX_RUNS:
        raise InvalidGrid(
            f"{len(points)} points x {replications} replications exceed {MAX_RUNS} runs"
        )
    scenarios, errors = _scenarios(scenario, points)
    report_progress(f"{len(scenarios)} of {len(points)} points, {replications} replications each")
    runs = [(point, number) for point in scenarios for number in range(replications)]
    shared = spark.sparkContext.broadcast({k: pickle.dumps(one) for k, one in scenarios.items()})

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                one = pickle.loads(shared.value[row["point"]])  # noqa: S301  # our own
                yield pa.RecordBatch.from_pylist(
                    [_run_replication(one, **row, publications=publications, seed=seed)],
                    RUN_SCHEMA,
                )

    def combine_replications(done: pa.Table) -> pa.Table:
        one = pickle.loads(shared.value[done["point"][0].as_py()])  # noqa: S301  # our own
        return pa.Table.from_pylist([_report_point(one, done.to_pylist())], POINT_SCHEMA)

    frame = spark.createDataFrame(runs, "point long, number long")
    tasks = frame.repartition(min(len(runs), MAX_TASKS))
    done = tasks.mapInArrow(work, from_arrow_schema(RUN_SCHEMA))
    by_point = done.repartition(min(len(scenarios), MAX_TASKS), "point").groupBy("point")
    found = by_point.applyInArrow(combine_replications, from_arrow_schema(POINT_SCHEMA)).collect()
    reports: dict[int, SimulationReport] = {}
    for row in found:
        if row["error"] is not None:
            errors[row["point"]] = row["error"]
        else:
            reports[row["point"]] = _unpack(row["report"])
    return [
        SweepPoint(values=values, report=reports.get(point), error=errors.get(point))
        for point, values in enumerate(points)
    ]


def _scenarios(
    base: Scenario, points: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, Scenario], dict[int, str]]:
    """Return the scenario or the error of each point; raise InvalidGrid if all fail."""
    scenarios: dict[int, Scenario] = {}
    errors: dict[int, str] = {}
    for number, values in enumerate(points):
        try:
            scenarios[number] = _with_assignment(with_values(base, values))
        except (InvalidGrid, PlanningError, ModelError) as error:
            errors[number] = str(error)
    if not scenarios:
        first = errors[0]
        raise InvalidGrid(f"no point can be simulated; error of the first point: {first}")
    return scenarios, errors


def _with_assignment(scenario: Scenario) -> Scenario:
    return scenario if scenario.assignment is not None else plan_scenario(scenario).planned_scenario


def _run_replication(
    scenario: Scenario, point: int, number: int, publications: int, seed: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"point": point, "number": number, "tally": None, "error": None}
    try:
        row["tally"] = _pack(_replication(scenario, number, publications, seed))
    except Exception as error:  # an error of one point must not stop the others
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _report_point(scenario: Scenario, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report of a point from its replications, in any order."""
    ordered = sorted(runs, key=lambda run: run["number"])
    wrong = [run["error"] for run in ordered if run["error"] is not None]
    row: dict[str, Any] = {"point": ordered[0]["point"], "report": None, "error": None}
    if wrong:
        return row | {"error": wrong[0]}
    try:
        row["report"] = _pack(_report(scenario, _Tallies([run["tally"] for run in ordered])))
    except Exception as error:  # an error of one point must not stop the others
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _pack(value: Tally | SimulationReport) -> bytes:
    """Compress a value; histograms are mostly zeros."""
    return zlib.compress(pickle.dumps(value), level=1)


def _unpack(packed: bytes) -> Any:
    return pickle.loads(zlib.decompress(packed))  # noqa: S301  # our own


class _Tallies(Sequence[Tally]):
    """Tallies that are unpacked on access: there may be thousands of megabytes."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        self._pack = packed

    def __len__(self) -> int:
        return len(self._pack)

    @overload
    def __getitem__(self, at: int) -> Tally: ...

    @overload
    def __getitem__(self, at: slice) -> "_Tallies": ...

    def __getitem__(self, at: int | slice) -> "Tally | _Tallies":
        if isinstance(at, slice):
            return _Tallies(self._pack[at])
        tally: Tally = _unpack(self._pack[at])
        return tally


def _site(scenario: Scenario) -> Site:
    return site_from_assignment(compile_demand(scenario), scenario.assignment or ())


def _replication(scenario: Scenario, number: int, publications: int, seed: int) -> Tally:
    return replicate(
        Workload(_site(scenario)),
        publications=publications,
        arrivals="fan-out",
        generator=np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(number,))),
    )


def _report(scenario: Scenario, tallies: Sequence[Tally]) -> SimulationReport:
    route, _ = uplinks(scenario)
    return simulation_report(
        SimulationSummary(site=_site(scenario), uplinks=route.hops, tallies=tallies)
    )

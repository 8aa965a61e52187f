"""``plan-sites``: a fleet of sites, each planned as it would be alone.

A fleet is a table: a site and its scenario as JSON in each row. What shares nothing is planned
apart: a site is a group, since its switches share its broker and its subscribers' rankings. A site
that cannot be planned, whatever its row holds, has one row that says why; the others go on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.planning import PlanningError, plan_scenario
from firedex.wire import Scenario, WireError, from_json, from_plain, to_json
from firedex.wire.values import Identifier
from firedex_models import ModelError
from firedex_spark.errors import BadFile, UnreadableFile
from firedex_spark.files_left_out import without
from firedex_spark.raw_texts import raw_texts
from firedex_spark.record_files import RecordFile, check_files, files_under
from firedex_spark.session import SparkSession

__all__ = [
    "FLEET_SCHEMA",
    "PLANNED_SCHEMA",
    "FleetOutcome",
    "plan_fleet",
    "plan_sites",
    "planned_rows",
    "write_fleet",
]

Say = Callable[[str], None]
FLEET_SCHEMA = pa.schema([("site", pa.string()), ("scenario", pa.string())])
PLANNED_SCHEMA = pa.schema(
    [
        ("site", pa.string()),
        ("switch", pa.string()),
        ("subscriber", pa.string()),
        ("filter", pa.string()),
        ("flow", pa.int64()),
        ("priority", pa.int64()),
        ("drop_rate", pa.float64()),
        ("success_rate", pa.float64()),
        ("delay_mean_seconds", pa.float64()),
        ("delay_p95_seconds", pa.float64()),
        ("utility", pa.float64()),
        ("error", pa.string()),
    ]
)
"""One row for each subscription; a site without any has one row without a subscriber, a site that
cannot be planned one row with the ``error``."""
READ_SCHEMA = pa.schema([*FLEET_SCHEMA, ("broken", pa.string())])
"""Rows as they are read; and a row for a file that cannot be: its path as ``site``, and why."""
SITES_OF_A_TASK = 16
NO_NAME = "(no site)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOutcome:
    """How a fleet fared; ``failed``: what is wrong with which site."""

    sites: int
    subscriptions: int
    utility: float
    failed: dict[str, str]
    left_out: tuple[BadFile, ...]


def write_fleet(path: Path, sites: Iterable[tuple[str, Scenario]]) -> None:
    """Write a fleet's table."""
    rows = [{"site": name, "scenario": to_json(scenario)} for name, scenario in sites]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=FLEET_SCHEMA), path)


def plan_sites(
    spark: SparkSession, fleet: Path, out: Path, say: Say = lambda _text: None
) -> FleetOutcome:
    """Plan every site of the fleet's table; plans go to ``out/plans``, as Parquet."""
    checked = check_files(fleet, files_under(fleet, "fleet"), FLEET_SCHEMA)
    while True:
        rows = _rows_of(spark, checked.good)
        broken = rows.where(f.col("broken").isNotNull()).collect()
        if not broken:
            break
        why = {row["site"]: row["broken"] for row in broken}
        checked = without(fleet, checked, [UnreadableFile(Path(p), why[p]) for p in sorted(why)])
    for bad in checked.left_out:
        say(f"left out: {bad}")
    tasks = max(checked.rows // SITES_OF_A_TASK, 1)
    say(f"planning {checked.rows} sites")
    folder = str(out.absolute() / "plans")
    plan_fleet(rows, tasks).write.mode("overwrite").parquet(folder)
    plans = spark.read.parquet(folder)
    wrong = plans.where(f.col("error").isNotNull()).select("site", "error").collect()
    total = plans.where(f.col("error").isNull()).agg(
        f.count_distinct("site").alias("sites"),
        f.count("subscriber").alias("subscriptions"),
        f.sum("utility").alias("utility"),
    )
    found = total.collect()[0]
    return FleetOutcome(
        sites=int(found["sites"]),
        subscriptions=int(found["subscriptions"]),
        utility=float(found["utility"] or 0.0),
        failed=dict(sorted((row["site"] or NO_NAME, row["error"]) for row in wrong)),
        left_out=checked.left_out,
    )


def _rows_of(spark: SparkSession, files: Sequence[RecordFile]) -> DataFrame:
    pieces = [(str(file.path), group.number) for file in files for group in file.groups]
    tasks = spark.createDataFrame(pieces, "path string, group long")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                yield from fleet_rows(**piece).to_batches()

    return tasks.repartition(max(len(pieces), 1)).mapInArrow(work, from_arrow_schema(READ_SCHEMA))


def fleet_rows(path: str, group: int) -> pa.Table:
    """The rows of a file's row group, as ``READ_SCHEMA``; bytes that are no text show as such."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, FLEET_SCHEMA.names, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        broken = [{"site": path, "broken": str(error).splitlines()[0]}]
        return pa.Table.from_pylist(broken, schema=READ_SCHEMA)
    texts = {
        name: [
            None if raw is None else raw.decode(errors="replace")
            for raw in raw_texts(table.column(name)).to_pylist()
        ]
        for name in FLEET_SCHEMA.names
    }
    return pa.table({**texts, "broken": [None] * table.num_rows}, schema=READ_SCHEMA)


def plan_fleet(fleet: DataFrame, tasks: int) -> DataFrame:
    """A row for each subscription of every site."""
    placed = fleet.select(*FLEET_SCHEMA.names).repartition(tasks, "site")
    return placed.groupBy("site").applyInArrow(_planned, from_arrow_schema(PLANNED_SCHEMA))


def _planned(rows: pa.Table) -> pa.Table:
    return planned_group(rows["site"][0].as_py(), rows["scenario"].to_pylist())


def planned_group(site: str | None, scenarios: Sequence[str | None]) -> pa.Table:
    """The plan of a site of which there are these rows; the same scenario twice is one."""
    if site is None:
        return _failed(site, f"site is missing, in {len(scenarios)} rows")
    different = {*scenarios}
    if len(different) > 1:  # perhaps in the way it is written alone
        different = {_as_we_write(scenario) for scenario in different}
    if len(different) > 1:
        return _failed(site, f"{len(different)} different scenarios for one site")
    return planned_rows(site, different.pop())


def _as_we_write(scenario: str | None) -> str | None:
    """The same text for the same scenario; what is none is left as it is."""
    if scenario is None:
        return None
    try:
        return to_json(from_json(Scenario, scenario))
    except Exception:  # it is told when it is planned
        return scenario


def planned_rows(site: str, scenario: str | None) -> pa.Table:
    """The plan of one site as rows of ``PLANNED_SCHEMA``."""
    if scenario is None:
        return _failed(site, "scenario is missing")
    try:
        from_plain(Identifier, site)
    except WireError:
        return _failed(site, "site is no identifier: letters, digits and _.:@- are")
    try:
        rows = list(_rows(site, from_json(Scenario, scenario)))
    except (WireError, PlanningError, ModelError) as error:
        return _failed(site, str(error))
    except Exception as error:  # whatever it is, the other sites are planned
        return _failed(site, f"{type(error).__name__}: {error}")
    return pa.Table.from_pylist(rows or [{"site": site}], schema=PLANNED_SCHEMA)


def _failed(site: str | None, error: str) -> pa.Table:
    return pa.Table.from_pylist([{"site": site, "error": error}], schema=PLANNED_SCHEMA)


def _rows(site: str, scenario: Scenario) -> Iterator[dict[str, Any]]:
    plan = plan_scenario(scenario)
    behind = {subscriber.id: subscriber.switch for subscriber in scenario.subscribers}
    for row in plan.table.to_prediction().subscriptions:
        yield {
            "site": site,
            "switch": behind[row.subscriber],
            "subscriber": row.subscriber,
            "filter": row.filter,
            "flow": row.flow,
            "priority": row.priority,
            "drop_rate": row.drop_rate,
            "success_rate": row.success_rate,
            "delay_mean_seconds": row.delay_mean_seconds,
            "delay_p95_seconds": row.delay_p95_seconds,
            "utility": row.utility,
        }

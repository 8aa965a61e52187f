"""``plan-sites``: plan each site of a table as it would be planned alone.

The table has a site and its scenario as JSON in each row. Sites are planned independently; switches
of a site are not, since they share its broker and its subscribers' rankings. A site that cannot be
planned has one row with the error, and the others are planned.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
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
from firedex_spark.records.columns import text_bytes
from firedex_spark.records.files import RecordFile, check_files, find_files, without_files
from firedex_spark.report import write_json, write_quarantine
from firedex_spark.session import SparkSession, run_tasks

__all__ = [
    "FLEET_RESULTS",
    "FLEET_SCHEMA",
    "PLANNED_SCHEMA",
    "FleetOutcome",
    "plan_fleet",
    "plan_site",
    "plan_sites",
    "write_fleet",
    "write_outcome",
]

ReportProgress = Callable[[str], None]
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
"""One row for each subscription. A site without subscriptions has one row without a subscriber; a
site that cannot be planned has one row with the ``error``."""
READ_SCHEMA = pa.schema([*FLEET_SCHEMA, ("broken", pa.string())])
"""Rows as read. An unreadable file has one row: its path as ``site``, the reason as ``broken``."""
SITES_PER_TASK = 16
NO_NAME = "(no site)"
FLEET_RESULTS = ("plans", "quarantine.json", "summary.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOutcome:
    """The result for all sites; ``failed``: the error of each site that was not planned."""

    sites: int
    subscriptions: int
    utility: float
    failed: dict[str, str]
    skipped: tuple[BadFile, ...]


def write_fleet(path: Path, sites: Iterable[tuple[str, Scenario]]) -> None:
    """Write a table of sites."""
    rows = [{"site": name, "scenario": to_json(scenario)} for name, scenario in sites]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=FLEET_SCHEMA), path)


def plan_sites(
    spark: SparkSession,
    fleet: Path,
    out: Path,
    report_progress: ReportProgress = lambda _text: None,
) -> FleetOutcome:
    """Plan every site of the table; plans are written to ``out/plans`` as Parquet."""
    checked = check_files(fleet, find_files(fleet, "fleet"), FLEET_SCHEMA)
    while True:
        rows = _read_rows(spark, checked.good)
        broken = rows.where(f.col("broken").isNotNull()).collect()
        if not broken:
            break
        reasons = {row["site"]: row["broken"] for row in broken}
        checked = without_files(
            fleet, checked, [UnreadableFile(Path(p), reasons[p]) for p in sorted(reasons)]
        )
    for bad in checked.skipped:
        report_progress(f"skipped: {bad}")
    tasks = max(checked.rows // SITES_PER_TASK, 1)
    report_progress(f"planning {checked.rows} sites")
    folder = str(out.absolute() / "plans")
    plan_fleet(rows, tasks).write.mode("overwrite").parquet(folder)
    plans = spark.read.parquet(folder)
    failed = plans.where(f.col("error").isNotNull()).select("site", "error").collect()
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
        failed=dict(sorted((row["site"] or NO_NAME, row["error"]) for row in failed)),
        skipped=checked.skipped,
    )


def _read_rows(spark: SparkSession, files: Sequence[RecordFile]) -> DataFrame:
    groups = [(str(file.path), group.number) for file in files for group in file.groups]
    return run_tasks(spark, groups, read_fleet_group, READ_SCHEMA)


def read_fleet_group(piece: tuple[str, int]) -> pa.Table:
    """Return the rows of a row group; bytes that are not UTF-8 are replaced."""
    path, group = piece
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, FLEET_SCHEMA.names, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        broken = [{"site": path, "broken": str(error).splitlines()[0]}]
        return pa.Table.from_pylist(broken, schema=READ_SCHEMA)
    texts = {
        name: [
            None if raw is None else raw.decode(errors="replace")
            for raw in text_bytes(table.column(name)).to_pylist()
        ]
        for name in FLEET_SCHEMA.names
    }
    return pa.table({**texts, "broken": [None] * table.num_rows}, schema=READ_SCHEMA)


def plan_fleet(fleet: DataFrame, tasks: int) -> DataFrame:
    """Return a row for each subscription of every site."""
    partitioned = fleet.select(*FLEET_SCHEMA.names).repartition(tasks, "site")
    return partitioned.groupBy("site").applyInArrow(_plan_rows, from_arrow_schema(PLANNED_SCHEMA))


def _plan_rows(rows: pa.Table) -> pa.Table:
    return plan_site_rows(rows["site"][0].as_py(), rows["scenario"].to_pylist())


def plan_site_rows(site: str | None, scenarios: Sequence[str | None]) -> pa.Table:
    """Return the plan of a site from all its rows; equal scenarios are one."""
    if site is None:
        return _error_row(site, f"site is missing, in {len(scenarios)} rows")
    different = {*scenarios}
    if len(different) > 1:  # perhaps they differ in notation only
        different = {_canonical_json(scenario) for scenario in different}
    if len(different) > 1:
        return _error_row(site, f"{len(different)} different scenarios for one site")
    return plan_site(site, different.pop())


def _canonical_json(scenario: str | None) -> str | None:
    """Return equal text for equal scenarios; an invalid one is returned unchanged."""
    if scenario is None:
        return None
    try:
        return to_json(from_json(Scenario, scenario))
    except Exception:  # planning reports the error
        return scenario


def plan_site(site: str, scenario: str | None) -> pa.Table:
    """Return the plan of one site as rows of ``PLANNED_SCHEMA``."""
    if scenario is None:
        return _error_row(site, "scenario is missing")
    try:
        from_plain(Identifier, site)
    except WireError:
        return _error_row(site, "site is not a valid identifier; use letters, digits and _.:@-")
    try:
        rows = list(_plan_to_rows(site, from_json(Scenario, scenario)))
    except (WireError, PlanningError, ModelError) as error:
        return _error_row(site, str(error))
    except Exception as error:  # an error of one site must not stop the others
        return _error_row(site, f"{type(error).__name__}: {error}")
    return pa.Table.from_pylist(rows or [{"site": site}], schema=PLANNED_SCHEMA)


def _error_row(site: str | None, error: str) -> pa.Table:
    return pa.Table.from_pylist([{"site": site, "error": error}], schema=PLANNED_SCHEMA)


def _plan_to_rows(site: str, scenario: Scenario) -> Iterator[dict[str, Any]]:
    plan = plan_scenario(scenario)
    switch_of = {subscriber.id: subscriber.switch for subscriber in scenario.subscribers}
    for row in plan.table.to_prediction().subscriptions:
        yield {
            "site": site,
            "switch": switch_of[row.subscriber],
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


def write_outcome(outcome: FleetOutcome, folder: Path) -> None:
    """Write ``quarantine.json`` and ``summary.json`` beside the plans."""
    write_quarantine(folder, outcome.skipped)
    summary = {key: value for key, value in asdict(outcome).items() if key != "skipped"}
    write_json(folder / "summary.json", summary)

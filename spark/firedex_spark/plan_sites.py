"""``plan-sites``: a fleet of sites, each planned as it would be alone.

A fleet is a table: a site and its scenario as JSON in each row. What shares nothing is planned
apart: a site is a group, since its switches share its broker and its subscribers' rankings. A site
that cannot be planned is named, and does not stop the others.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.planning import PlanningError, plan_scenario
from firedex.wire import Scenario, WireError, from_json, to_json
from firedex_models import ModelError
from firedex_spark.errors import BadFile, BadFleet
from firedex_spark.record_files import check_files, files_under
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
"""One row for each subscription; a site that cannot be planned has one row, with the ``error``."""
SITES_OF_A_TASK = 16


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
    for bad in checked.left_out:
        say(f"left out: {bad}")
    rows = spark.read.parquet(*[str(file.path) for file in checked.good])
    doubled = rows.groupBy("site").count().where("count > 1").limit(3).collect()
    if doubled:
        names = ", ".join(str(row["site"]) for row in doubled)
        raise BadFleet(f"{fleet}: more than one scenario for {names}")
    tasks = max(checked.rows // SITES_OF_A_TASK, 1)
    say(f"planning {checked.rows} sites")
    folder = str(out / "plans")
    plan_fleet(rows, tasks).write.mode("overwrite").parquet(folder)
    plans = spark.read.parquet(folder)
    wrong = plans.where(f.col("error").isNotNull()).select("site", "error").collect()
    total = plans.where(f.col("error").isNull()).agg(
        f.count_distinct("site").alias("sites"),
        f.count(f.lit(1)).alias("subscriptions"),
        f.sum("utility").alias("utility"),
    )
    found = total.collect()[0]
    return FleetOutcome(
        sites=int(found["sites"]),
        subscriptions=int(found["subscriptions"]),
        utility=float(found["utility"] or 0.0),
        failed={str(row["site"]): str(row["error"]) for row in sorted(wrong)},
        left_out=checked.left_out,
    )


def plan_fleet(fleet: DataFrame, tasks: int) -> DataFrame:
    """A row for each subscription of every site."""
    placed = fleet.repartition(tasks, "site")
    return placed.groupBy("site").applyInArrow(_planned, from_arrow_schema(PLANNED_SCHEMA))


def _planned(rows: pa.Table) -> pa.Table:
    return planned_rows(rows["site"][0].as_py(), rows["scenario"][0].as_py())


def planned_rows(site: str, scenario: str) -> pa.Table:
    """The plan of one site as rows of ``PLANNED_SCHEMA``."""
    try:
        rows = list(_rows(site, from_json(Scenario, scenario)))
    except (WireError, PlanningError, ModelError) as error:
        rows = [{"site": site, "error": str(error)}]
    return pa.Table.from_pylist(rows, schema=PLANNED_SCHEMA)


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

"""Records of the simulator for a small site with four classes, and what is predicted of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firedex.simulation_records import RecordFiles
from firedex.wire import Scenario, SubscriptionPrediction, from_plain
from firedex_models import predict
from firedex_models.simulation import SimulationSettings, simulate
from firedex_spark.delay_measures import Series, measure
from firedex_spark.delay_verdicts import judge
from firedex_spark.delivery_cells import EARLY, REFUSED, SUMS, Cells, cells_of
from firedex_spark.measured_row import Bounds, MeasuredRow
from firedex_spark.record_columns import COLUMNS, TIME
from firedex_spark.record_files import check_files, files_under
from firedex_spark.record_windows import read_parts, windows_of
from firedex_spark.run_spans import RunPart, Runs, at_width_of_runs, runs_of
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.wrong_clocks import Arrived, wrong_clocks

CLASSES = 4
PredictedBy = Mapping[tuple[str, int], Mapping[tuple[str, str], SubscriptionPrediction]]


def four_classes(load: float = 0.7) -> Scenario:
    topics = [f"sensor{k}/floor1" for k in range(CLASSES)]
    names = [f"crew{number}" for number in range(3)]
    return from_plain(
        Scenario,
        {
            "name": "four classes",
            "topics": [{"name": name, "event_bytes": 51} for name in topics],
            "publishers": [
                {
                    "id": "sensors",
                    "switch": "lan",
                    "publications": [{"topic": t, "rate_per_second": 10.0} for t in topics],
                }
            ],
            "subscribers": [
                {
                    "id": name,
                    "switch": "core",
                    "subscriptions": [
                        {
                            "filter": t,
                            "utility": {"kind": "log", "weight": 1.0},
                            "deadline_seconds": 0.05,
                        }
                        for t in topics
                    ],
                }
                for name in names
            ],
            "network": {
                "switches": [
                    {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
                    {"id": "core", "bandwidth_bits_per_second": 10.0 * 12 * 800 / load},
                ],
                "broker": {"id": "edge"},
            },
            "assignment": [
                {"subscriber": name, "filter": t, "flow": k, "priority": k}
                for name in names
                for k, t in enumerate(topics)
            ],
        },
    )


def write_simulated(
    folder: Path, scenario: Scenario, *, replications: int = 1, publications: int, seed: int = 0
) -> None:
    files = RecordFiles(folder=folder, run=f"simulation-{seed}")
    assert files.prepare() is None
    settings = SimulationSettings(replications=replications, publications=publications, seed=seed)
    simulate(scenario, settings, keep=files)


def plant_drift(folder: Path, priority: int, growth: float, files: str = "*.parquet") -> None:
    """Delays of a class grow by that part from the beginning to the end."""
    for file in folder.glob(files):
        table = pq.read_table(file, schema=DELIVERY_SCHEMA)
        published, received = table[TIME], table["received_at_seconds"]
        last = pc.max(published).as_py()
        factor = pc.add(1.0, pc.multiply(growth / last, published))
        later = pc.add(published, pc.multiply(factor, pc.subtract(received, published)))
        moved = pc.if_else(pc.equal(table["priority"], priority), later, received)
        column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
        pq.write_table(table.set_column(column, DELIVERY_SCHEMA.field(column), moved), file)


def predictions_of(scenario: Scenario) -> dict[tuple[str, str], SubscriptionPrediction]:
    rows = predict(scenario).to_prediction().subscriptions
    return {(row.subscriber, row.filter): row for row in rows}


def judged_without_spark(
    folder: Path, scenario: Scenario, bounds: Bounds | None = None
) -> list[MeasuredRow]:
    """What the job does, in one process."""
    return judged_in_one_process(folder, {("site", 0): predictions_of(scenario)}, bounds)


def judged_in_one_process(
    folder: Path, said: PredictedBy, bounds: Bounds | None = None
) -> list[MeasuredRow]:
    """The same of any sites and configurations."""
    bounds = bounds or Bounds()
    checked = check_files(folder, files_under(folder, "records"), DELIVERY_SCHEMA, TIME)
    parts = []
    for window in windows_of(checked.good):
        for table, bad in read_parts(window, COLUMNS, DELIVERY_SCHEMA):
            assert not bad
            parts.append(cells_of(table, window.site))
    every = pa.concat_tables(parts)
    wrong = wrong_clocks(_arrived(row) for row in every.to_pylist() if row["kind"] != REFUSED)
    sums = only_sums(every)
    runs = known_runs(sums)
    of = sums.select(["site", "configuration_version"])
    rows: list[MeasuredRow] = []
    for site, version in sorted(
        {(row["site"], row["configuration_version"]) for row in of.to_pylist()}
    ):
        same = pc.and_(pc.equal(of["site"], site), pc.equal(of["configuration_version"], version))
        telling = {run for where, run in runs.telling if where == site}
        series = series_of(sums.filter(same))
        clocks = {who for *where, who in wrong if where == [site, version]}
        predicted = said.get((site, version), {})
        rows += measure(site, version, series, predicted, telling, bounds, clocks)
    return judge(rows, bounds)


def _arrived(row: dict[str, Any]) -> Arrived:
    arrived = row["count"] - row["lost"]
    return Arrived(
        site=row["site"],
        configuration_version=row["configuration_version"],
        run=row["run"],
        subscriber=row["subscriber"],
        counted=arrived if row["kind"] == SUMS else 0,
        early=arrived if row["kind"] == EARLY else 0,
    )


def series_of(sums: pa.Table) -> list[Series]:
    return [
        Series(
            subscriber=row["subscriber"],
            filter=row["filter"],
            priority=row["priority"],
            run=row["run"],
            earliest=row["earliest"],
            latest=row["latest"],
            cells=Cells.unpacked(row["slices"], row["buckets"]),
        )
        for row in at_width_of_runs(only_sums(sums), known_runs(sums)).to_pylist()
    ]


def only_sums(sums: pa.Table) -> pa.Table:
    return sums.filter(pc.equal(sums["kind"], SUMS))


def known_runs(sums: pa.Table) -> Runs:
    return runs_of(
        RunPart(
            run=(row["site"], row["configuration_version"], row["run"]),
            earliest=row["earliest"],
            latest=row["latest"],
            count=row["count"],
            lost=row["lost"],
        )
        for row in only_sums(sums).to_pylist()
    )

"""Simulated records of a small site with four classes, and its predictions."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firedex.cli.simulation_records import RecordFiles
from firedex.wire import (
    DeliveryRecord,
    Scenario,
    SubscriptionPrediction,
    from_plain,
)
from firedex_models import predict
from firedex_models.simulation import SimulationSettings, simulate
from firedex_spark.records.columns import COLUMNS, TIME
from firedex_spark.records.delivery_cells import (
    EARLY,
    REFUSED,
    SUMS,
    Cells,
    sum_by_key,
    sum_up_records,
)
from firedex_spark.records.files import RecordFile, check_delivery_files, check_files, find_files
from firedex_spark.records.windows import (
    make_fixed_windows,
    make_windows,
    read_in_parts,
)
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA
from firedex_spark.validation.measures import Series, measure
from firedex_spark.validation.runs import (
    DeliveryCounts,
    RunPart,
    Runs,
    find_run_spans,
    widen_slices,
    wrong_clocks,
)
from firedex_spark.validation.verdicts import Bounds, MeasuredRow, judge

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


def simulate_records(
    folder: Path, scenario: Scenario, *, replications: int = 1, publications: int, seed: int = 0
) -> None:
    files = RecordFiles(folder=folder, run=f"simulation-{seed}")
    assert files.prepare() is None
    settings = SimulationSettings(replications=replications, publications=publications, seed=seed)
    simulate(scenario, settings, record_writer=files)


def add_drift(folder: Path, priority: int, growth: float, files: str = "*.parquet") -> None:
    """Let the delays of a class grow by the fraction ``growth`` from beginning to end."""
    for file in folder.glob(files):
        table = pq.read_table(file, schema=DELIVERY_SCHEMA)
        published, received = table[TIME], table["received_at_seconds"]
        last = pc.max(published).as_py()
        factor = pc.add(1.0, pc.multiply(growth / last, published))
        later = pc.add(published, pc.multiply(factor, pc.subtract(received, published)))
        moved = pc.if_else(pc.equal(table["priority"], priority), later, received)
        column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
        pq.write_table(table.set_column(column, DELIVERY_SCHEMA.field(column), moved), file)


def predict_subscriptions(scenario: Scenario) -> dict[tuple[str, str], SubscriptionPrediction]:
    rows = predict(scenario).to_prediction().subscriptions
    return {(row.subscriber, row.filter): row for row in rows}


def validate_in_one_process(
    folder: Path, scenario: Scenario, bounds: Bounds | None = None
) -> list[MeasuredRow]:
    """Validate records of one site in this process, without Spark."""
    return validate_sites_in_one_process(
        folder, {("site", 0): predict_subscriptions(scenario)}, bounds
    )


def validate_sites_in_one_process(
    folder: Path, predictions: PredictedBy, bounds: Bounds | None = None
) -> list[MeasuredRow]:
    """Validate records of several sites in this process, without Spark."""
    bounds = bounds or Bounds()
    checked = check_files(folder, find_files(folder, "records"), DELIVERY_SCHEMA, TIME)
    parts = []
    for window in make_windows(checked.good):
        for table, bad in read_in_parts(window, COLUMNS, DELIVERY_SCHEMA):
            assert not bad
            parts.append(sum_up_records(table, window.site))
    every = pa.concat_tables(parts)
    wrong = wrong_clocks(
        _delivery_counts(row) for row in every.to_pylist() if row["kind"] != REFUSED
    )
    sums = only_sums(every)
    runs = known_runs(sums)
    of = sums.select(["site", "configuration_version"])
    rows: list[MeasuredRow] = []
    for site, version in sorted(
        {(row["site"], row["configuration_version"]) for row in of.to_pylist()}
    ):
        same = pc.and_(pc.equal(of["site"], site), pc.equal(of["configuration_version"], version))
        runs_with_losses = {run for where, run in runs.runs_with_losses if where == site}
        series = series_of(sums.filter(same))
        clocks = {who for *where, who in wrong if where == [site, version]}
        predicted = predictions.get((site, version), {})
        rows += measure(site, version, series, predicted, runs_with_losses, bounds, clocks)
    return judge(rows, bounds)


def _delivery_counts(row: dict[str, Any]) -> DeliveryCounts:
    arrived = row["count"] - row["lost"]
    return DeliveryCounts(
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
            cells=Cells.unpack(row["slices"], row["buckets"]),
        )
        for row in widen_slices(only_sums(sums), known_runs(sums)).to_pylist()
    ]


def only_sums(sums: pa.Table) -> pa.Table:
    return sums.filter(pc.equal(sums["kind"], SUMS))


def known_runs(sums: pa.Table) -> Runs:
    return find_run_spans(
        RunPart(
            run=(row["site"], row["configuration_version"], row["run"]),
            earliest=row["earliest"],
            latest=row["latest"],
            count=row["count"],
            lost=row["lost"],
        )
        for row in only_sums(sums).to_pylist()
    )


def record(number: int, **given: Any) -> DeliveryRecord:
    usual: dict[str, Any] = {
        "run": "r",
        "broker": "edge",
        "publication_id": f"a-{number}",
        "topic": "smoke/1",
        "publisher": None,
        "subscriber": "crew",
        "filter": "smoke/#",
        "flow": 0,
        "priority": 1,
        "configuration_version": 7,
        "wire_bytes": 100,
        "published_at_seconds": 1000.0 + number,
        "received_at_seconds": 1000.25 + number,
        "outcome": "delivered",
    }
    return DeliveryRecord(**{**usual, **given})


def sums(records: list[DeliveryRecord]) -> list[dict[str, Any]]:
    rows = [dataclasses.asdict(one) for one in records]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return list(sum_up_records(table, None).to_pylist())


def total(rows: list[dict[str, Any]]) -> list[int]:
    cells = [Cells.unpack(r["slices"], r["buckets"]).slices for r in rows if r["kind"] == SUMS]
    return list(np.concatenate(cells)[:, 1:].sum(axis=0).tolist())


def times_at(at: float) -> dict[str, float]:
    return {"published_at_seconds": at, "received_at_seconds": at}


def write_scattered_files(
    tmp_path: Path, rows: list[dict[str, Any]], files: int
) -> list[RecordFile]:
    """Write some of the rows to each file, and a copy of every tenth row to the next file."""
    for number in range(files):
        some = rows[number::files] + rows[(number + 1) % files :: files][::10]
        table = pa.Table.from_pylist(some, schema=SCHEMA)
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=300)
    return list(check_delivery_files(tmp_path).good)


def sum_in_parts(files: list[RecordFile], fixed: bool) -> tuple[int, pa.Table]:
    """Return the largest number of rows that were read at once, and the sums of all rows."""
    tables = [
        table
        for window in (make_fixed_windows(files, 1024.0) if fixed else make_windows(files))
        for table, _ in read_in_parts(window, SCHEMA.names, SCHEMA)
    ]
    sums = pa.concat_tables([sum_up_records(table, None) for table in tables])
    return max(table.num_rows for table in tables), sums


def sorted_slices(sums: pa.Table) -> list[list[int]]:
    """Return the slices of one subscription, independent of the windows."""
    cells = np.concatenate([series.cells.slices for series in series_of(sums)])
    return list(sum_by_key(cells, keys=1).tolist())


def break_pages(file: Path) -> None:
    """Overwrite the rows of a file; its footer stays valid."""
    raw = bytearray(file.read_bytes())
    raw[4:2000] = bytes(1996)
    file.write_bytes(raw)

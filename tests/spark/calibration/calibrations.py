"""Calibration of simulated records in one process."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.wire import Scenario
from firedex_spark.calibration.job import Calibration, make_calibration, sum_up_window
from firedex_spark.calibration.parameter_estimate import ParameterEstimate
from firedex_spark.records.columns import TIME
from firedex_spark.records.files import check_files, find_files
from firedex_spark.records.windows import make_windows
from firedex_spark.schemas import DELIVERY_SCHEMA

CORE = "network.switches.core."


RATE = "publishers.sensors.publications.sensor2/floor1.rate_per_second"


SWITCH_OF_SUBSCRIBER = {f"crew{number}": "core" for number in range(3)}


def as_clients_record(table: pa.Table, *, numbered: bool) -> pa.Table:
    """Return only delivered events without publisher, as clients do, with or without numbers."""
    frame = table.to_pandas()
    once = frame.drop_duplicates(["topic", "publication_id"]).sort_values(TIME)
    once["number"] = once.groupby("topic").cumcount() + 1
    number = once.set_index(["topic", "publication_id"])["number"]
    streams = {name: f"{n:016x}" for n, name in enumerate(sorted(set(frame["topic"])))}
    keys = zip(frame["topic"], frame["publication_id"], strict=True)
    if numbered:
        frame["publication_id"] = [f"{streams[t]}-{number[t, i]}" for t, i in keys]
    frame["publisher"] = None
    delivered = frame[frame["outcome"] == "delivered"]
    return pa.Table.from_pandas(delivered, schema=DELIVERY_SCHEMA, preserve_index=False)


def calibrate_table(folder: Path, table: pa.Table, scenario: Scenario) -> Calibration:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "records.parquet")
    files = check_files(folder, find_files(folder, "records"), DELIVERY_SCHEMA, TIME)
    sums = [
        sum_up_window(window, SWITCH_OF_SUBSCRIBER, None) for window in make_windows(files.good)
    ]
    found = pa.concat_tables(sums).to_pandas()
    return make_calibration(folder, found, scenario, site="site", refused={}, skipped=())


def by_path(estimates: Sequence[ParameterEstimate]) -> dict[str | None, ParameterEstimate]:
    return {one.path: one for one in estimates}

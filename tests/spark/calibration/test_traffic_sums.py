"""Sums over windows: duplicates, order of rows and refused rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from firedex_spark.calibration.job import sum_up_window
from firedex_spark.calibration.traffic_sums import CALIBRATION_COLUMNS, SUMS_ORDER, traffic_sums
from firedex_spark.records.columns import TIME, check_rows
from firedex_spark.records.files import check_files, find_files
from firedex_spark.records.windows import make_windows
from firedex_spark.schemas import DELIVERY_SCHEMA
from tests.spark.calibration.calibrations import SWITCH_OF_SUBSCRIBER
from tests.spark.simulated_deliveries import four_classes, simulate_records


def sums_as_frame(table: pa.Table, site: str | None = None) -> pd.DataFrame:
    found = traffic_sums(table.select(CALIBRATION_COLUMNS), SWITCH_OF_SUBSCRIBER, site).to_pandas()
    return found.sort_values(list(SUMS_ORDER), ignore_index=True)


def test_duplicates_and_order_do_not_change_the_sums(simulated_records: pa.Table) -> None:
    """Use duplicates that differ: received later, lost on another path, of another size."""
    few = simulated_records.slice(0, 3_000)
    frame = few.slice(0, 200).to_pandas()
    late = frame.assign(received_at_seconds=frame["received_at_seconds"] + 1.0)
    lost = frame.assign(received_at_seconds=np.nan, outcome="lost-on-link", wire_bytes=9)
    duplicates = [
        pa.Table.from_pandas(one, schema=DELIVERY_SCHEMA, preserve_index=False)
        for one in (late, lost[frame["outcome"] == "delivered"])
    ]
    with_duplicates = pa.concat_tables([few, *duplicates])
    random = np.random.default_rng(1)
    expected = sums_as_frame(few)
    expected.loc[expected.kind == "site", "count"] = with_duplicates.num_rows
    for _ in range(3):
        shuffled = with_duplicates.take(pa.array(random.permutation(with_duplicates.num_rows)))
        pd.testing.assert_frame_equal(sums_as_frame(shuffled), expected)


def test_invalid_rows_do_not_count(simulated_records: pa.Table) -> None:
    few = simulated_records.slice(0, 1_000)
    row = few.slice(0, 1).to_pylist()[0] | {"publication_id": "odd", "topic": "odd"}
    bad: list[dict[str, Any]] = [
        row | {"outcome": "eaten"},
        row | {"outcome": None},
        row | {"outcome": "delivered", "received_at_seconds": None},
        row | {"outcome": "delivered", "received_at_seconds": float("inf")},
        row | {"outcome": "delivered", "received_at_seconds": -5.0},
        row | {"wire_bytes": None},
        row | {"wire_bytes": -1},
        row | {"topic": None},
        row | {"subscriber": None},
        row | {"run": None},
        row | {"publication_id": None},
        row | {"outcome": "delivered", "received_at_seconds": row[TIME] + 86_401.0},
        row | {"priority": 64},
        row | {"priority": None},
        row | {"configuration_version": -1},
    ]
    wrong = pa.Table.from_pylist(bad, schema=DELIVERY_SCHEMA)
    found = sums_as_frame(pa.concat_tables([few, wrong]))
    refused = found[found.kind == "refused"]
    counts, _ = check_rows(wrong)
    more = {"topic is missing": 1, "wire_bytes is missing or negative": 2}
    assert dict(zip(refused["name"], refused["count"], strict=True)) == counts | more
    assert refused["count"].sum() == len(bad)
    rest = found[found.kind != "refused"].reset_index(drop=True)
    pd.testing.assert_frame_equal(rest, sums_as_frame(few))


def test_only_records_of_the_site_count(simulated_records: pa.Table) -> None:
    few = simulated_records.slice(0, 1_000)
    other = few.set_column(1, "site", pa.array(["elsewhere"] * 1_000))
    both = pa.concat_tables([few, other])
    found = sums_as_frame(both, "site")
    of_sites = found[found.kind == "site"]
    assert dict(zip(of_sites["name"], of_sites["count"], strict=True)) == {
        "elsewhere": 1_000,
        "site": 1_000,
    }
    rest = found[found.kind != "site"].reset_index(drop=True)
    alone = sums_as_frame(few, "site")
    pd.testing.assert_frame_equal(rest, alone[alone.kind != "site"].reset_index(drop=True))


def test_broken_file_is_named_by_its_window(tmp_path: Path) -> None:
    simulate_records(tmp_path, four_classes(), replications=2, publications=200)
    files = check_files(tmp_path, find_files(tmp_path, "records"), DELIVERY_SCHEMA, TIME)
    broken = tmp_path / "replication-0001.parquet"
    raw = bytearray(broken.read_bytes())
    raw[4:2000] = bytes(1996)
    broken.write_bytes(raw)
    sums = pa.concat_tables([sum_up_window(w, {}, None) for w in make_windows(files.good)])
    named = [row["name"] for row in sums.to_pylist() if row["kind"] == "unreadable"]
    assert named == [str(broken)]

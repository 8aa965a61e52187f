"""Clocks that disagree: what they leave of the delays is not taken for all of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from simulated_deliveries import (
    four_classes,
    judged_without_spark,
    write_simulated,
)

from firedex_spark.measured_row import MeasuredRow
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.wrong_clocks import Arrived, wrong_clocks

SCENARIO = four_classes()
Times = Callable[[pa.Table], np.ndarray]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("simulated")
    write_simulated(folder, SCENARIO, publications=8_000)
    return pq.read_table(folder, schema=DELIVERY_SCHEMA)


def with_column(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    place = DELIVERY_SCHEMA.get_field_index(name)
    field = DELIVERY_SCHEMA.field(place)
    return table.set_column(place, field, pa.array(values, field.type, from_pandas=True))


def at(table: pa.Table, subscriber: str) -> np.ndarray:
    return np.array(table["subscriber"].to_pylist()) == subscriber


def received_earlier(table: pa.Table, seconds: np.ndarray | float) -> pa.Table:
    received = table["received_at_seconds"].to_numpy()
    return with_column(table, "received_at_seconds", received - seconds)


def judged(table: pa.Table, folder: Path) -> list[MeasuredRow]:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "records.parquet")
    return judged_without_spark(folder, SCENARIO)


def test_one_subscribers_clock_is_named_and_left_out_of_classes(
    simulated: pa.Table, tmp_path: Path
) -> None:
    clean = judged(simulated.filter(pa.array(~at(simulated, "crew0"))), tmp_path / "without")
    skewed = received_earlier(simulated, np.where(at(simulated, "crew0"), 0.02, 0.0))
    rows = judged(skewed, tmp_path / "skewed")
    wrong = [row for row in rows if row.subscriber == "crew0"]
    assert len(wrong) == 4
    assert {row.verdict for row in wrong} == {"clock is wrong"}
    assert {row.delay_mean_seconds for row in wrong} == {None}
    assert {(row.alarming, row.judged) for row in wrong} == {(True, True)}
    classes = [row for row in rows if row.subscriber is None]
    assert {row.wrong_clocks for row in classes} == {1}
    assert not [row for row in rows if row.alarming and row.subscriber != "crew0"]
    means = {row.priority: row.delay_mean_seconds for row in clean if row.subscriber is None}
    assert {row.priority: row.delay_mean_seconds for row in classes} == means


def test_if_every_clock_is_wrong_nothing_is_within_bounds(
    simulated: pa.Table, tmp_path: Path
) -> None:
    rows = judged(received_earlier(simulated, 0.02), tmp_path)
    assert {row.verdict for row in rows} == {"clock is wrong"}


def test_copies_of_early_rows_change_nothing(simulated: pa.Table, tmp_path: Path) -> None:
    """Half a percent is early and would be more than one if copies counted."""
    random = np.random.default_rng(1)
    few = random.random(len(simulated)) < 0.006
    skewed = received_earlier(simulated, np.where(few, 10.0, 0.0))
    once = judged(skewed, tmp_path / "once")
    early = skewed.filter(pa.array(few))
    assert judged(pa.concat_tables([skewed, early, early]), tmp_path / "again") == once
    assert not [row for row in once if row.wrong_clocks]


def test_a_few_rows_are_no_wrong_clock() -> None:
    def found(counted: int, early: int) -> bool:
        of = {"site": "s", "configuration_version": 1, "run": "r", "subscriber": "crew"}
        parts = [Arrived(**of, counted=counted, early=0), Arrived(**of, counted=0, early=early)]
        return wrong_clocks(parts) == {("s", 1, "crew")}

    assert not found(100, 2)
    assert not found(990, 10)
    assert found(980, 11)
    assert found(0, 3)

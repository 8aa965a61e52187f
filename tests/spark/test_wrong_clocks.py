"""Clocks that disagree: what they leave of the delays is not taken for all of them."""

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
from firedex_spark.record_columns import TIME
from firedex_spark.run_spans import RunPart, runs_of
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.wrong_clocks import Arrived, wrong_clocks

SCENARIO = four_classes()


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


NOW = 1.8e9


def stamped(table: pa.Table, wrong: np.ndarray, factor: float, shift: float) -> pa.Table:
    """Of today, but for some rows whose host says otherwise."""
    for name in (TIME, "received_at_seconds"):
        right = table[name].to_numpy() + NOW
        table = with_column(table, name, np.where(wrong, right * factor + shift, right))
    return table


@pytest.mark.parametrize(
    ("factor", "shift"),
    [(1.0, -NOW), (1e3, 0.0), (1e9, 0.0), (1.0, 4e7)],
    ids=["1970", "milliseconds", "nanoseconds", "next year"],
)
def test_one_hosts_wrong_time_blinds_nobody_else(
    simulated: pa.Table, tmp_path: Path, factor: float, shift: float
) -> None:
    wrong = np.random.default_rng(2).random(len(simulated)) < 0.1
    right = stamped(simulated, wrong, 1.0, 0.0).filter(pa.array(~wrong))
    rows = judged(stamped(simulated, wrong, factor, shift), tmp_path / "wrong")
    assert rows == judged(right, tmp_path / "clean")
    assert {row.verdict for row in rows} == {"within bounds"}


def test_a_run_that_was_left_and_taken_up_again_is_one() -> None:
    def part(day: float, count: int) -> RunPart:
        at = NOW + 86_400.0 * day
        return RunPart(run=("s", 1, "r"), earliest=at, latest=at + 100.0, count=count, lost=0)

    week_later, months_later = [part(0, 1_000), part(7, 20)], [part(0, 1_000), part(70, 500)]
    for parts in (week_later, months_later, [part(n * 40.0, 100) for n in range(10)]):
        runs = runs_of(parts)
        assert runs.far == 0
        assert runs.spans["s", 1, "r"] == (parts[0].earliest, parts[-1].latest)
    assert runs_of([part(0, 1_000), part(70, 100)]).far == 100
    assert runs_of([part(0, 100), part(70, 1_000)]).far == 100

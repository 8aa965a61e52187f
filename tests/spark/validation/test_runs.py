"""Spans of runs, the width of slices, and wrong clocks."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex_spark.records.columns import TIME
from firedex_spark.records.delivery_cells import sum_up_records
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA
from firedex_spark.validation.runs import (
    DeliveryCounts,
    RunPart,
    find_run_spans,
    widen_slices,
    wrong_clocks,
)
from firedex_spark.validation.verdicts import MeasuredRow
from tests.spark.simulated_deliveries import (
    four_classes,
    known_runs,
    record,
    series_of,
    simulate_records,
    validate_in_one_process,
)

pytestmark = pytest.mark.slow


def test_slice_width_depends_on_its_run_only() -> None:
    hour = [record(n, run="short", published_at_seconds=5.0 * n) for n in range(720)]
    hour = [dataclasses.replace(r, received_at_seconds=5.0 * n + 1) for n, r in enumerate(hour)]
    month = dataclasses.replace(
        hour[1], run="long", published_at_seconds=2.6e6, received_at_seconds=2.6e6 + 1
    )
    table = pa.Table.from_pylist(
        [dataclasses.asdict(r) for r in (*hour, dataclasses.replace(hour[0], run="long"), month)],
        schema=SCHEMA,
    )
    sums = sum_up_records(table, None)
    found = widen_slices(sums, known_runs(sums))
    width = {row["run"]: row["slice_seconds"] for row in found.to_pylist()}
    assert (width["short"], width["long"]) == (8.0, 8192.0)


def test_row_of_1970_does_not_change_other_rows() -> None:
    times = 1.8e9 + 5.0 * np.arange(2_000)
    records = [
        record(n, published_at_seconds=is_of_subscriber, received_at_seconds=is_of_subscriber + 0.1)
        for n, is_of_subscriber in enumerate(times.tolist())
    ]
    wrong = record(9_999, published_at_seconds=50.0, received_at_seconds=50.1)
    rows = [dataclasses.asdict(one) for one in (*records, wrong)]
    both = [
        sum_up_records(pa.Table.from_pylist(some, schema=SCHEMA), None)
        for some in (rows[:-1], rows)
    ]
    assert known_runs(both[1]).far == 1
    first, second = (series_of(sums)[0].cells for sums in both)
    assert len(series_of(both[1])) == len(series_of(both[0]))
    assert first.slices.tolist() == second.slices.tolist()


SCENARIO = four_classes()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("simulated")
    simulate_records(folder, SCENARIO, publications=8_000)
    return pq.read_table(folder, schema=DELIVERY_SCHEMA)


def with_column(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    column = DELIVERY_SCHEMA.get_field_index(name)
    field = DELIVERY_SCHEMA.field(column)
    return table.set_column(column, field, pa.array(values, field.type, from_pandas=True))


def is_of_subscriber(table: pa.Table, subscriber: str) -> np.ndarray:
    return np.asarray(np.array(table["subscriber"].to_pylist()) == subscriber)


def receive_earlier(table: pa.Table, seconds: np.ndarray | float) -> pa.Table:
    received = table["received_at_seconds"].to_numpy()
    return with_column(table, "received_at_seconds", received - seconds)


def judge_rows(table: pa.Table, folder: Path) -> list[MeasuredRow]:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "records.parquet")
    return validate_in_one_process(folder, SCENARIO)


def test_subscriber_with_wrong_clock_is_excluded_from_classes(
    simulated: pa.Table, tmp_path: Path
) -> None:
    clean = judge_rows(
        simulated.filter(pa.array(~is_of_subscriber(simulated, "crew0"))), tmp_path / "without"
    )
    skewed = receive_earlier(simulated, np.where(is_of_subscriber(simulated, "crew0"), 0.02, 0.0))
    rows = judge_rows(skewed, tmp_path / "skewed")
    wrong = [row for row in rows if row.subscriber == "crew0"]
    assert len(wrong) == 4
    assert {row.verdict for row in wrong} == {"wrong clock"}
    assert {row.delay_mean_seconds for row in wrong} == {None}
    assert {(row.alarming, row.judged) for row in wrong} == {(True, True)}
    classes = [row for row in rows if row.subscriber is None]
    assert {row.wrong_clocks for row in classes} == {1}
    assert not [row for row in rows if row.alarming and row.subscriber != "crew0"]
    means = {row.priority: row.delay_mean_seconds for row in clean if row.subscriber is None}
    assert {row.priority: row.delay_mean_seconds for row in classes} == means


def test_no_row_is_within_bounds_if_every_clock_is_wrong(
    simulated: pa.Table, tmp_path: Path
) -> None:
    rows = judge_rows(receive_earlier(simulated, 0.02), tmp_path)
    assert {row.verdict for row in rows} == {"wrong clock"}


def test_duplicates_of_early_rows_do_not_count(simulated: pa.Table, tmp_path: Path) -> None:
    """Make half a percent early, which would be more than one percent if duplicates counted."""
    random = np.random.default_rng(1)
    few = random.random(len(simulated)) < 0.006
    skewed = receive_earlier(simulated, np.where(few, 10.0, 0.0))
    once = judge_rows(skewed, tmp_path / "once")
    early = skewed.filter(pa.array(few))
    assert judge_rows(pa.concat_tables([skewed, early, early]), tmp_path / "again") == once
    assert not [row for row in once if row.wrong_clocks]


def test_few_early_rows_are_not_a_wrong_clock() -> None:
    def found(counted: int, early: int) -> bool:
        of: dict[str, Any] = {
            "site": "s",
            "configuration_version": 1,
            "run": "r",
            "subscriber": "crew",
        }
        parts = [
            DeliveryCounts(**of, counted=counted, early=0),
            DeliveryCounts(**of, counted=0, early=early),
        ]
        return wrong_clocks(parts) == {("s", 1, "crew")}

    assert not found(100, 2)
    assert not found(990, 10)
    assert found(980, 11)
    assert found(0, 3)


NOW = 1.8e9


def with_wrong_times(table: pa.Table, wrong: np.ndarray, factor: float, shift: float) -> pa.Table:
    """Return the table with times of today, except for rows of a host with a wrong clock."""
    for name in (TIME, "received_at_seconds"):
        right = table[name].to_numpy() + NOW
        table = with_column(table, name, np.where(wrong, right * factor + shift, right))
    return table


@pytest.mark.parametrize(
    ("factor", "shift"),
    [(1.0, -NOW), (1e3, 0.0), (1e9, 0.0), (1.0, 4e7)],
    ids=["1970", "milliseconds", "nanoseconds", "next year"],
)
def test_wrong_time_of_one_host_does_not_affect_others(
    simulated: pa.Table, tmp_path: Path, factor: float, shift: float
) -> None:
    wrong = np.random.default_rng(2).random(len(simulated)) < 0.1
    right = with_wrong_times(simulated, wrong, 1.0, 0.0).filter(pa.array(~wrong))
    rows = judge_rows(with_wrong_times(simulated, wrong, factor, shift), tmp_path / "wrong")
    assert rows == judge_rows(right, tmp_path / "clean")
    assert {row.verdict for row in rows} == {"within bounds"}


def test_interrupted_run_is_one_run() -> None:
    def part(day: float, count: int) -> RunPart:
        is_of_subscriber = NOW + 86_400.0 * day
        return RunPart(
            run=("s", 1, "r"),
            earliest=is_of_subscriber,
            latest=is_of_subscriber + 100.0,
            count=count,
            lost=0,
        )

    week_later, months_later = [part(0, 1_000), part(7, 20)], [part(0, 1_000), part(70, 500)]
    for parts in (week_later, months_later, [part(n * 40.0, 100) for n in range(10)]):
        runs = find_run_spans(parts)
        assert runs.far == 0
        assert runs.spans["s", 1, "r"] == (parts[0].earliest, parts[-1].latest)
    assert find_run_spans([part(0, 1_000), part(70, 100)]).far == 100
    assert find_run_spans([part(0, 100), part(70, 1_000)]).far == 100

"""Estimates of parameters: what records show and what they do not show."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firedex.wire import Scenario
from firedex_spark.calibration.parameter_estimate import ParameterEstimate
from firedex_spark.records.columns import TIME
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.sweep.scenario_paths import with_values
from tests.spark.calibration.calibrations import (
    CORE,
    RATE,
    as_clients_record,
    by_path,
    calibrate_table,
)
from tests.spark.simulated_deliveries import four_classes, simulate_records

pytestmark = pytest.mark.slow


def is_near(one: ParameterEstimate, truth: float, widths: float = 0.5) -> bool:
    """Return whether ``truth`` is in the interval, widened on each side by ``widths`` intervals."""
    assert one.interval is not None
    low, high = one.interval
    return low - widths * (high - low) <= truth <= high + widths * (high - low)


def test_rates_are_estimated_from_deliveries_only(
    simulated_records: pa.Table, declared_scenario: Scenario, tmp_path: Path
) -> None:
    """Remove a third of all events; sequence numbers show how many are missing."""
    client_records = as_clients_record(simulated_records, numbered=True)
    number = client_records["publication_id"].to_pandas().str.split("-").str[1].astype(int)
    found = calibrate_table(
        tmp_path / "r", client_records.filter(pa.array(number % 3 > 0)), declared_scenario
    )
    rate = by_path(found.estimates)[RATE]
    assert rate.applied
    assert is_near(rate, 10.0)
    assert "from sequence numbers; 6" in rate.note
    assert found.is_better
    assert found.after.success_worst is None
    assert not [one for one in found.estimates if one.kind == "error_rate"]


def test_inexact_arrival_times_give_no_bandwidth(
    simulated_records: pa.Table, declared_scenario: Scenario, tmp_path: Path
) -> None:
    """Add random errors of milliseconds to delays, where a packet takes five milliseconds."""
    random = np.random.default_rng(3)
    time_errors = pa.array(random.exponential(0.003, simulated_records.num_rows))
    column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
    late = pc.add(simulated_records["received_at_seconds"], time_errors)
    table = simulated_records.set_column(column, DELIVERY_SCHEMA.field(column), late)
    found = calibrate_table(tmp_path / "r", table, declared_scenario)
    links = [one for one in found.estimates if one.kind == "bandwidth_bits_per_second"]
    assert [(one.estimated, one.applied) for one in links] == [("unknown", False)]
    assert not [path for path in found.overlay if "network" in path and "error" not in path]


def test_rates_and_losses_are_within_their_intervals(
    declared_scenario: Scenario, tmp_path: Path
) -> None:
    """Check 95 % intervals: fewer than 26 of 30 contain the truth in less than 1 % of all tests."""
    true_scenario = with_values(four_classes(), {CORE + "error_rate": 0.03})
    is_inside = []
    for seed in range(6):
        simulate_records(tmp_path / str(seed), true_scenario, publications=1_500, seed=seed)
        table = pq.read_table(tmp_path / str(seed), schema=DELIVERY_SCHEMA)
        found = calibrate_table(tmp_path / f"again{seed}", table, declared_scenario)
        true_values = {"rate_per_second": 10.0, "error_rate": 0.03}
        some = [one for one in found.estimates if one.kind in true_values]
        is_inside += [
            is_near(one, true_values[one.kind], widths=0.0)
            for one in some
            if one.kind == "rate_per_second" or one.name == "core"
        ]
    assert len(is_inside) == 30
    assert sum(is_inside) >= 26


def test_link_has_an_interval_with_one_window(tmp_path: Path) -> None:
    true_scenario = with_values(four_classes(0.9), {CORE + "burst_bytes": 1_000.0})
    simulate_records(tmp_path / "r", true_scenario, publications=3_000)
    table = pq.read_table(tmp_path / "r", schema=DELIVERY_SCHEMA)
    # clock errors of up to a twentieth of the time of a packet
    time_errors = pa.array(np.random.default_rng(5).uniform(0, 0.0004, table.num_rows))
    column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
    late = pc.add(table["received_at_seconds"], time_errors)
    table = table.set_column(column, DELIVERY_SCHEMA.field(column), late)
    found = by_path(calibrate_table(tmp_path / "again", table, true_scenario).estimates)
    speed, burst = found[CORE + "bandwidth_bits_per_second"], found[CORE + "burst_bytes"]
    assert speed.interval is not None
    assert 0 < speed.interval[1] - speed.interval[0] < 0.02 * float(speed.estimated)
    assert is_near(speed, true_scenario.network.switches[1].bandwidth_bits_per_second)
    assert burst.interval is not None
    assert burst.interval[0] == pytest.approx(1_000.0, rel=0.05)
    assert burst.interval[0] < burst.interval[1]


def test_rate_of_a_late_publisher_is_that_of_its_active_time(
    simulated_records: pa.Table, declared_scenario: Scenario, tmp_path: Path
) -> None:
    half = pc.max(simulated_records[TIME]).as_py() / 2
    late = pc.and_(
        pc.equal(simulated_records["topic"], "sensor2/floor1"),
        pc.less(simulated_records[TIME], half),
    )
    found = calibrate_table(
        tmp_path / "r", simulated_records.filter(pc.invert(late)), declared_scenario
    )
    rate = by_path(found.estimates)[RATE]
    assert is_near(rate, 10.0)


def test_rate_that_cannot_be_estimated_is_kept(
    simulated_records: pa.Table, declared_scenario: Scenario, tmp_path: Path
) -> None:
    lossy = with_values(declared_scenario, {CORE + "error_rate": 0.9})
    table = as_clients_record(simulated_records, numbered=False)
    found = calibrate_table(tmp_path / "r", table, lossy)
    rate = by_path(found.estimates)[RATE]
    assert not rate.applied
    assert "lower bound" in rate.note
    assert RATE not in found.overlay
    lossless = calibrate_table(tmp_path / "r", table, declared_scenario)
    assert RATE in lossless.overlay
    assert "predicted to reach a subscriber" in by_path(lossless.estimates)[RATE].note


def test_wrong_clock_does_not_change_a_rate(
    simulated_records: pa.Table, declared_scenario: Scenario, tmp_path: Path
) -> None:
    """Add a row of 1970 to records of today."""
    frame = simulated_records.to_pandas()
    for name in (TIME, "received_at_seconds"):
        frame[name] += 1.7e9
    wrong_row = frame[
        (frame["topic"] == "sensor2/floor1") & (frame["outcome"] == "delivered")
    ].iloc[:1]
    wrong_row = wrong_row.assign(published_at_seconds=50.0, publication_id="odd")
    table = pa.Table.from_pandas(
        pd.concat([frame, wrong_row]), schema=DELIVERY_SCHEMA, preserve_index=False
    )
    rate = by_path(calibrate_table(tmp_path / "r", table, declared_scenario).estimates)[RATE]
    assert rate.applied
    assert is_near(rate, 10.0)


def test_topic_names_with_special_characters(tmp_path: Path) -> None:
    names = {"sensor0/floor1": "räume.eg/küche 1", "sensor1/floor1": 'a "quoted" one'}
    base = four_classes()
    scenario = replace(
        base,
        topics=tuple(replace(t, name=names.get(t.name, t.name)) for t in base.topics),
        publishers=tuple(
            replace(
                p,
                publications=tuple(
                    replace(o, topic=names.get(o.topic, o.topic)) for o in p.publications
                ),
            )
            for p in base.publishers
        ),
        subscribers=tuple(
            replace(
                s,
                subscriptions=tuple(
                    replace(o, filter=names.get(o.filter, o.filter)) for o in s.subscriptions
                ),
            )
            for s in base.subscribers
        ),
        assignment=tuple(
            replace(a, filter=names.get(a.filter, a.filter)) for a in base.assignment or ()
        ),
    )
    simulate_records(tmp_path / "r", scenario, publications=2_000)
    table = pq.read_table(tmp_path / "r", schema=DELIVERY_SCHEMA)
    declared_scenario = with_values(scenario, {"topics.*.event_bytes": 90})
    found = calibrate_table(tmp_path / "again", table, declared_scenario)
    assert [topic.event_bytes for topic in found.scenario.topics] == [51] * 4

"""calibrate: the overlay improves predictions of records that were not used for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firedex.wire import Scenario
from firedex_models import predict
from firedex_spark.calibration.job import Calibration, PredictionError, calibrate
from firedex_spark.errors import NoMatchingRecords, SeveralSites
from firedex_spark.records.columns import TIME
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
from firedex_spark.sweep.scenario_paths import with_values
from tests.spark.calibration.calibrations import (
    CORE,
    as_clients_record,
    by_path,
    calibrate_table,
)
from tests.spark.simulated_deliveries import break_pages, four_classes, simulate_records

pytestmark = pytest.mark.slow


def test_predictions_are_better_with_the_overlay(
    simulated_records: pa.Table,
    declared_scenario: Scenario,
    true_scenario: Scenario,
    tmp_path: Path,
) -> None:
    found = calibrate_table(tmp_path / "r", simulated_records, declared_scenario)
    assert found.is_better
    assert found.after.delay_median < 0.1 < found.before.delay_median
    assert found.before.success_worst is not None
    assert found.after.success_worst is not None
    assert found.after.success_worst < 0.02 < found.before.success_worst
    value = by_path(found.estimates)
    speed = value[CORE + "bandwidth_bits_per_second"].estimated
    right = true_scenario.network.switches[1].bandwidth_bits_per_second
    assert speed == pytest.approx(right, rel=0.01)
    assert found.overlay["topics.sensor1/floor1.event_bytes"] == 51


def test_correct_declared_values_are_kept(tmp_path: Path) -> None:
    """Use short records at a high load, where a random error of a rate ruins predictions.

    At a level of 5 %, five or more of 20 scenarios change in one of four hundred tests.
    """
    true_scenario = four_classes(load=0.9)
    changes = []
    for seed in range(20):
        simulate_records(tmp_path / str(seed), true_scenario, publications=1_500, seed=seed)
        table = pq.read_table(tmp_path / str(seed), schema=DELIVERY_SCHEMA)
        found = calibrate_table(tmp_path / f"again{seed}", table, true_scenario)
        changes.append(found.overlay)
        rates = [one for one in found.estimates if one.kind == "rate_per_second"]
        assert all(one.as_declared for one in rates if one.path not in found.overlay)
        assert found.overlay or found.before == found.after
    assert sum(1 for overlay in changes if overlay) <= 4


def median_error(scenario: Scenario, right: Scenario) -> float:
    predicted, true_scenario = (
        predict(one).to_prediction().subscriptions for one in (scenario, right)
    )
    delays = [
        (a.delay_mean_seconds, b.delay_mean_seconds)
        for a, b in zip(predicted, true_scenario, strict=True)
    ]
    return float(np.median([abs(a / b - 1) for a, b in delays if a is not None and b]))


def test_errors_are_measured_on_the_later_half(
    simulated_records: pa.Table, true_scenario: Scenario, tmp_path: Path
) -> None:
    """Halve the rates of the first half, which makes predictions of the second half worse."""
    first = pc.less(simulated_records[TIME], pc.quantile(simulated_records[TIME], 0.5)[0])
    name = pc.binary_join_element_wise(
        simulated_records["topic"], simulated_records["publication_id"], ""
    )
    names, number = np.unique(name.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    is_removed = np.random.default_rng(2).random(len(names))[number] < 0.5
    changed_records = simulated_records.filter(pc.invert(pc.and_(first, pa.array(is_removed))))
    found = calibrate_table(tmp_path / "r", changed_records, true_scenario)
    assert found.before.delay_median < 0.1
    halved = with_values(true_scenario, {"publishers.*.publications.*.rate_per_second": 5.0})
    assert found.after.delay_median == pytest.approx(median_error(halved, true_scenario), abs=0.07)
    assert found.is_worse
    assert not found.is_better


def test_number_of_windows_does_not_change_the_estimates(
    simulated_records: pa.Table,
    declared_scenario: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = calibrate_table(tmp_path / "whole", simulated_records, declared_scenario)
    monkeypatch.setattr("firedex_spark.records.windows.ROWS_PER_WINDOW", 5_000)
    cut = calibrate_table(tmp_path / "cut", simulated_records, declared_scenario)
    assert cut.is_better
    assert cut.after.delay_median < 0.1 < cut.before.delay_median
    assert cut.overlay == pytest.approx(whole.overlay, rel=1e-6)


def test_difference_within_the_uncertainty_is_neither_better_nor_worse(
    true_scenario: Scenario,
) -> None:
    def error(median: float, noise: float | None) -> PredictionError:
        return PredictionError(
            delay_median=median,
            delay_worst=1.0,
            delay_noise=noise,
            success_worst=None,
            subscriptions=12,
        )

    def verdict(before: float, after: float, noise: float | None) -> tuple[bool, bool]:
        found = Calibration(
            site="site",
            estimates=(),
            overlay={},
            scenario=true_scenario,
            before=error(before, noise),
            after=error(after, noise),
            refused={},
            skipped=(),
        )
        return found.is_better, found.is_worse

    assert verdict(0.30, 0.10, 0.05) == (True, False)
    assert verdict(0.10, 0.30, 0.05) == (False, True)
    assert verdict(0.30, 0.10, 0.25) == (False, False)
    assert verdict(0.10, 0.30, 0.25) == (False, False)
    assert verdict(0.01, 0.04, None) == (False, False)


def test_records_of_other_subscriptions_are_rejected(
    simulated_records: pa.Table, tmp_path: Path
) -> None:
    scenario = four_classes()
    others = tuple(replace(s, id=f"other-{s.id}") for s in scenario.subscribers)
    assignment = tuple(
        replace(a, subscriber=f"other-{a.subscriber}") for a in scenario.assignment or ()
    )
    scenario = replace(scenario, subscribers=others, assignment=assignment)
    with pytest.raises(NoMatchingRecords, match="the records are of crew0 sensor0/floor1"):
        calibrate_table(tmp_path / "r", simulated_records, scenario)


def test_records_of_another_assignment_are_rejected(
    simulated_records: pa.Table, tmp_path: Path
) -> None:
    """Reject them, because an error of 0 % over no subscription would be misleading."""
    scenario = four_classes()
    turned = tuple(replace(a, priority=3 - a.priority) for a in scenario.assignment or ())
    with pytest.raises(NoMatchingRecords, match="12 subscriptions were recorded in another class"):
        calibrate_table(tmp_path / "r", simulated_records, replace(scenario, assignment=turned))


def test_records_without_delays_are_rejected(
    simulated_records: pa.Table, true_scenario: Scenario, tmp_path: Path
) -> None:
    lost = simulated_records.filter(pc.not_equal(simulated_records["outcome"], "delivered"))
    with pytest.raises(NoMatchingRecords, match="has no delay of a subscription"):
        calibrate_table(tmp_path / "r", lost, true_scenario)


def test_subscriptions_are_counted_with_and_without_losses(
    simulated_records: pa.Table, true_scenario: Scenario, tmp_path: Path
) -> None:
    with_losses = calibrate_table(tmp_path / "told", simulated_records, true_scenario)
    without_losses = calibrate_table(
        tmp_path / "untold", as_clients_record(simulated_records, numbered=True), true_scenario
    )
    assert (with_losses.before.subscriptions, with_losses.after.subscriptions) == (12, 12)
    assert (without_losses.before.subscriptions, without_losses.after.subscriptions) == (12, 12)


def test_calibration_finds_the_true_parameters(spark: SparkSession, tmp_path: Path) -> None:
    core = "network.switches.core."
    true_scenario = with_values(four_classes(), {core + "error_rate": 0.03})
    simulate_records(tmp_path / "records", true_scenario, replications=2, publications=10_000)
    declared_scenario = with_values(
        true_scenario,
        {
            core + "error_rate": 0.0,
            core + "bandwidth_bits_per_second": 250_000.0,
            "topics.sensor1/floor1.event_bytes": 90,
            "publishers.sensors.publications.sensor2/floor1.rate_per_second": 4.0,
        },
    )
    found = calibrate(spark, tmp_path / "records", declared_scenario)
    value = {(one.kind, one.name): one for one in found.estimates}
    speed = value["bandwidth_bits_per_second", "core"]
    right = true_scenario.network.switches[1].bandwidth_bits_per_second
    assert speed.estimated == pytest.approx(right, rel=0.01)
    assert value["burst_bytes", "core"].estimated == 0.0
    assert value["event_bytes", "sensor1/floor1"].estimated == 51
    rate = value["rate_per_second", "sensors sensor2/floor1"]
    assert rate.interval is not None
    assert rate.estimated == pytest.approx(10.0, abs=rate.interval[1] - rate.interval[0])
    lost = value["error_rate", "core"]
    assert lost.interval is not None
    assert lost.estimated == pytest.approx(0.03, abs=lost.interval[1] - lost.interval[0])
    assert value["fan_out", "sensor0/floor1"].estimated == pytest.approx(3.0)
    assert found.after.delay_median < 0.05 < found.before.delay_median
    assert found.is_better


def test_calibration_uses_one_site_and_complete_files(spark: SparkSession, tmp_path: Path) -> None:
    scenario, folder = four_classes(), tmp_path / "records"
    simulate_records(folder, scenario, publications=2_000)
    alone = calibrate(spark, folder, scenario)
    table = pq.read_table(folder / "replication-0000.parquet")
    pq.write_table(table, folder / "broken.parquet")
    break_pages(folder / "broken.parquet")
    shuffled = table.slice(1_000, 1_500).take(list(reversed(range(1_500))))
    pq.write_table(shuffled, folder / "copies.parquet")
    found = calibrate(spark, folder, scenario)
    assert found.estimates == alone.estimates
    assert [bad.file.name for bad in found.skipped] == ["broken.parquet"]
    elsewhere = pa.array(["elsewhere"] * table.num_rows)
    pq.write_table(table.set_column(1, "site", elsewhere), folder / "other.parquet")
    with pytest.raises(SeveralSites, match=r"2 sites \(elsewhere, site\); choose one with --site"):
        calibrate(spark, folder, scenario)
    assert calibrate(spark, folder, scenario, site="site").estimates == alone.estimates
    with pytest.raises(NoMatchingRecords, match="no record of site nowhere; the records are"):
        calibrate(spark, folder, scenario, site="nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    pq.write_table(table.slice(0, 0), empty / "none.parquet")
    with pytest.raises(NoMatchingRecords, match="no record has a publication time"):
        calibrate(spark, empty, scenario)

"""Parameters of the model from records, without Spark: what is told, and what cannot be."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from simulated_deliveries import four_classes, write_simulated

from firedex.wire import Scenario
from firedex_models import predict
from firedex_spark.calibrate import Calibration, calibration_of, window_sums
from firedex_spark.calibration_estimates import ParameterEstimate
from firedex_spark.errors import NothingMatches
from firedex_spark.prediction_errors import PredictionError
from firedex_spark.record_files import check_files, files_under
from firedex_spark.record_rows import refused_rows
from firedex_spark.record_windows import TIME, windows_of
from firedex_spark.scenario_paths import changed
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.traffic_sums import CALIBRATION_COLUMNS, SUMS_ORDER, traffic_sums

CORE = "network.switches.core."
RATE = "publishers.sensors.publications.sensor2/floor1.rate_per_second"
SWITCH_OF = {f"crew{number}": "core" for number in range(3)}


@pytest.fixture(scope="module")
def true() -> Scenario:
    return changed(four_classes(), {CORE + "error_rate": 0.03})


@pytest.fixture(scope="module")
def declared(true: Scenario) -> Scenario:
    return changed(
        true,
        {
            CORE + "error_rate": 0.0,
            CORE + "bandwidth_bits_per_second": 250_000.0,
            "topics.sensor1/floor1.event_bytes": 90,
            RATE: 4.0,
        },
    )


@pytest.fixture(scope="module")
def simulated(true: Scenario, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("simulated")
    write_simulated(folder, true, publications=10_000)
    return pq.read_table(folder, schema=DELIVERY_SCHEMA)


def as_clients_write(table: pa.Table, *, numbered: bool) -> pa.Table:
    """What was delivered only, by nobody; events numbered for each topic, or without an order."""
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


def calibrated(folder: Path, table: pa.Table, scenario: Scenario) -> Calibration:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "records.parquet")
    files = check_files(folder, files_under(folder, "records"), DELIVERY_SCHEMA, TIME)
    sums = [window_sums(window, SWITCH_OF, None) for window in windows_of(files.good)]
    found = pa.concat_tables(sums).to_pandas()
    return calibration_of(folder, found, scenario, site="site", refused={}, left_out=())


def by_path(estimates: Sequence[ParameterEstimate]) -> dict[str | None, ParameterEstimate]:
    return {one.path: one for one in estimates}


def is_near(one: ParameterEstimate, truth: float, widths: float = 0.5) -> bool:
    """Within the interval, made wider by so many times itself on each side."""
    assert one.interval is not None
    low, high = one.interval
    return low - widths * (high - low) <= truth <= high + widths * (high - low)


def test_predictions_are_better_with_the_overlay(
    simulated: pa.Table, declared: Scenario, true: Scenario, tmp_path: Path
) -> None:
    found = calibrated(tmp_path / "r", simulated, declared)
    assert found.better
    assert found.after.delay_median < 0.1 < found.before.delay_median
    assert found.before.success_worst is not None
    assert found.after.success_worst is not None
    assert found.after.success_worst < 0.02 < found.before.success_worst
    value = by_path(found.estimates)
    speed = value[CORE + "bandwidth_bits_per_second"].estimated
    right = true.network.switches[1].bandwidth_bits_per_second
    assert speed == pytest.approx(right, rel=0.01)
    assert found.overlay["topics.sensor1/floor1.event_bytes"] == 51


def test_rates_are_true_though_clients_record_only_what_they_got(
    simulated: pa.Table, declared: Scenario, tmp_path: Path
) -> None:
    """A third of everything is lost, to everybody alike; numbers tell what is missing."""
    got = as_clients_write(simulated, numbered=True)
    number = got["publication_id"].to_pandas().str.split("-").str[1].astype(int)
    found = calibrated(tmp_path / "r", got.filter(pa.array(number % 3 > 0)), declared)
    rate = by_path(found.estimates)[RATE]
    assert rate.applied
    assert is_near(rate, 10.0)
    assert "by the numbers of the events; 6" in rate.note
    assert found.better
    assert found.after.success_worst is None
    assert not [one for one in found.estimates if one.kind == "error_rate"]


def test_times_that_hosts_have_blurred_say_nothing_of_a_link(
    simulated: pa.Table, declared: Scenario, tmp_path: Path
) -> None:
    """Delays of live programs: milliseconds more or less, where a packet takes five."""
    random = np.random.default_rng(3)
    blur = pa.array(random.exponential(0.003, simulated.num_rows))
    column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
    late = pc.add(simulated["received_at_seconds"], blur)
    table = simulated.set_column(column, DELIVERY_SCHEMA.field(column), late)
    found = calibrated(tmp_path / "r", table, declared)
    links = [one for one in found.estimates if one.kind == "bandwidth_bits_per_second"]
    assert [(one.estimated, one.applied) for one in links] == [("not told", False)]
    assert not [path for path in found.overlay if "network" in path and "error" not in path]


def test_rates_and_losses_are_within_their_intervals(declared: Scenario, tmp_path: Path) -> None:
    """Stated for 95 %: of 60 at least 52, which less than one in a hundred would miss."""
    true = changed(four_classes(), {CORE + "error_rate": 0.03})
    inside = []
    for seed in range(12):
        write_simulated(tmp_path / str(seed), true, publications=1_500, seed=seed)
        table = pq.read_table(tmp_path / str(seed), schema=DELIVERY_SCHEMA)
        found = calibrated(tmp_path / f"again{seed}", table, declared)
        right = {"rate_per_second": 10.0, "error_rate": 0.03}
        some = [one for one in found.estimates if one.kind in right]
        inside += [
            is_near(one, right[one.kind], widths=0.0)
            for one in some
            if one.kind == "rate_per_second" or one.name == "core"
        ]
    assert len(inside) == 60
    assert sum(inside) >= 52


def test_a_link_has_an_interval_though_there_is_one_window_only(tmp_path: Path) -> None:
    true = changed(four_classes(0.9), {CORE + "burst_bytes": 1_000.0})
    write_simulated(tmp_path / "r", true, publications=3_000)
    table = pq.read_table(tmp_path / "r", schema=DELIVERY_SCHEMA)
    # clocks that are off by up to a twentieth of a packet's time
    blur = pa.array(np.random.default_rng(5).uniform(0, 0.0004, table.num_rows))
    column = DELIVERY_SCHEMA.get_field_index("received_at_seconds")
    late = pc.add(table["received_at_seconds"], blur)
    table = table.set_column(column, DELIVERY_SCHEMA.field(column), late)
    found = by_path(calibrated(tmp_path / "again", table, true).estimates)
    speed, burst = found[CORE + "bandwidth_bits_per_second"], found[CORE + "burst_bytes"]
    assert speed.interval is not None
    assert 0 < speed.interval[1] - speed.interval[0] < 0.02 * float(speed.estimated)
    assert is_near(speed, true.network.switches[1].bandwidth_bits_per_second)
    assert burst.interval is not None
    assert burst.interval[0] == pytest.approx(1_000.0, rel=0.05)
    assert burst.interval[0] < burst.interval[1]


def test_what_was_declared_right_stays_as_it_is(tmp_path: Path) -> None:
    """Short records at a high load, where a rate that is off by chance ruins predictions.

    Stated for 95 % of scenarios: of 20, five or more would be changed once in four hundred tests.
    """
    true = four_classes(load=0.9)
    changes = []
    for seed in range(20):
        write_simulated(tmp_path / str(seed), true, publications=1_500, seed=seed)
        table = pq.read_table(tmp_path / str(seed), schema=DELIVERY_SCHEMA)
        found = calibrated(tmp_path / f"again{seed}", table, true)
        changes.append(found.overlay)
        rates = [one for one in found.estimates if one.kind == "rate_per_second"]
        assert all(one.as_declared for one in rates if one.path not in found.overlay)
        assert found.overlay or found.before == found.after
    assert sum(1 for overlay in changes if overlay) <= 4


def median_off(scenario: Scenario, right: Scenario) -> float:
    said, true = (predict(one).to_prediction().subscriptions for one in (scenario, right))
    delays = [(a.delay_mean_seconds, b.delay_mean_seconds) for a, b in zip(said, true, strict=True)]
    return float(np.median([abs(a / b - 1) for a, b in delays if a is not None and b]))


def test_errors_are_of_records_that_nothing_was_estimated_from(
    simulated: pa.Table, true: Scenario, tmp_path: Path
) -> None:
    """A calm first half: what it says makes predictions of the second worse, and that is told."""
    first = pc.less(simulated[TIME], pc.quantile(simulated[TIME], 0.5)[0])
    name = pc.binary_join_element_wise(simulated["topic"], simulated["publication_id"], "")
    names, number = np.unique(name.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    thinned = np.random.default_rng(2).random(len(names))[number] < 0.5
    calm = simulated.filter(pc.invert(pc.and_(first, pa.array(thinned))))
    found = calibrated(tmp_path / "r", calm, true)
    assert found.before.delay_median < 0.1
    halved = changed(true, {"publishers.*.publications.*.rate_per_second": 5.0})
    assert found.after.delay_median == pytest.approx(median_off(halved, true), abs=0.07)
    assert found.worse
    assert not found.better


def test_many_windows_are_halved_each_and_say_the_same(
    simulated: pa.Table, declared: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = calibrated(tmp_path / "whole", simulated, declared)
    monkeypatch.setattr("firedex_spark.record_windows.ROWS_OF_A_WINDOW", 5_000)
    cut = calibrated(tmp_path / "cut", simulated, declared)
    assert cut.better
    assert cut.after.delay_median < 0.1 < cut.before.delay_median
    assert cut.overlay == pytest.approx(whole.overlay, rel=1e-6)


def test_a_difference_that_records_are_too_short_to_show_is_none(true: Scenario) -> None:
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
            scenario=true,
            before=error(before, noise),
            after=error(after, noise),
            refused={},
            left_out=(),
        )
        return found.better, found.worse

    assert verdict(0.30, 0.10, 0.05) == (True, False)
    assert verdict(0.10, 0.30, 0.05) == (False, True)
    assert verdict(0.30, 0.10, 0.25) == (False, False)
    assert verdict(0.10, 0.30, 0.25) == (False, False)
    assert verdict(0.01, 0.04, None) == (False, False)


def test_a_stream_that_begins_late_has_the_rate_of_its_own_time(
    simulated: pa.Table, declared: Scenario, tmp_path: Path
) -> None:
    half = pc.max(simulated[TIME]).as_py() / 2
    late = pc.and_(pc.equal(simulated["topic"], "sensor2/floor1"), pc.less(simulated[TIME], half))
    found = calibrated(tmp_path / "r", simulated.filter(pc.invert(late)), declared)
    rate = by_path(found.estimates)[RATE]
    assert is_near(rate, 10.0)


def test_a_rate_that_records_cannot_tell_is_left_as_it_was(
    simulated: pa.Table, declared: Scenario, tmp_path: Path
) -> None:
    lossy = changed(declared, {CORE + "error_rate": 0.9})
    table = as_clients_write(simulated, numbered=False)
    found = calibrated(tmp_path / "r", table, lossy)
    rate = by_path(found.estimates)[RATE]
    assert not rate.applied
    assert "at least" in rate.note
    assert RATE not in found.overlay
    lossless = calibrated(tmp_path / "r", table, declared)
    assert RATE in lossless.overlay
    assert "expected to reach somebody" in by_path(lossless.estimates)[RATE].note


def sums_of(table: pa.Table, site: str | None = None) -> pd.DataFrame:
    found = traffic_sums(table.select(CALIBRATION_COLUMNS), SWITCH_OF, site).to_pandas()
    return found.sort_values(list(SUMS_ORDER), ignore_index=True)


def test_copies_and_the_order_of_rows_change_nothing(simulated: pa.Table) -> None:
    """Copies that differ: later, lost on another way, of another size."""
    few = simulated.slice(0, 3_000)
    frame = few.slice(0, 200).to_pandas()
    late = frame.assign(received_at_seconds=frame["received_at_seconds"] + 1.0)
    lost = frame.assign(received_at_seconds=np.nan, outcome="lost-on-link", wire_bytes=9)
    copies = [
        pa.Table.from_pandas(one, schema=DELIVERY_SCHEMA, preserve_index=False)
        for one in (late, lost[frame["outcome"] == "delivered"])
    ]
    doubled = pa.concat_tables([few, *copies])
    random = np.random.default_rng(1)
    expected = sums_of(few)
    expected.loc[expected.kind == "site", "count"] = doubled.num_rows
    for _ in range(3):
        mixed = doubled.take(pa.array(random.permutation(doubled.num_rows)))
        pd.testing.assert_frame_equal(sums_of(mixed), expected)


def test_rows_that_contradict_themselves_do_not_count(simulated: pa.Table) -> None:
    few = simulated.slice(0, 1_000)
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
    found = sums_of(pa.concat_tables([few, wrong]))
    refused = found[found.kind == "refused"]
    counts, _ = refused_rows(wrong)
    more = {"topic is missing": 1, "wire_bytes is missing or negative": 2}
    assert dict(zip(refused["name"], refused["count"], strict=True)) == counts | more
    assert refused["count"].sum() == len(bad)
    rest = found[found.kind != "refused"].reset_index(drop=True)
    pd.testing.assert_frame_equal(rest, sums_of(few))


def test_a_wrong_clock_does_not_ruin_a_rate(
    simulated: pa.Table, declared: Scenario, tmp_path: Path
) -> None:
    """A host that starts in 1970, among others at the time of today."""
    frame = simulated.to_pandas()
    for name in (TIME, "received_at_seconds"):
        frame[name] += 1.7e9
    odd = frame[(frame["topic"] == "sensor2/floor1") & (frame["outcome"] == "delivered")].iloc[:1]
    odd = odd.assign(published_at_seconds=50.0, publication_id="odd")
    table = pa.Table.from_pandas(
        pd.concat([frame, odd]), schema=DELIVERY_SCHEMA, preserve_index=False
    )
    rate = by_path(calibrated(tmp_path / "r", table, declared).estimates)[RATE]
    assert rate.applied
    assert is_near(rate, 10.0)


def test_only_the_records_of_the_site_count(simulated: pa.Table) -> None:
    few = simulated.slice(0, 1_000)
    other = few.set_column(1, "site", pa.array(["elsewhere"] * 1_000))
    both = pa.concat_tables([few, other])
    found = sums_of(both, "site")
    of_sites = found[found.kind == "site"]
    assert dict(zip(of_sites["name"], of_sites["count"], strict=True)) == {
        "elsewhere": 1_000,
        "site": 1_000,
    }
    rest = found[found.kind != "site"].reset_index(drop=True)
    alone = sums_of(few, "site")
    pd.testing.assert_frame_equal(rest, alone[alone.kind != "site"].reset_index(drop=True))


def test_topics_with_spaces_dots_and_letters_of_any_script(tmp_path: Path) -> None:
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
    write_simulated(tmp_path / "r", scenario, publications=2_000)
    table = pq.read_table(tmp_path / "r", schema=DELIVERY_SCHEMA)
    declared = changed(scenario, {"topics.*.event_bytes": 90})
    found = calibrated(tmp_path / "again", table, declared)
    assert [topic.event_bytes for topic in found.scenario.topics] == [51] * 4


def test_records_of_something_else_are_refused(simulated: pa.Table, tmp_path: Path) -> None:
    scenario = four_classes()
    others = tuple(replace(s, id=f"other-{s.id}") for s in scenario.subscribers)
    assignment = tuple(
        replace(a, subscriber=f"other-{a.subscriber}") for a in scenario.assignment or ()
    )
    scenario = replace(scenario, subscribers=others, assignment=assignment)
    with pytest.raises(NothingMatches, match="they are of crew0 sensor0/floor1"):
        calibrated(tmp_path / "r", simulated, scenario)


def test_records_of_another_assignment_are_refused(simulated: pa.Table, tmp_path: Path) -> None:
    """An error of 0 % over nothing would say that all is well."""
    scenario = four_classes()
    turned = tuple(replace(a, priority=3 - a.priority) for a in scenario.assignment or ())
    with pytest.raises(NothingMatches, match="12 subscriptions came in another class"):
        calibrated(tmp_path / "r", simulated, replace(scenario, assignment=turned))


def test_delays_that_nobody_measured_are_not_compared(
    simulated: pa.Table, true: Scenario, tmp_path: Path
) -> None:
    lost = simulated.filter(pc.not_equal(simulated["outcome"], "delivered"))
    with pytest.raises(NothingMatches, match="none of the scenario's was measured"):
        calibrated(tmp_path / "r", lost, true)


def test_subscriptions_are_counted_whether_or_not_losses_are_told(
    simulated: pa.Table, true: Scenario, tmp_path: Path
) -> None:
    told = calibrated(tmp_path / "told", simulated, true)
    untold = calibrated(tmp_path / "untold", as_clients_write(simulated, numbered=True), true)
    assert (told.before.subscriptions, told.after.subscriptions) == (12, 12)
    assert (untold.before.subscriptions, untold.after.subscriptions) == (12, 12)


def test_a_broken_file_is_named_by_the_window_that_meets_it(tmp_path: Path) -> None:
    write_simulated(tmp_path, four_classes(), replications=2, publications=200)
    files = check_files(tmp_path, files_under(tmp_path, "records"), DELIVERY_SCHEMA, TIME)
    broken = tmp_path / "replication-0001.parquet"
    raw = bytearray(broken.read_bytes())
    raw[4:2000] = bytes(1996)
    broken.write_bytes(raw)
    sums = pa.concat_tables([window_sums(w, {}, None) for w in windows_of(files.good)])
    named = [row["name"] for row in sums.to_pylist() if row["kind"] == "unreadable"]
    assert named == [str(broken)]

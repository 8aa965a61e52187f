"""The parts of the federation benchmark that need no processes."""

from pathlib import Path

import pytest

from firedex.lab.benchmarks import Figure, benchmark_names
from firedex.lab.benchmarks.federation import CHORDS, RELAY, RING, DelayRound
from firedex.lab.benchmarks.federation_probes import longest_gap, quantile
from firedex.lab.benchmarks.nats_leaf import measure_nats, nats_is_installed


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)]
)
def test_quantile_is_a_measured_value(fraction: float, expected: float) -> None:
    assert quantile([float(number) for number in range(100, 0, -1)], fraction) == expected


def test_quantile_of_one_value_is_that_value() -> None:
    assert quantile([3.0], 0.5) == quantile([3.0], 0.99) == 3.0


def test_longest_gap_includes_the_time_before_the_first_and_after_the_last_arrival() -> None:
    arrivals = [9.0, 10.5, 10.75, 12.0, 20.0]
    assert longest_gap(arrivals, 10.0, 13.0) == 1.25
    assert longest_gap(arrivals, 10.0, 15.0) == 3.0
    assert longest_gap([], 10.0, 13.0) == 3.0


def test_delay_of_a_hop_is_what_it_adds() -> None:
    found = DelayRound({"a": [1.0, 2.0, 3.0], "b": [2.5, 3.5, 9.0]})
    assert found.added("b", "a", 0.5) == 1.5
    assert found.added("b", "a", 0.99) == 6.0


@pytest.mark.parametrize(
    ("value", "at_least", "meets"),
    [(9.0, False, True), (10.0, False, True), (11.0, False, False), (11.0, True, True),
     (9.0, True, False)],
)  # fmt: skip
def test_figure_is_compared_with_its_aim(value: float, at_least: bool, meets: bool) -> None:
    figure = Figure(what="delay", value=value, unit="ms", aim=10.0, at_least=at_least)
    assert figure.meets_aim is meets


def test_text_of_figure_contains_its_aim() -> None:
    rate = Figure(what="rate", value=15_200.4, unit="events/s", aim=15_000.0, at_least=True)
    assert rate.as_text() == "  rate: 15,200 events/s (aim: at least 15,000: met)"
    missed = Figure(what="delay", value=0.3456, unit="s", aim=0.3)
    assert missed.as_text() == "  delay: 0.346 s (aim: at most 0.3: missed)"
    assert Figure(what="delay", value=2.0, unit="s").as_text() == "  delay: 2 s"


def test_ring_stays_connected_without_its_relay() -> None:
    links = [pair for pair in (*RING, *CHORDS) if RELAY not in pair]
    reached = {"s1"}
    for _ in links:
        reached |= {site for pair in links if reached & set(pair) for site in pair}
    assert reached == {"s1", "s3", "s4", "s5", "s6"}


@pytest.mark.skipif(not nats_is_installed(), reason="nats-server is not installed")
def test_events_cross_to_a_nats_leaf_node(tmp_path: Path) -> None:
    found = measure_nats(tmp_path, delay_events=50, rate_events=500)
    assert found.events_per_second > 0
    assert found.added_p99_seconds > -1


def test_benchmark_of_the_federation_exists() -> None:
    assert "federation" in benchmark_names()

"""The model of independent arrivals, checked against Ciw, an independent queueing simulator.

Streams with different sizes and size distributions share classes. Only drop rates reduce the
traffic, so each stream is an independent Poisson stream in Ciw.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import ciw
import numpy as np
import pytest
from numpy.typing import NDArray

from firedex_models import predict
from tests.models.bottleneck_cases import Bottleneck, CaseSubscription, PublishedTopic, class_means
from tests.models.joint_confidence import Estimate, estimate
from tests.models.replication_seeds import seed_for

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]

LOADS = (0.6, 0.9)
ARRIVALS = {0.6: 6_000, 0.9: 25_000}
"""Evaluated arrivals of one replication. Ciw simulates about 30 000 per second."""
WARM_UP, COOL_DOWN = 0.1, 0.04
"""Additional arrivals before and after the evaluated ones, as a fraction of these."""
PILOT, LONG_PILOT, MAX_REPLICATIONS = 60, 100, 6_000


def _streams(*, exponential: tuple[bool, ...]) -> Bottleneck:
    """Return five topics in three classes; the first topic has two independent streams."""
    sizes, rates = (80, 200, 120, 160, 90), (9.0, 4.0, 8.0, 3.0, 12.0)
    topics = [
        PublishedTopic(name=f"t{v}", rate=rates[v], wire_bytes=sizes[v], exponential=random)
        for v, random in enumerate(exponential)
    ]
    subscriptions = [
        CaseSubscription(
            subscriber=f"n{row}", filter=f"t{v}", topics=(v,), priority=k, drop_rate=drop
        )
        for row, (v, k, drop) in enumerate(
            [(0, 0, 0.0), (1, 0, 0.1), (0, 1, 0.2), (2, 1, 0.0), (3, 2, 0.3), (4, 2, 0.0)]
        )
    ]
    return Bottleneck(topics=topics, subscriptions=subscriptions)


MIXED = _streams(exponential=(True, False, False, True, False))
LONG_CASES = {
    "fixed sizes": _streams(exponential=(False,) * 5),
    "exponential sizes": _streams(exponential=(True,) * 5),
    "fixed and exponential sizes": MIXED,
}


@pytest.mark.parametrize(
    "load", [pytest.param(load, marks=pytest.mark.long if load > 0.8 else ()) for load in LOADS]
)
def test_class_means_agree_with_ciw(load: float) -> None:
    case = MIXED.at_load(load)
    replicate = partial(_replicate, "mixed", load, case)
    result = estimate(
        lambda numbers: np.array(list(map(replicate, numbers))),
        comparisons=len(LOADS) * case.classes,
        relative_half_width=0.05,
        pilot=PILOT,
        max_replications=MAX_REPLICATIONS,
    )
    _check(f"mixed at {load}", case, result, tolerance=0.05)


@pytest.mark.long
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", LONG_CASES)
def test_class_means_agree_with_ciw_to_2_percent(name: str, load: float) -> None:
    case = LONG_CASES[name].at_load(load)
    replicate = partial(_replicate, f"long {name}", load, case)
    # Use "spawn", because "fork" is not safe if the test process has threads.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        result = estimate(
            lambda numbers: np.array(list(pool.map(replicate, numbers, chunksize=4))),
            comparisons=len(LONG_CASES) * len(LOADS) * case.classes,
            relative_half_width=0.02,
            pilot=LONG_PILOT,
            max_replications=MAX_REPLICATIONS,
        )
    _check(f"{name} at {load}", case, result, tolerance=0.02)


def _check(label: str, case: Bottleneck, result: Estimate, *, tolerance: float) -> None:
    predicted = class_means(predict(case.scenario(), model="independent"))
    error = result.relative_error(predicted)
    print(
        f"{label}: {result.replications} replications; error {np.round(error, 4)}, "
        f"half-width {np.round(result.half_width / result.mean, 4)}"
    )
    assert (result.error_beyond_interval(predicted) <= tolerance).all(), error


def _replicate(label: str, load: float, case: Bottleneck, number: int) -> Floats:
    """Return the mean delay of each class in one run of Ciw."""
    streams = {f"stream {row}": stream for row, stream in enumerate(case.streams)}
    rate = {name: stream.rate * stream.survival for name, stream in streams.items()}
    service = {name: stream.wire_bytes / case.bytes_per_second for name, stream in streams.items()}
    network = ciw.create_network(
        arrival_distributions={name: [ciw.dists.Exponential(rate[name])] for name in streams},
        service_distributions={
            name: [
                ciw.dists.Exponential(1 / service[name])
                if case.topics[stream.topic].exponential
                else ciw.dists.Deterministic(service[name])
            ]
            for name, stream in streams.items()
        },
        priority_classes={name: stream.priority for name, stream in streams.items()},
        number_of_servers=[1],
    )
    mean_gap = 1 / sum(rate.values())
    begin, end = WARM_UP * ARRIVALS[load] * mean_gap, (1 + WARM_UP) * ARRIVALS[load] * mean_gap
    ciw.seed(int(seed_for(f"ciw {label} at {load}", number).generate_state(1)[0]))
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(end + COOL_DOWN * ARRIVALS[load] * mean_gap)
    total, count = np.zeros(case.classes), np.zeros(case.classes)
    for record in simulation.get_all_records():
        if begin < record.arrival_date < end:
            priority = streams[record.customer_class].priority
            total[priority] += record.exit_date - record.arrival_date
            count[priority] += 1
    return total / count

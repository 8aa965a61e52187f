"""The model of independent arrivals against Ciw, a queueing simulator that nobody here wrote.

Streams of different sizes and kinds of size share classes; within the model nothing is thinned but
by drop rates, so that each stream is to Ciw a Poisson stream of its own.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import ciw
import numpy as np
import pytest
from bottleneck_cases import Bottleneck, PublishedTopic, Wanted, class_means
from joint_confidence import Estimate, estimate
from numpy.typing import NDArray
from replication_seeds import seed_for

from firedex_models import predict

Floats = NDArray[np.float64]

LOADS = (0.6, 0.9)
ARRIVALS = {0.6: 6_000, 0.9: 25_000}
"""Looked at in one replication. Ciw handles some 30 000 a second."""
WARM_UP, COOL_DOWN = 0.1, 0.04
"""Arrivals before and after, as a share: some 400 at a load of 0.9, 25 at 0.6, are forgotten."""
PILOT, LONG_PILOT, MOST = 60, 100, 6_000


def _streams(*, exponential: tuple[bool, ...]) -> Bottleneck:
    """Five topics in three classes; the first is heard by two, as independent streams."""
    sizes, rates = (80, 200, 120, 160, 90), (9.0, 4.0, 8.0, 3.0, 12.0)
    topics = [
        PublishedTopic(name=f"t{v}", rate=rates[v], wire_bytes=sizes[v], exponential=random)
        for v, random in enumerate(exponential)
    ]
    wanted = [
        Wanted(subscriber=f"n{row}", filter=f"t{v}", topics=(v,), priority=k, drop_rate=drop)
        for row, (v, k, drop) in enumerate(
            [(0, 0, 0.0), (1, 0, 0.1), (0, 1, 0.2), (2, 1, 0.0), (3, 2, 0.3), (4, 2, 0.0)]
        )
    ]
    return Bottleneck(topics=topics, wanted=wanted)


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
    one = partial(_replicate, "mixed", load, case)
    found = estimate(
        lambda numbers: np.array(list(map(one, numbers))),
        comparisons=len(LOADS) * case.classes,
        relative_half_width=0.05,
        pilot=PILOT,
        most=MOST,
    )
    _check(f"mixed at {load}", case, found, may_differ=0.05)


@pytest.mark.long
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", LONG_CASES)
def test_class_means_agree_with_ciw_to_2_percent(name: str, load: float) -> None:
    case = LONG_CASES[name].at_load(load)
    one = partial(_replicate, f"long {name}", load, case)
    # Spawned, not forked: a test run may have threads by now.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = estimate(
            lambda numbers: np.array(list(pool.map(one, numbers, chunksize=4))),
            comparisons=len(LONG_CASES) * len(LOADS) * case.classes,
            relative_half_width=0.02,
            pilot=LONG_PILOT,
            most=MOST,
        )
    _check(f"{name} at {load}", case, found, may_differ=0.02)


def _check(label: str, case: Bottleneck, found: Estimate, *, may_differ: float) -> None:
    predicted = class_means(predict(case.scenario(), model="independent"))
    error = found.error_of(predicted)
    print(
        f"{label}: {found.replications} replications; error {np.round(error, 4)}, "
        f"half-width {np.round(found.half_width / found.mean, 4)}"
    )
    assert (found.excess_of(predicted) <= may_differ).all(), error


def _replicate(label: str, load: float, case: Bottleneck, number: int) -> Floats:
    """Mean delay of each class in one run of Ciw."""
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
    second = 1 / sum(rate.values())
    begin, end = WARM_UP * ARRIVALS[load] * second, (1 + WARM_UP) * ARRIVALS[load] * second
    ciw.seed(int(seed_for(f"ciw {label} at {load}", number).generate_state(1)[0]))
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(end + COOL_DOWN * ARRIVALS[load] * second)
    total, count = np.zeros(case.classes), np.zeros(case.classes)
    for record in simulation.get_all_records():
        if begin < record.arrival_date < end:
            priority = streams[record.customer_class].priority
            total[priority] += record.exit_date - record.arrival_date
            count[priority] += 1
    return total / count

"""How fast the simulator is beside the libraries that people use, and on the paper's own run.

The same workload for all: Poisson arrivals of three classes with sizes of their own, exponential,
at one non-preemptive priority server that is busy 80 % of the time. An event is a customer served.
"""

import json
import random
import subprocess
import sys
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.benchmarks.timing import seconds_by_round
from firedex.wire import Switch
from firedex_models.network_hops import Hop, Route
from firedex_models.simulation.batch import Batch
from firedex_models.simulation.links import Crossing, Traveller
from firedex_models.simulation.publications import Clock, Sources
from firedex_models.simulation.replication import PUBLICATIONS_OF_A_SLICE

__all__ = ["simulate_speed"]

Floats = NDArray[np.float64]
RATES = (0.2, 0.3, 0.3)
SERVICES = (0.5, 1.0, 4 / 3)
CUSTOMERS, CIW_CUSTOMERS, SIMPY_CUSTOMERS = 5_000_000, 20_000, 50_000
"""About half a second of each, so that noise hits all three alike."""
ROUNDS = 15
PAPER_PROGRAM = """
import json, resource, time
from firedex.planning import plan_scenario
from firedex.table_2 import Table2
from firedex_models.simulation import SimulationSettings, simulate
planned = plan_scenario(Table2().scenario(), drop_policy="none").planned
simulate(planned, SimulationSettings(replications=1, publications=1000))
start = time.perf_counter()
summary = simulate(planned, SimulationSettings(replications=1, publications=6_500_000))
seconds = time.perf_counter() - start
print(json.dumps({
    "seconds": seconds,
    "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "notifications": summary.tallies[0].notifications,
}))
"""


def simulate_speed(report: Report) -> BenchmarkResult:
    """Events a second against Ciw and SimPy; a run of the paper's length against 60 s and 3 GB."""
    speeds = _speeds(report)
    report("simulate: 6.5 million publications of Table 2 with a full buffer")
    ran = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PAPER_PROGRAM], capture_output=True, text=True, check=True
    )
    paper = json.loads(ran.stdout)
    said = f"{paper['notifications'] / 1e6:.0f} million notifications"
    return BenchmarkResult(
        name="simulate",
        comparisons=(
            _against("Ciw", speeds[:, 1], speeds[:, 0], 100),
            _against("SimPy", speeds[:, 2], speeds[:, 0], 50),
            Comparison(
                what="Table 2, 6.5 million publications, fan-out, buffer of 2000, on one core",
                left=said,
                left_value=paper["seconds"],
                right="the bar",
                right_value=60.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="its memory",
                left=said,
                left_value=paper["bytes"] / 1e9,
                right="the bar",
                right_value=3.0,
                unit="GB",
                at_most=1.0,
            ),
        ),
    )


def _speeds(report: Report) -> Floats:
    """Customers in a second: a row for each round, columns for this simulator, Ciw and SimPy."""
    report("simulate: this simulator, Ciw and SimPy in turns")
    for work in (_ours, _ciw, _simpy):  # compile, import
        work(1_000)
    seconds = []
    for spent in seconds_by_round(
        ROUNDS,
        lambda: _ours(CUSTOMERS),
        lambda: _ciw(CIW_CUSTOMERS),
        lambda: _simpy(SIMPY_CUSTOMERS),
    ):
        seconds.append(spent)
        report(f"simulate: this simulator, Ciw and SimPy in turns, {len(seconds)} of {ROUNDS}")
    customers = np.array([CUSTOMERS, CIW_CUSTOMERS, SIMPY_CUSTOMERS], dtype=float)
    speeds: Floats = customers / np.array(seconds)
    return speeds


def _against(name: str, theirs: Floats, mine: Floats, times: int) -> Comparison:
    return Comparison(
        what=f"customers served in a second at a priority server, {times} times as many as {name}",
        left=name,
        left_value=median(theirs.tolist()),
        right="this simulator",
        right_value=median(mine.tolist()),
        unit="1/s",
        at_most=1 / times,
        rounds=tuple((theirs / mine).tolist()),
    )


def _ours(customers: int) -> float:
    """The mean time in the system of the lowest class."""
    generator = np.random.default_rng(1)
    count = len(RATES)
    hop = Hop(
        name="server",
        switch=Switch(id="server", bandwidth_bits_per_second=8.0),
        bandwidth_bits_per_second=8.0,
    )
    route = Route(hops=[hop], stage=np.zeros((count, 1), dtype=np.int64))
    sources = Sources(
        publisher=np.zeros(count, dtype=np.int64),
        topic=np.arange(count),
        rate=np.array(RATES),
        periodic=np.zeros(count, dtype=bool),
        wire_bytes=np.array(SERVICES),
        exponential=np.ones(count, dtype=bool),
        route=route,
    )
    clock = Clock(sources, generator)
    server = Crossing(
        route,
        Traveller(np.arange(count), np.arange(count), np.array(SERVICES), np.array(RATES)),
        generator,
    )
    duration = customers / sum(RATES)
    slices = max(customers // PUBLICATIONS_OF_A_SLICE, 1)
    total, served = 0.0, 0
    for number in range(slices + 1):
        last = number == slices
        end = np.inf if last else duration * (number + 1) / slices
        came = Batch.empty() if last else clock.publish(duration * number / slices, end)
        done = server.feed(came, end)
        lowest = done.key == count - 1
        total += float((done.time - done.published)[lowest].sum())
        served += int(lowest.sum())
    return total / served


def _ciw(customers: int) -> float:
    ciw: Any = import_module("ciw")
    classes = {f"class {k}": k for k in range(len(RATES))}
    network = ciw.create_network(
        arrival_distributions={
            name: [ciw.dists.Exponential(RATES[k])] for name, k in classes.items()
        },
        service_distributions={
            name: [ciw.dists.Exponential(1 / SERVICES[k])] for name, k in classes.items()
        },
        number_of_servers=[1],
        priority_classes=classes,
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(customers / sum(RATES))
    records = simulation.get_all_records()
    lowest = [r.exit_date - r.arrival_date for r in records if r.customer_class == "class 2"]
    return float(np.mean(lowest))


def _simpy(customers: int) -> float:
    simpy: Any = import_module("simpy")
    draw = random.Random(1).expovariate  # noqa: S311  # one at a time quicker than NumPy's
    environment = simpy.Environment()
    server = simpy.PriorityResource(environment, capacity=1)
    times: list[float] = []

    def customer(k: int) -> Any:
        arrived = environment.now
        with server.request(priority=k) as turn:
            yield turn
            yield environment.timeout(draw(1 / SERVICES[k]))
        if k == len(RATES) - 1:
            times.append(environment.now - arrived)

    def source(k: int) -> Any:
        while True:
            yield environment.timeout(draw(RATES[k]))
            environment.process(customer(k))

    for k in range(len(RATES)):
        environment.process(source(k))
    environment.run(until=customers / sum(RATES))
    return float(np.mean(times))

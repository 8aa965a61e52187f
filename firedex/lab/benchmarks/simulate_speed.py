"""Speed of the simulator compared with Ciw and SimPy, and its time for a long run.

All three simulate the same workload: Poisson arrivals of three classes with different exponential
service times at one non-preemptive priority server with a load of 80 %.
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

from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report, seconds_by_round
from firedex.wire import Switch
from firedex_models.routes import Hop, Route
from firedex_models.simulation.batch import Batch
from firedex_models.simulation.links import NetworkPath, StreamProperties
from firedex_models.simulation.publications import PublicationGenerator, Sources
from firedex_models.simulation.replication import PUBLICATIONS_PER_SLICE

__all__ = ["simulate_speed"]

Floats = NDArray[np.float64]
RATES = (0.2, 0.3, 0.3)
SERVICES = (0.5, 1.0, 4 / 3)
CUSTOMERS, CIW_CUSTOMERS, SIMPY_CUSTOMERS = 5_000_000, 20_000, 50_000
"""About half a second for each simulator, so that noise affects all three equally."""
ROUNDS = 15
PAPER_PROGRAM = """
import json, resource, time
from firedex.planning import plan_scenario
from firedex.scenario.table_2 import Table2
from firedex_models.simulation import SimulationSettings, simulate
planned = plan_scenario(Table2().scenario(), drop_policy="none").planned_scenario
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
    """Compare customers per second with Ciw and SimPy, and a long run with 60 s and 3 GB."""
    speeds = _speeds(report)
    report("simulate: 6.5 million publications of Table 2 with a full buffer")
    finished = subprocess.run(  # a program of this project
        [sys.executable, "-c", PAPER_PROGRAM], capture_output=True, text=True, check=True
    )
    paper = json.loads(finished.stdout)
    simulated = f"{paper['notifications'] / 1e6:.0f} million notifications"
    return BenchmarkResult(
        name="simulate",
        comparisons=(
            _compare_with("Ciw", speeds[:, 1], speeds[:, 0], 100),
            _compare_with("SimPy", speeds[:, 2], speeds[:, 0], 50),
            Comparison(
                what="Table 2, 6.5 million publications, fan-out, buffer of 2000, on one core",
                left=simulated,
                left_value=paper["seconds"],
                right="limit",
                right_value=60.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="memory of that run",
                left=simulated,
                left_value=paper["bytes"] / 1e9,
                right="limit",
                right_value=3.0,
                unit="GB",
                at_most=1.0,
            ),
        ),
    )


def _speeds(report: Report) -> Floats:
    """Return customers per second: one row per round; columns for this simulator, Ciw and SimPy."""
    report("simulate: this simulator, Ciw and SimPy in turns")
    for work in (
        _simulate_here,
        _simulate_with_ciw,
        _simulate_with_simpy,
    ):  # compile and import before timing
        work(1_000)
    seconds = []
    for round_seconds in seconds_by_round(
        ROUNDS,
        lambda: _simulate_here(CUSTOMERS),
        lambda: _simulate_with_ciw(CIW_CUSTOMERS),
        lambda: _simulate_with_simpy(SIMPY_CUSTOMERS),
    ):
        seconds.append(round_seconds)
        report(f"simulate: this simulator, Ciw and SimPy in turns, {len(seconds)} of {ROUNDS}")
    customers = np.array([CUSTOMERS, CIW_CUSTOMERS, SIMPY_CUSTOMERS], dtype=float)
    speeds: Floats = customers / np.array(seconds)
    return speeds


def _compare_with(name: str, other_speeds: Floats, own_speeds: Floats, times: int) -> Comparison:
    return Comparison(
        what=f"customers per second at a priority server, at least {times} times those of {name}",
        left=name,
        left_value=median(other_speeds.tolist()),
        right="this simulator",
        right_value=median(own_speeds.tolist()),
        unit="1/s",
        at_most=1 / times,
        rounds=tuple((other_speeds / own_speeds).tolist()),
    )


def _simulate_here(customers: int) -> float:
    """Return the mean time in the system of the lowest class."""
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
    publications = PublicationGenerator(sources, generator)
    server = NetworkPath(
        route,
        StreamProperties(np.arange(count), np.arange(count), np.array(SERVICES), np.array(RATES)),
        generator,
    )
    duration = customers / sum(RATES)
    slices = max(customers // PUBLICATIONS_PER_SLICE, 1)
    total, served = 0.0, 0
    for number in range(slices + 1):
        last = number == slices
        end = np.inf if last else duration * (number + 1) / slices
        arrivals = Batch.empty() if last else publications.publish(duration * number / slices, end)
        done = server.forward(arrivals, end)
        lowest = done.key == count - 1
        total += float((done.time - done.published)[lowest].sum())
        served += int(lowest.sum())
    return total / served


def _simulate_with_ciw(customers: int) -> float:
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


def _simulate_with_simpy(customers: int) -> float:
    simpy: Any = import_module("simpy")
    draw = random.Random(1).expovariate  # noqa: S311  # faster than NumPy for single numbers
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

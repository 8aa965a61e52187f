"""How fast the simulator is beside the libraries that people use, and on the paper's own run.

The same workload for all: Poisson arrivals of three classes with sizes of their own, exponential,
at one non-preemptive priority server that is busy 80 % of the time. An event is a customer served.
"""

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

import numpy as np

from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.benchmarks.timing import best_seconds
from firedex.wire import Switch
from firedex_models.network_hops import Hop, Route
from firedex_models.simulation.batch import Batch
from firedex_models.simulation.links import Crossing, Traveller
from firedex_models.simulation.publications import Clock, Sources

__all__ = ["simulate_speed"]

RATES = (0.2, 0.3, 0.3)
SERVICES = (0.5, 1.0, 4 / 3)
CUSTOMERS, CIW_CUSTOMERS, SIMPY_CUSTOMERS = 2_000_000, 20_000, 50_000
SLICE = 100_000
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
    _ours(10_000)
    report("simulate: ours")
    mine = CUSTOMERS / best_seconds(lambda: _ours(CUSTOMERS), 3)
    report("simulate: Ciw")
    ciw = CIW_CUSTOMERS / best_seconds(lambda: _ciw(CIW_CUSTOMERS), 2)
    report("simulate: SimPy")
    simpy = SIMPY_CUSTOMERS / best_seconds(lambda: _simpy(SIMPY_CUSTOMERS), 2)
    report("simulate: 6.5 million publications of Table 2 with a full buffer")
    ran = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PAPER_PROGRAM], capture_output=True, text=True, check=True
    )
    paper = json.loads(ran.stdout)
    said = f"{paper['notifications'] / 1e6:.0f} million notifications"
    return BenchmarkResult(
        name="simulate",
        comparisons=(
            _against("Ciw", ciw, mine, 100),
            _against("SimPy", simpy, mine, 50),
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


def _against(name: str, theirs: float, mine: float, times: int) -> Comparison:
    return Comparison(
        what=f"customers served in a second at a priority server, {times} times as many as {name}",
        left=name,
        left_value=theirs,
        right="this simulator",
        right_value=mine,
        unit="1/s",
        at_most=1 / times,
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
    slices = max(customers // SLICE, 1)
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
    generator = np.random.default_rng(1)
    environment = simpy.Environment()
    server = simpy.PriorityResource(environment, capacity=1)
    times: list[float] = []

    def customer(k: int) -> Any:
        arrived = environment.now
        with server.request(priority=k) as turn:
            yield turn
            yield environment.timeout(generator.exponential(SERVICES[k]))
        if k == len(RATES) - 1:
            times.append(environment.now - arrived)

    def source(k: int) -> Any:
        while True:
            yield environment.timeout(generator.exponential(1 / RATES[k]))
            environment.process(customer(k))

    for k in range(len(RATES)):
        environment.process(source(k))
    environment.run(until=customers / sum(RATES))
    return float(np.mean(times))

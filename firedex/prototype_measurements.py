"""The recorded experiments of the paper authors' own prototype, predicted and compared.

Reads the recordings (one CSV row for each subscription: subscriber, topic, flow's port, utility
weight, priority from 1, drop rate, events sent, events received, mean delay in ms; the bandwidth in
KB/s in a text file beside it), writes them as scenarios, and puts prediction beside measurement.
"""

import csv
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from firedex.wire import ModelName, Scenario, Switch, from_plain
from firedex_models import predict

__all__ = [
    "Comparison",
    "Experiment",
    "MeasurementsError",
    "compare",
    "read_experiments",
    "scenario_of",
]

LEAST_COMPARED = 2
"""The highest class is the prototype's host time as much as its queue; comparisons begin here."""
HTB_BURST_BYTES = 1000
HTB_LEAF_BITS_PER_SECOND = 12_000
HOST_SECONDS = 0.001


class MeasurementsError(Exception):
    """Recordings that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One subscription as recorded."""

    subscriber: str
    topic: str
    flow: int
    weight: float
    priority: int
    drop_rate: float
    received: int
    delay_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One recorded run."""

    name: str
    bandwidth_bits_per_second: int
    rows: tuple[Row, ...]

    def measured_delays(self) -> dict[int, float]:
        """Mean delay of each class, weighted by events received."""
        delays: dict[int, float] = {}
        for priority in sorted({row.priority for row in self.rows}):
            members = [row for row in self.rows if row.priority == priority]
            received = sum(row.received for row in members)
            delays[priority] = sum(r.received * r.delay_seconds for r in members) / received
        return delays


def read_experiments(folder: Path) -> list[Experiment]:
    """All recordings in ``folder``, in the order of their names."""
    files = sorted(folder.glob("prototype_experiment_*.csv"))
    if not files:
        raise MeasurementsError(f"no prototype_experiment_*.csv in {folder}")
    return [_read(path) for path in files]


def _read(path: Path) -> Experiment:
    stated = re.search(r"Bandwidth:\s*(\d+)\s*KB", path.with_suffix(".txt").read_text("utf-8"))
    if stated is None:
        raise MeasurementsError(f"{path.with_suffix('.txt')}: no line 'Bandwidth: … KB'")
    rows = []
    with path.open(encoding="utf-8", newline="") as lines:
        for line, cells in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
            try:
                subscriber, topic, port, weight, priority, drop, _sent, received, delay = cells
                rows.append(
                    Row(
                        subscriber=subscriber,
                        topic=topic,
                        flow=int(port) % 10_000,
                        weight=float(weight),
                        priority=int(priority),
                        drop_rate=float(drop),
                        received=int(received),
                        delay_seconds=float(delay) / 1000,
                    )
                )
            except ValueError as error:
                raise MeasurementsError(f"{path} line {line}: {error}") from error
    heard = {row.priority for row in rows if row.received}
    for silent in {row.priority for row in rows} - heard:
        raise MeasurementsError(f"{path}: nothing was received in class {silent}")
    return Experiment(
        name=path.stem.removeprefix("prototype_"),
        bandwidth_bits_per_second=int(stated.group(1)) * 1024 * 8,
        rows=tuple(rows),
    )


def scenario_of(experiment: Experiment) -> Scenario:
    """The experiment as a scenario: MQTT-SN, 51-byte events at 10/s, a plain link, no host time."""
    doubled = [
        key
        for key, count in Counter((r.subscriber, r.topic) for r in experiment.rows).items()
        if count > 1
    ]
    if doubled:
        raise MeasurementsError(
            f"{experiment.name}: {doubled[0][1]!r} of {doubled[0][0]!r} is recorded twice"
        )
    topics = sorted({row.topic for row in experiment.rows})
    subscribers = sorted({row.subscriber for row in experiment.rows}, key=lambda s: (len(s), s))
    return from_plain(
        Scenario,
        {
            "name": f"prototype {experiment.name}",
            "topics": [{"name": topic, "event_bytes": 51} for topic in topics],
            "publishers": [
                {
                    "id": "pub0",
                    "switch": "s0",
                    "publications": [{"topic": t, "rate_per_second": 10} for t in topics],
                }
            ],
            "subscribers": [
                {
                    "id": subscriber,
                    "switch": "s1",
                    "subscriptions": [
                        {"filter": row.topic, "utility": {"kind": "log", "weight": row.weight}}
                        for row in experiment.rows
                        if row.subscriber == subscriber
                    ],
                }
                for subscriber in subscribers
            ],
            "network": {
                "switches": [
                    {"id": "s0", "managed": False, "bandwidth_bits_per_second": 100_000_000},
                    {
                        "id": "s1",
                        "bandwidth_bits_per_second": experiment.bandwidth_bits_per_second,
                    },
                ],
                "broker": {"id": "b1"},
            },
            "assignment": [
                {
                    "subscriber": row.subscriber,
                    "filter": row.topic,
                    "flow": row.flow,
                    "priority": row.priority,
                    "drop_rate": row.drop_rate,
                }
                for row in experiment.rows
            ],
        },
    )


def with_htb(scenario: Scenario) -> Scenario:
    """The same with what the prototype's shaper and hosts add (recorded with the measurements)."""

    def shaped(switch: Switch) -> Switch:
        if not switch.managed:
            return switch
        return replace(
            switch,
            burst_bytes=HTB_BURST_BYTES,
            guaranteed_bits_per_second=HTB_LEAF_BITS_PER_SECOND,
            propagation_seconds=HOST_SECONDS,
        )

    switches = tuple(shaped(switch) for switch in scenario.network.switches)
    return replace(scenario, network=replace(scenario.network, switches=switches))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Delays of one experiment by class, in seconds: measured, and as each model predicts them."""

    experiment: str
    measured: dict[int, float]
    predicted: dict[str, dict[int, float | None]]

    def errors(self, way: str) -> dict[int, float]:
        """Relative error of each compared class."""
        predicted = self.predicted[way]
        return {
            priority: said / delay - 1
            for priority, delay in self.measured.items()
            if priority >= LEAST_COMPARED
            and delay > 0
            and (said := predicted[priority]) is not None
        }

    def median_error(self, way: str) -> float:
        """Median of the absolute relative errors; NaN where nothing can be compared."""
        errors = [abs(error) for error in self.errors(way).values()]
        return median(errors) if errors else float("nan")


def compare(experiment: Experiment) -> Comparison:
    """Measured against the fan-out model on a plain and on an HTB link, and the independent one."""
    plain = scenario_of(experiment)
    ways: dict[str, tuple[Scenario, ModelName]] = {
        "fan-out": (plain, "fan-out"),
        "fan-out, HTB": (with_htb(plain), "fan-out"),
        "independent": (plain, "independent"),
    }
    return Comparison(
        experiment=experiment.name,
        measured=experiment.measured_delays(),
        predicted={
            way: {
                row.priority: row.delay_mean_seconds
                for row in predict(scenario, model=model).classes()
            }
            for way, (scenario, model) in ways.items()
        },
    )

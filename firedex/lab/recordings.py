"""Recorded experiments of the paper authors' prototype, compared with predictions.

A recording is a CSV file with one row for each subscription (subscriber, topic, port of the flow,
utility weight, priority from 1, drop rate, events sent, events received, mean delay in ms) and a
text file with the bandwidth in KB/s.
"""

import csv
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.markup import escape

from firedex.cli.options import json_option
from firedex.cli.output import as_json_text, console, delay_text, fail, new_table, write_scenario
from firedex.wire import ModelName, Scenario, Switch, WireError, from_plain
from firedex_models import predict

__all__ = [
    "Comparison",
    "Experiment",
    "MeasurementsError",
    "compare",
    "measurements",
    "read_experiments",
    "scenario_from_experiment",
]

FIRST_COMPARED_CLASS = 2
"""The delay of the highest class is mostly host time of the prototype, so it is not compared."""
HTB_BURST_BYTES = 1000
HTB_LEAF_BITS_PER_SECOND = 12_000
HOST_SECONDS = 0.001


class MeasurementsError(Exception):
    """A recording cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One recorded subscription."""

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
        """Return the mean delay of each class, weighted by events received."""
        delays: dict[int, float] = {}
        for priority in sorted({row.priority for row in self.rows}):
            members = [row for row in self.rows if row.priority == priority]
            received = sum(row.received for row in members)
            delays[priority] = sum(r.received * r.delay_seconds for r in members) / received
        return delays


def read_experiments(folder: Path) -> list[Experiment]:
    """Read all recordings in ``folder``, in the order of their names."""
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
    delivered = {row.priority for row in rows if row.received}
    for silent in {row.priority for row in rows} - delivered:
        raise MeasurementsError(f"{path}: no event was received in class {silent}")
    return Experiment(
        name=path.stem.removeprefix("prototype_"),
        bandwidth_bits_per_second=int(stated.group(1)) * 1024 * 8,
        rows=tuple(rows),
    )


def scenario_from_experiment(experiment: Experiment) -> Scenario:
    """Return the experiment as a scenario: MQTT-SN, 51-byte events at 10/s, a link without HTB."""
    duplicates = [
        key
        for key, count in Counter((r.subscriber, r.topic) for r in experiment.rows).items()
        if count > 1
    ]
    if duplicates:
        raise MeasurementsError(
            f"{experiment.name}: {duplicates[0][1]!r} of {duplicates[0][0]!r} is recorded twice"
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
    """Return the scenario with the HTB parameters and the host time of the prototype."""

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
    """Delays of one experiment by class in seconds: measured, and predicted by each model."""

    experiment: str
    measured: dict[int, float]
    predicted: dict[str, dict[int, float | None]]

    def errors(self, model: str) -> dict[int, float]:
        """Return the relative error of each compared class."""
        predicted = self.predicted[model]
        return {
            priority: prediction / delay - 1
            for priority, delay in self.measured.items()
            if priority >= FIRST_COMPARED_CLASS
            and delay > 0
            and (prediction := predicted[priority]) is not None
        }

    def median_error(self, model: str) -> float:
        """Return the median of the absolute relative errors; NaN if no class can be compared."""
        errors = [abs(error) for error in self.errors(model).values()]
        return median(errors) if errors else float("nan")


def compare(experiment: Experiment) -> Comparison:
    """Compare an experiment with the fan-out model (also with HTB) and the independent model."""
    plain = scenario_from_experiment(experiment)
    models: dict[str, tuple[Scenario, ModelName]] = {
        "fan-out": (plain, "fan-out"),
        "fan-out, HTB": (with_htb(plain), "fan-out"),
        "independent": (plain, "independent"),
    }
    return Comparison(
        experiment=experiment.name,
        measured=experiment.measured_delays(),
        predicted={
            name: {
                row.priority: row.delay_mean_seconds
                for row in predict(scenario, model=model).classes()
            }
            for name, (scenario, model) in models.items()
        },
    )


@click.command(
    epilog="Example: firedex measurements ../shared/reference",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--scenarios",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write two scenarios of each experiment to this folder: without and with HTB.",
)
@json_option
def measurements(folder: Path, scenarios: Path | None, json: bool) -> None:
    """Compare recorded delays of the paper authors' prototype with predictions.

    FOLDER contains the recordings (prototype_experiment_*.csv and .txt). Their classes are numbered
    from 1; errors are stated for class 2 and above.
    """
    try:
        experiments = read_experiments(folder)
        comparisons = [compare(experiment) for experiment in experiments]
        if scenarios is not None:
            scenarios.mkdir(parents=True, exist_ok=True)
        for experiment in experiments if scenarios else ():
            plain = scenario_from_experiment(experiment)
            for name, variant in (("", plain), ("-htb", with_htb(plain))):
                target = Path(scenarios or ".") / f"{experiment.name}{name}.yaml"
                write_scenario(variant, target)
    except (MeasurementsError, WireError, OSError) as error:
        fail(str(error))
    if json:
        click.echo(as_json_text([asdict(comparison) for comparison in comparisons]))
        return
    for comparison in comparisons:
        show_comparison(console(), comparison)


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print measured and predicted delays of one recorded experiment."""
    table = new_table(escape(comparison.experiment))
    table.add_column("class", justify="right")
    table.add_column("measured", justify="right")
    for model in comparison.predicted:
        table.add_column(model, justify="right")
    for priority, delay in comparison.measured.items():
        cells = [str(priority), delay_text(delay)]
        for model, predicted in comparison.predicted.items():
            error = comparison.errors(model).get(priority)
            relative = "" if error is None else f" ({error:+.0%})"
            cells.append(f"{delay_text(predicted[priority])}{relative}")
        table.add_row(*cells)
    table.add_section()
    medians = [f"{comparison.median_error(model):.1%}" for model in comparison.predicted]
    table.add_row("median", "error", *medians)
    console.print(table)

"""``firedex simulate``: plan if nobody has, simulate elsewhere, show."""

import os
import sys
from pathlib import Path
from typing import get_args

import click
from rich.console import Console
from rich.progress import Progress

from firedex.cli.options import SEED, all_option, json_option, read_or_fail, scenario_argument
from firedex.cli.output import console, fail
from firedex.cli.simulation_tables import show_simulation
from firedex.planning import PlanningError, plan_scenario
from firedex.simulation_records import RecordFiles
from firedex.wire import Scenario, to_json
from firedex_models import predict
from firedex_models.simulation import Arrivals, SimulationSettings, report_of
from firedex_models.simulation import simulate as simulate_scenario

__all__ = ["simulate"]


@click.command(
    short_help="Simulate an assignment, event by event.",
    epilog="Example: firedex simulate builtin:high-rise --replications 10 --records records",
)
@scenario_argument
@click.option(
    "--replications",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Runs with random numbers of their own; two at least for confidence intervals.",
)
@click.option(
    "--publications",
    type=click.IntRange(1, 50_000_000),
    default=100_000,
    show_default=True,
    help="About how many in each replication.",
)
@click.option(
    "--arrivals",
    type=click.Choice(get_args(Arrivals)),
    default="fan-out",
    show_default=True,
    help="Do packets of one publication reach a link together, or streams independently?",
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Replications side by side.",
)
@click.option(
    "--records",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write every notification here as Parquet, a file for each replication.",
)
@all_option
@json_option
def simulate(
    scenario: str,
    replications: int,
    publications: int,
    arrivals: Arrivals,
    seed: int,
    workers: int,
    records: Path | None,
    all: bool,  # noqa: A002  # its option's name
    json: bool,
) -> None:
    """Simulate the scenario's assignment event by event, or plan first if it has none.

    The first tenth of the time and the last fiftieth are not looked at. Every notification is
    accounted for.
    """
    if records is not None and arrivals == "independent":
        raise click.UsageError("--records are of real arrivals: not with --arrivals independent")
    wanted = read_or_fail(scenario)
    settings = SimulationSettings(
        replications=replications,
        publications=publications,
        arrivals=arrivals,
        seed=seed,
        workers=workers,
    )
    keep = None
    if records is not None:
        keep = RecordFiles(folder=records, run=f"simulation-{seed}")
        if problem := keep.prepare():
            fail(f"--records: {problem}")
    wanted = _assigned(wanted)
    with Progress(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("simulating", total=replications)
        summary = simulate_scenario(
            wanted,
            settings,
            progress=lambda done, _of: bar.update(task, completed=done),
            keep=keep,
        )
    report = report_of(summary)
    if json:
        click.echo(to_json(report, indent=2))
        return
    # what is assumed of arrivals has the same name in both
    prediction = predict(wanted, model=arrivals).to_prediction()
    show_simulation(console(), wanted.name, report, prediction, everything=all)


def _assigned(scenario: Scenario) -> Scenario:
    if scenario.assignment is not None:
        return scenario
    click.echo(f"planning first, drop rates {scenario.planning.drop_policy}", err=True)
    try:
        return plan_scenario(scenario).planned
    except PlanningError as error:
        fail(str(error))

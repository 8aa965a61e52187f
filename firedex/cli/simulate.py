"""``firedex simulate``."""

import os
import sys
from pathlib import Path
from typing import get_args

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from firedex.cli.options import (
    SEED,
    all_option,
    json_option,
    read_scenario_or_exit,
    scenario_argument,
)
from firedex.cli.output import console, delay_text, fail, new_table
from firedex.cli.simulation_records import RecordFiles
from firedex.planning import PlanningError, plan_scenario
from firedex.wire import (
    ClassPrediction,
    Prediction,
    Scenario,
    SimulatedClass,
    SimulatedSubscription,
    SimulationReport,
    SubscriptionPrediction,
    to_json,
)
from firedex_models import predict
from firedex_models.simulation import Arrivals, SimulationSettings, simulation_report
from firedex_models.simulation import simulate as simulate_scenario

__all__ = ["show_simulation", "simulate"]


@click.command(
    epilog="Example: firedex simulate builtin:high-rise --replications 10 --records records",
)
@scenario_argument
@click.option(
    "--replications",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Number of independent runs; confidence intervals need at least two.",
)
@click.option(
    "--publications",
    type=click.IntRange(1, 50_000_000),
    default=100_000,
    show_default=True,
    help="Approximate number of publications in each replication.",
)
@click.option(
    "--arrivals",
    type=click.Choice(get_args(Arrivals)),
    default="fan-out",
    show_default=True,
    help="How packets arrive at a link: fan-out (packets of one publication arrive together) or "
    "independent.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random numbers.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Number of replications that run in parallel.",
)
@click.option(
    "--records",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the delivery records to this folder, one Parquet file per replication.",
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
    all: bool,  # noqa: A002  # the name of the option
    json: bool,
) -> None:
    """Simulate the scenario event by event. A scenario without an assignment is planned first.

    Events of the first 10 % (warm-up) and of the last 2 % of the simulated time are not counted.
    """
    if records is not None and arrivals == "independent":
        raise click.UsageError("--records cannot be combined with --arrivals independent")
    requested = read_scenario_or_exit(scenario)
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
    requested = _with_assignment(requested)
    with Progress(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("simulating", total=replications)
        summary = simulate_scenario(
            requested,
            settings,
            progress=lambda done, _of: bar.update(task, completed=done),
            record_writer=keep,
        )
    report = simulation_report(summary)
    if json:
        click.echo(to_json(report, indent=2))
        return
    # Arrival models have the same names in the simulator and in the model.
    prediction = predict(requested, model=arrivals).to_prediction()
    show_simulation(console(), requested.name, report, prediction, everything=all)


def _with_assignment(scenario: Scenario) -> Scenario:
    if scenario.assignment is not None:
        return scenario
    click.echo(
        f"no assignment; planning with drop policy {scenario.planning.drop_policy}",
        err=True,
    )
    try:
        return plan_scenario(scenario).planned_scenario
    except PlanningError as error:
        fail(str(error))


def show_simulation(
    console: Console,
    name: str,
    report: SimulationReport,
    prediction: Prediction,
    *,
    everything: bool,
) -> None:
    """Print the simulated and the predicted figures by class or by subscription."""
    counts = report.notifications
    console.print(
        f"[bold]{escape(name)}[/bold]: {report.replications} replications, "
        f"{report.publications} publications; {counts.delivered} notifications delivered, dropped "
        f"at gateway {counts.dropped_at_gateway}, meter {counts.dropped_at_meter}, buffer "
        f"{counts.dropped_at_buffer}, lost on link {counts.lost_on_link}",
        highlight=False,
    )
    if not report.publications:
        console.print("[yellow]the scenario has no publications[/yellow]")
    table = new_table("Simulated (predicted)")
    table.add_column("subscription" if everything else "class", overflow="fold")
    for heading in ("delivered", "mean", "p95", "p99"):
        table.add_column(heading, justify="right", no_wrap=True)
    if everything:
        for row, expected in zip(report.subscriptions, prediction.subscriptions, strict=True):
            table.add_row(escape(f"{row.subscriber} {row.filter}"), *_cells(row, expected))
    else:
        for row_of_class, expected_of_class in zip(report.classes, prediction.classes, strict=True):
            table.add_row(str(row_of_class.priority), *_cells(row_of_class, expected_of_class))
    console.print(table)
    loads = ", ".join(f"{s.id} {s.utilization:.1%}" for s in report.switches)
    console.print(f"load: {loads}", highlight=False)
    console.print(
        f"utility: {report.utility:.2f} of {report.maximum_utility:.2f} "
        f"({report.achieved_utility_rate:.1%}, predicted {prediction.achieved_utility_rate:.1%}; "
        f"mean per subscription {report.achieved_utility_rate_per_subscription:.1%}); within "
        f"deadlines: {report.timely_utility:.2f}, predicted {prediction.timely_utility:.2f}",
        highlight=False,
    )


def _cells(
    row: SimulatedClass | SimulatedSubscription, expected: ClassPrediction | SubscriptionPrediction
) -> list[str]:
    success = "-" if row.success_rate is None else f"{row.success_rate:.1%}"
    return [
        f"{success} ({expected.success_rate:.1%})",
        f"{_with_half_width(row.delay_mean_seconds, row.delay_mean_half_width_seconds)} "
        f"({delay_text(expected.delay_mean_seconds)})",
        f"{_with_half_width(row.delay_p95_seconds, row.delay_p95_half_width_seconds)} "
        f"({delay_text(expected.delay_p95_seconds)})",
        delay_text(row.delay_p99_seconds),
    ]


def _with_half_width(figure: float | None, half_width: float | None) -> str:
    text = delay_text(figure)
    if figure is None or half_width is None or figure <= 0:
        return text
    return f"{text} ± {half_width / figure:.0%}"

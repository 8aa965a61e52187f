"""``firedex spark generate``: write records, feedback and fleets with known parameters."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from firedex.cli.options import SEED
from firedex.system.files import write_atomically
from firedex_spark.fleet.generated import generated_fleet
from firedex_spark.fleet.job import write_fleet
from firedex_spark.job_command import Finite, report_errors
from firedex_spark.output_folder import atomic_results
from firedex_spark.records.generated import RecordParameters, write_generated_records
from firedex_spark.weights.generated import FeedbackParameters, write_generated_feedback

__all__ = ["generate"]

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Output folder. Files that were generated there before are replaced.",
)
seed_option = click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Seed of the random generator; the same seed gives the same files.",
)


@click.group(
    short_help="Write example input with known parameters.",
    epilog="Example: firedex spark generate feedback --out generated",
)
def generate() -> None:
    """Generate input for the other jobs from known parameters, so that results can be checked."""


@generate.command(
    "records", epilog="Example: firedex spark generate records --rows 1000000 --out generated"
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Number of records, without duplicates.",
)
@click.option(
    "--sites", type=click.IntRange(min=1), default=2, show_default=True, help="Number of sites."
)
@click.option(
    "--subscribers",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of subscribers of each site.",
)
@click.option(
    "--topics",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Number of topics of each site.",
)
@click.option(
    "--drift",
    type=Finite(min=-1.0, min_open=True),
    default=0.0,
    show_default=True,
    help="Relative change of the delays of the lowest class from beginning to end.",
)
@seed_option
@out_option
def records(
    rows: int, sites: int, subscribers: int, topics: int, drift: float, seed: int, out: Path
) -> None:
    """Write delivery records by site and day, and correct predictions for them."""
    truth = RecordParameters(sites=sites, subscribers=subscribers, topics=topics, seed=seed)
    drifting = {truth.classes - 1: drift} if drift else {}
    truth = RecordParameters(
        sites=sites, subscribers=subscribers, topics=topics, drift=drifting, seed=seed
    )
    with (
        report_errors(),
        atomic_results(out, ("records", "predictions.parquet"), []) as folder,
        Progress(
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as bar,
    ):
        task = bar.add_task("generating", total=rows)
        written = write_generated_records(
            truth, folder, rows, lambda done: bar.update(task, completed=done)
        )
    click.echo(f"{written} records in {out / 'records'}, {out / 'predictions.parquet'}")


@generate.command(
    "feedback", epilog="Example: firedex spark generate feedback --ratings 200 --out generated"
)
@click.option(
    "--ratings",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Number of ratings for each role, phase and topic.",
)
@click.option(
    "--acknowledgements",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of events shown for each role, phase and topic, acknowledged or not.",
)
@click.option(
    "--dwells",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of dwell times for each role, phase and topic.",
)
@click.option(
    "--choices",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of choices between each topic and another one, for each role and phase.",
)
@seed_option
@out_option
def feedback(
    ratings: int, acknowledgements: int, dwells: int, choices: int, seed: int, out: Path
) -> None:
    """Write feedback of each kind, and the true worths of the topics."""
    truth = FeedbackParameters(
        ratings=ratings,
        acknowledgements=acknowledgements,
        dwells=dwells,
        choices=choices,
        seed=seed,
    )
    with report_errors(), atomic_results(out, ("feedback", "truth.json"), []) as folder:
        feedback_table = write_generated_feedback(truth, folder / "feedback")
        rows = [
            {"role": role, "phase": phase, "topic": topic, "worth": worth}
            for (role, phase, topic), worth in feedback_table.worth.items()
        ]
        write_atomically(folder / "truth.json", json.dumps(rows, indent=2) + "\n")
    click.echo(f"{feedback_table.table.num_rows} rows in {out / 'feedback'}, {out / 'truth.json'}")


@generate.command(
    "fleet", epilog="Example: firedex spark generate fleet --sites 100 --out generated"
)
@click.option(
    "--sites", type=click.IntRange(min=1), default=100, show_default=True, help="Number of sites."
)
@click.option(
    "--subscriptions",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Number of subscriptions of each site, approximately.",
)
@seed_option
@out_option
def fleet(sites: int, subscriptions: int, seed: int, out: Path) -> None:
    """Write a table of sites for plan-sites."""
    with report_errors(), atomic_results(out, ("fleet.parquet",), []) as folder:
        write_fleet(folder / "fleet.parquet", generated_fleet(sites, subscriptions, seed))
    click.echo(f"{sites} sites in {out / 'fleet.parquet'}")

"""``firedex spark generate``: records, feedback and fleets whose truth is known, of any size."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from firedex.cli.options import SEED
from firedex_spark.generated_feedback import FeedbackTruth, write_generated_feedback
from firedex_spark.generated_fleet import generated_fleet
from firedex_spark.generated_records import RecordTruth, write_generated_records
from firedex_spark.job_command import reasons_told
from firedex_spark.number_options import Finite
from firedex_spark.output_folder import whole_results, write_whole
from firedex_spark.plan_sites import write_fleet

__all__ = ["generate"]

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder to write into, in place of what was drawn there before.",
)
seed_option = click.option(
    "--seed", type=SEED, default=0, show_default=True, help="The same seed draws the same."
)


@click.group(
    short_help="Input for the jobs, with a known truth.",
    epilog="Example: firedex spark generate feedback --out generated",
)
def generate() -> None:
    """Draw input for the other jobs, with a truth to compare their results with."""


@generate.command(
    "records", epilog="Example: firedex spark generate records --rows 1000000 --out generated"
)
@click.option("--rows", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--sites", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--subscribers", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--topics", type=click.IntRange(min=1), default=8, show_default=True)
@click.option(
    "--drift",
    type=Finite(min=-1.0, min_open=True),
    default=0.0,
    show_default=True,
    help="By what part the lowest class's delays grow, or shrink if it is negative.",
)
@seed_option
@out_option
def records(
    rows: int, sites: int, subscribers: int, topics: int, drift: float, seed: int, out: Path
) -> None:
    """Write delivery records by site and day, and the predictions of a model that is right."""
    truth = RecordTruth(sites=sites, subscribers=subscribers, topics=topics, seed=seed)
    drifting = {truth.classes - 1: drift} if drift else {}
    truth = RecordTruth(
        sites=sites, subscribers=subscribers, topics=topics, drift=drifting, seed=seed
    )
    with (
        reasons_told(),
        whole_results(out, ("records", "predictions.parquet"), []) as folder,
        Progress(
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as bar,
    ):
        task = bar.add_task("drawing", total=rows)
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
    help="Ratings of every topic, by a role in a phase.",
)
@click.option(
    "--acknowledgements",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Events shown of every topic, acknowledged or not.",
)
@click.option(
    "--dwells",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Times spent on every topic.",
)
@click.option(
    "--choices",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Choices between every topic and another.",
)
@seed_option
@out_option
def feedback(
    ratings: int, acknowledgements: int, dwells: int, choices: int, seed: int, out: Path
) -> None:
    """Write feedback, so many of each kind for every role, phase and topic, and the true worths."""
    truth = FeedbackTruth(
        ratings=ratings,
        acknowledgements=acknowledgements,
        dwells=dwells,
        choices=choices,
        seed=seed,
    )
    with reasons_told(), whole_results(out, ("feedback", "truth.json"), []) as folder:
        made = write_generated_feedback(truth, folder / "feedback")
        rows = [
            {"role": role, "phase": phase, "topic": topic, "worth": worth}
            for (role, phase, topic), worth in made.worth.items()
        ]
        write_whole(folder / "truth.json", json.dumps(rows, indent=2) + "\n")
    click.echo(f"{made.table.num_rows} rows in {out / 'feedback'}, {out / 'truth.json'}")


@generate.command(
    "fleet", epilog="Example: firedex spark generate fleet --sites 100 --out generated"
)
@click.option("--sites", type=click.IntRange(min=1), default=100, show_default=True)
@click.option(
    "--subscriptions",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Of each site, about.",
)
@seed_option
@out_option
def fleet(sites: int, subscriptions: int, seed: int, out: Path) -> None:
    """Write a table of sites with about so many subscriptions each."""
    with reasons_told(), whole_results(out, ("fleet.parquet",), []) as folder:
        write_fleet(folder / "fleet.parquet", generated_fleet(sites, subscriptions, seed))
    click.echo(f"{sites} sites in {out / 'fleet.parquet'}")

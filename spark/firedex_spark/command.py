"""``firedex spark JOB``: thin. Read, let a job do it, write its report, end with a code."""

import json as json_text
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

from firedex.cli.options import SEED, json_option, read_or_fail, scenario_argument
from firedex.cli.output import fail
from firedex.wire import WireError, from_json
from firedex.wire.incident import PhaseProfile
from firedex_models import ModelError
from firedex_spark.arrange_records import arrange_records
from firedex_spark.calibrate import calibrate
from firedex_spark.errors import NoInput, SparkJobError, UnreadablePredictions
from firedex_spark.generate_command import generate
from firedex_spark.job_reports import (
    write_calibration,
    write_sweep,
    write_weights,
)
from firedex_spark.measured_row import Bounds
from firedex_spark.plan_sites import plan_sites
from firedex_spark.prediction_files import (
    USUAL_SITE,
    PredictedSubscription,
    read_predictions,
)
from firedex_spark.profile_files import changes_of
from firedex_spark.session import DEFAULT_MEMORY, SparkSession, spark_session
from firedex_spark.simulate_sweep import simulate_sweep
from firedex_spark.utility_weights import fit_utility_weights
from firedex_spark.validate_delays import Validation, validate_delays
from firedex_spark.validate_stream import follow_delays
from firedex_spark.validation_report import alarm_in_words, write_validation

__all__ = ["spark"]

F = TypeVar("F", bound=Callable[..., Any])
ALARM = 1
"""Exit code of a model that does not hold, and of a fleet with sites that cannot be planned."""
USUAL = Bounds()
FOLDER = click.Path(file_okay=False, path_type=Path)
SOURCE = click.Path(exists=True, path_type=Path)


@click.group(
    short_help="Learn, validate, calibrate, plan fleets on Spark.",
    epilog="Example: firedex spark plan-sites fleet.parquet --out plans",
)
def spark() -> None:
    """Jobs on Spark, here on all cores, or on a cluster by --master or spark-submit."""


def _say(text: str) -> None:
    click.echo(text, err=True)


def job_options(command: F) -> F:
    """``--out``, ``--master``, ``--memory`` and ``--json``, as every job has them."""
    command = json_option(command)
    command = click.option(
        "--memory", default=DEFAULT_MEMORY, show_default=True, help="Of the driver, such as 4g."
    )(command)
    command = click.option("--master", help="spark://HOST:PORT; none runs it here.")(command)
    return click.option("--out", type=FOLDER, required=True, help="Results go here alone.")(command)


@contextmanager
def _running(name: str, out: Path, master: str | None, memory: str) -> Iterator[SparkSession]:
    """A session for a job; whatever can be mended ends the command with the reason."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with spark_session(name, master=master, memory=memory) as session:
            yield session
    except (SparkJobError, WireError, ModelError) as error:
        fail(str(error))


def _done(out: Path, summary: dict[str, Any], json: bool) -> None:
    if json:
        click.echo(json_text.dumps(summary, indent=2))
    else:
        for key, value in summary.items():
            click.echo(f"{key.replace('_', ' ')}: {value}")
        click.echo(f"in {out}")


@spark.command(
    "validate-delays",
    short_help="Predicted and measured delays.",
    epilog="Example: firedex spark validate-delays records --predictions plan.json --out validated",
)
@click.argument("records", type=SOURCE)
@click.option(
    "--predictions",
    type=SOURCE,
    required=True,
    help="Configurations or plans as JSON, or Parquet; a file or a folder of them.",
)
@click.option(
    "--site",
    default=USUAL_SITE,
    show_default=True,
    help="Whose the plans are that do not say it (`firedex plan --json`).",
)
@click.option("--run", "runs", multiple=True, help="Judge this run alone; may be repeated.")
@click.option("--delay-bound", default=USUAL.delay, show_default=True, help="Relative, of means.")
@click.option(
    "--delay-bound-seconds", default=USUAL.delay_seconds, show_default=True, help="Or absolute."
)
@click.option("--success-bound", default=USUAL.success, show_default=True)
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=USUAL.level,
    show_default=True,
    help="Of any false alarm in a report.",
)
@click.option("--follow", is_flag=True, help="Go on as files are added; safe to kill and restart.")
@click.option("--once", is_flag=True, help="With --follow: take in what is new, and end.")
@job_options
def validate_delays_command(
    records: Path,
    predictions: Path,
    site: str,
    runs: tuple[str, ...],
    delay_bound: float,
    delay_bound_seconds: float,
    success_bound: float,
    level: float,
    follow: bool,
    once: bool,
    out: Path,
    master: str | None,
    memory: str,
    json: bool,
) -> None:
    """Put delivery records beside predictions, by configuration version.

    RECORDS is a file or a folder of Parquet files, flat or by site and day. Exit code 1 if a
    prediction does not hold, 2 if nothing could be judged.
    """
    if once and not follow:
        raise click.UsageError("--once goes with --follow")
    bounds = Bounds(
        delay=delay_bound, delay_seconds=delay_bound_seconds, success=success_bound, level=level
    )
    said: list[PredictedSubscription] = []
    last: list[Validation] = []

    def present() -> list[PredictedSubscription]:
        try:
            said[:] = read_predictions(predictions, site)
        except UnreadablePredictions as error:
            if not said:
                raise
            _say(f"predictions stay as they were: {error}")
        return said

    def told(validation: Validation) -> None:
        write_validation(validation, out)
        known = last[0].left_out if last else ()
        for bad in validation.left_out if follow else ():
            if bad not in known:
                _say(f"left out: {bad}")
        last[:] = [validation]
        _say(f"{validation.records} records: {len(validation.alarming)} alarms")

    with _running("validate-delays", out, master, memory) as session:
        if follow:
            with suppress(KeyboardInterrupt):
                follow_delays(
                    session, records, present, out, bounds=bounds, runs=runs, once=once, told=told
                )
        else:
            told(validate_delays(session, records, present(), bounds, _say, runs=runs))
        if not last:
            raise NoInput(records, "delivery records")
        last[0].check()
    alarming = last[0].alarming
    summary = {
        "records": last[0].records,
        "rows": len(last[0].rows),
        "alarms": len(alarming),
        "first_alarms": [alarm_in_words(row) for row in alarming[:10]],
        "configurations_without_records": len(last[0].unrecorded),
        "refused_rows": dict(last[0].refused),
        "files_left_out": [str(bad) for bad in last[0].left_out],
    }
    _done(out, summary, json)
    sys.exit(ALARM if alarming else 0)


@spark.command(
    "arrange-records",
    short_help="Sort records by site and day.",
    epilog="Example: firedex spark arrange-records records --out arranged",
)
@click.argument("records", type=SOURCE)
@job_options
def arrange_records_command(
    records: Path, out: Path, master: str | None, memory: str, json: bool
) -> None:
    """Sort flat files into folders by site and day, which other jobs read faster."""
    with _running("arrange-records", out, master, memory) as session:
        rows, left_out = arrange_records(session, records, out, _say)
    _done(out, {"records": rows, "files_left_out": [str(bad) for bad in left_out]}, json)


@spark.command(
    "fit-utility-weights",
    short_help="Utility weights from feedback.",
    epilog="Example: firedex spark fit-utility-weights feedback --out weights",
)
@click.argument("feedback", type=SOURCE)
@click.option(
    "--previous",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Profiles so far (profiles.json, or what GET /v1/profiles answers), to report changes.",
)
@job_options
def fit_utility_weights_command(
    feedback: Path, previous: Path | None, out: Path, master: str | None, memory: str, json: bool
) -> None:
    """Learn what topics are worth to each role in each phase of an incident.

    Writes profiles.json, which `firedex profiles load` gives to the service.
    """
    with _running("fit-utility-weights", out, master, memory) as session:
        before: tuple[PhaseProfile, ...] = ()
        if previous is not None:
            before = from_json(tuple[PhaseProfile, ...], previous.read_text("utf-8"), tolerant=True)
        fitted = fit_utility_weights(session, feedback, _say)
        write_weights(fitted, changes_of(fitted.worths, before), out)
    summary = {
        "feedback": fitted.feedback,
        "weights": len(fitted.worths),
        "raters": fitted.raters,
        "refused_rows": fitted.refused,
        "files_left_out": [str(bad) for bad in fitted.left_out],
    }
    _done(out, summary, json)


@spark.command(
    "calibrate",
    short_help="Model parameters from records.",
    epilog="Example: firedex spark calibrate records planned.yaml --out calibrated",
)
@click.argument("records", type=SOURCE)
@scenario_argument
@job_options
def calibrate_command(
    records: Path, scenario: str, out: Path, master: str | None, memory: str, json: bool
) -> None:
    """Estimate rates, sizes, losses, bandwidths and bursts; show what predictions gain by it.

    SCENARIO must have the assignment that the records were made under.
    """
    declared = read_or_fail(scenario)
    with _running("calibrate", out, master, memory) as session:
        done = calibrate(session, records, declared, _say)
        write_calibration(done, out)
    summary = {"before": asdict(done.before), "after": asdict(done.after), "better": done.better}
    _done(out, summary, json)


@spark.command(
    "plan-sites",
    short_help="Plan a fleet of sites.",
    epilog="Example: firedex spark plan-sites fleet.parquet --out plans",
)
@click.argument("fleet", type=SOURCE)
@job_options
def plan_sites_command(fleet: Path, out: Path, master: str | None, memory: str, json: bool) -> None:
    """Plan every site of a table (site, scenario as JSON); exit code 1 if some cannot be."""
    with _running("plan-sites", out, master, memory) as session:
        start = time.perf_counter()
        outcome = plan_sites(session, fleet, out, _say)
        seconds = time.perf_counter() - start
    summary = {
        "sites": outcome.sites,
        "subscriptions": outcome.subscriptions,
        "utility": outcome.utility,
        "failed": outcome.failed,
        "subscriptions_per_second": round(outcome.subscriptions / seconds),
        "files_left_out": [str(bad) for bad in outcome.left_out],
    }
    _done(out, summary, json)
    sys.exit(ALARM if outcome.failed else 0)


@spark.command(
    "simulate-sweep",
    short_help="Simulate over a grid of parameters.",
    epilog="Example: firedex spark simulate-sweep planned.yaml --grid grid.yaml --out sweep",
)
@scenario_argument
@click.option(
    "--grid",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="YAML: a list of values for each path, such as network.switches.core.error_rate.",
)
@click.option("--replications", type=click.IntRange(1, 10_000), default=5, show_default=True)
@click.option("--publications", type=click.IntRange(1, 50_000_000), default=100_000)
@click.option("--seed", type=SEED, default=0, show_default=True)
@job_options
def simulate_sweep_command(
    scenario: str,
    grid: Path,
    replications: int,
    publications: int,
    seed: int,
    out: Path,
    master: str | None,
    memory: str,
    json: bool,
) -> None:
    """Simulate every combination of a grid's values, replications side by side."""
    base = read_or_fail(scenario)
    try:
        wanted = yaml.safe_load(grid.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        fail(f"{grid}: {error}")
    if not isinstance(wanted, dict) or not wanted:
        fail(f"{grid}: a mapping of paths to lists of values is wanted")
    with _running("simulate-sweep", out, master, memory) as session:
        points = simulate_sweep(
            session,
            base,
            wanted,
            replications=replications,
            publications=publications,
            seed=seed,
            say=_say,
        )
        write_sweep(points, out)
    best = max(points, key=lambda point: point.report.achieved_utility_rate)
    summary = {
        "points": len(points),
        "best_values": dict(best.values),
        "best_achieved_utility_rate": best.report.achieved_utility_rate,
    }
    _done(out, summary, json)


spark.add_command(generate)

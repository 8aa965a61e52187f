"""``firedex spark JOB``: thin. Read, let a job do it, write its report, end with a code."""

import json as json_text
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from firedex.cli.options import SEED, read_or_fail, scenario_argument
from firedex.cli.output import fail
from firedex.wire import WireError, from_json
from firedex.wire.incident import PhaseProfile
from firedex_spark.arrange_records import arrange_records
from firedex_spark.calibrate import calibrate
from firedex_spark.delay_verdicts import Bounds
from firedex_spark.generate_command import generate
from firedex_spark.job_command import job_options, reasons_told, writing
from firedex_spark.job_reports import (
    CALIBRATION_RESULTS,
    FLEET_RESULTS,
    SWEEP_RESULTS,
    WEIGHTS_RESULTS,
    write_calibration,
    write_fleet_outcome,
    write_sweep,
    write_validation,
    write_weights,
)
from firedex_spark.plan_sites import plan_sites
from firedex_spark.prediction_files import read_predictions
from firedex_spark.profile_files import changes_of
from firedex_spark.session import SparkSession, spark_session
from firedex_spark.simulate_sweep import read_grid, simulate_sweep
from firedex_spark.utility_weights import fit_utility_weights
from firedex_spark.validate_delays import Validation, validate_delays
from firedex_spark.validate_stream import follow_delays

__all__ = ["spark"]

ALARM = 1
"""Exit code of a job that has done its work, and found what somebody should look at."""
MOST_SHOWN = 10
USUAL = Bounds()
SOURCE = click.Path(exists=True, path_type=Path)


@click.group(
    short_help="Learn, validate, calibrate, plan fleets on Spark.",
    epilog="Example: firedex spark plan-sites fleet.parquet --out plans",
)
def spark() -> None:
    """Jobs on Spark, here on all cores, or on a cluster by --master or spark-submit.

    Exit codes: 0 done, and all is well; 1 done, and something is to be looked at (a model that
    does not hold or became worse, a role, site or point that could not be done); 2 not done,
    with the reason.
    Results appear whole or not at all. Java's own log is shown with FIREDEX_SPARK_LOG=ERROR.
    """


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _running(name: str, out: Path, master: str | None, memory: str) -> Iterator[SparkSession]:
    """A session for a job that looks after its output folder itself."""
    with reasons_told():
        out.mkdir(parents=True, exist_ok=True)
        with spark_session(name, master=master, memory=memory) as session:
            yield session


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
    """Put delivery records beside predictions, by configuration version; exit code 1 on alarm.

    RECORDS is a file or a folder of Parquet files, flat or by site and day.
    """
    bounds = Bounds(
        delay=delay_bound, delay_seconds=delay_bound_seconds, success=success_bound, level=level
    )
    last: list[Validation] = []

    def told(validation: Validation) -> None:
        write_validation(validation, out)
        last[:] = [validation]
        _say(f"{validation.records} records: {len(validation.alarming)} alarms")

    with _running("validate-delays", out, master, memory) as session:
        if follow:
            follow_delays(
                session,
                records,
                lambda: read_predictions(predictions),
                out,
                bounds=bounds,
                once=once,
                told=told,
            )
        else:
            said = read_predictions(predictions)
            told(validate_delays(session, records, said, bounds, _say))
    if not last:
        _say("nothing new")
        return
    alarming = last[0].alarming
    summary = {
        "records": last[0].records,
        "rows": len(last[0].rows),
        "alarms": len(alarming),
        "first_alarms": [
            f"{r.site} v{r.configuration_version} class {r.priority} "
            f"{r.subscriber or ''} {r.filter or ''}: {r.verdict}".replace("  ", "")
            for r in alarming[:10]
        ],
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

    FEEDBACK is a file or a folder of Parquet files: site, at_seconds, rater, role, phase, topic,
    kind (rating, acknowledgement, dwell, choice), value, other_topic. Writes profiles.json, which
    `firedex profiles load` gives to the service, worths.json, quarantine.json and report.html.
    Exit code 1 if a role could not be fitted.
    """
    before = () if previous is None else _profiles(previous)
    with writing("fit-utility-weights", out, WEIGHTS_RESULTS, [feedback], master, memory) as (
        session,
        folder,
    ):
        fitted = fit_utility_weights(session, feedback, _say)
        write_weights(fitted, changes_of(fitted.worths, before), folder)
    summary = {
        "feedback": fitted.feedback,
        "copies": fitted.copies,
        "weights": len(fitted.worths),
        "raters": fitted.raters,
        "not_fitted": fitted.not_fitted,
        "refused_rows": fitted.refused,
        "files_left_out": [str(bad) for bad in fitted.left_out],
    }
    _done(out, summary, json)
    sys.exit(ALARM if fitted.not_fitted else 0)


def _profiles(file: Path) -> tuple[PhaseProfile, ...]:
    try:
        return from_json(tuple[PhaseProfile, ...], file.read_text("utf-8"), tolerant=True)
    except (WireError, UnicodeDecodeError) as error:
        fail(f"{file}: not profiles: {error}")


@spark.command(
    "calibrate",
    short_help="Model parameters from records.",
    epilog="Example: firedex spark calibrate records planned.yaml --out calibrated",
)
@click.argument("records", type=SOURCE)
@scenario_argument
@click.option("--site", help="Whose records; needed if there are several sites.")
@job_options
def calibrate_command(
    records: Path,
    scenario: str,
    site: str | None,
    out: Path,
    master: str | None,
    memory: str,
    json: bool,
) -> None:
    """Estimate rates, sizes, losses, bandwidths and bursts; show what predictions gain by it.

    RECORDS is a file or a folder of Parquet files. SCENARIO must have the assignment that they
    were made under, as `firedex plan --write planned.yaml` writes it. Writes overlay.yaml (what
    changes), calibrated.yaml (the whole scenario), estimates.json, quarantine.json, report.html.
    Exit code 1 if predictions became worse.
    """
    declared = read_or_fail(scenario)
    if declared.assignment is None:
        fail(f"{scenario}: has no assignment; write one with firedex plan {scenario} --write FILE")
    with writing("calibrate", out, CALIBRATION_RESULTS, [records], master, memory) as (
        session,
        folder,
    ):
        done = calibrate(session, records, declared, _say, site=site)
        write_calibration(done, folder)
    summary = {
        "site": done.site,
        "before": asdict(done.before),
        "after": asdict(done.after),
        "better": done.better,
        "worse": done.worse,
        "refused_rows": dict(done.refused),
        "files_left_out": [str(bad) for bad in done.left_out],
    }
    _done(out, summary, json)
    sys.exit(ALARM if done.worse else 0)


@spark.command(
    "plan-sites",
    short_help="Plan a fleet of sites.",
    epilog="Example: firedex spark plan-sites fleet.parquet --out plans",
)
@click.argument("fleet", type=SOURCE)
@job_options
def plan_sites_command(fleet: Path, out: Path, master: str | None, memory: str, json: bool) -> None:
    """Plan every site of a fleet; exit code 1 if some cannot be planned.

    FLEET is a file or a folder of Parquet files: site, and scenario as JSON. Writes plans/ (a row
    for each subscription, or with a site's error), quarantine.json and summary.json.
    """
    with writing("plan-sites", out, FLEET_RESULTS, [fleet], master, memory) as (session, folder):
        start = time.perf_counter()
        outcome = plan_sites(session, fleet, folder, _say)
        seconds = time.perf_counter() - start
        write_fleet_outcome(outcome, folder)
    summary = {
        "sites": outcome.sites,
        "subscriptions": outcome.subscriptions,
        "utility": outcome.utility,
        "failed_sites": len(outcome.failed),
        "failed": outcome.failed if json else _first(outcome.failed),
        "subscriptions_per_second": round(outcome.subscriptions / seconds),
        "files_left_out": [str(bad) for bad in outcome.left_out],
    }
    _done(out, summary, json)
    sys.exit(ALARM if outcome.failed else 0)


def _first(said: Mapping[str, str]) -> dict[str, str]:
    return dict(list(said.items())[:MOST_SHOWN])


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
@click.option(
    "--replications",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Runs of each point.",
)
@click.option(
    "--publications",
    type=click.IntRange(1, 50_000_000),
    default=100_000,
    show_default=True,
    help="Of each run.",
)
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
    """Simulate every combination of a grid's values, replications side by side.

    Writes sweep.jsonl (a point each line) and report.html. A point that cannot be simulated is
    told there, and the exit code is 1.
    """
    base = read_or_fail(scenario)
    with writing("simulate-sweep", out, SWEEP_RESULTS, [grid], master, memory) as (
        session,
        folder,
    ):
        points = simulate_sweep(
            session,
            base,
            read_grid(grid),
            replications=replications,
            publications=publications,
            seed=seed,
            say=_say,
        )
        write_sweep(points, folder)
    failed = [f"{dict(point.values)}: {point.error}" for point in points if point.error]
    done = [(point.report.achieved_utility_rate, point) for point in points if point.report]
    best = max(done, key=lambda found: found[0], default=None)
    summary = {
        "points": len(points),
        "failed_points": len(failed),
        "failed": failed if json else failed[:MOST_SHOWN],
        "best_values": dict(best[1].values) if best else None,
        "best_achieved_utility_rate": best[0] if best else None,
    }
    _done(out, summary, json)
    sys.exit(ALARM if failed else 0)


spark.add_command(generate)

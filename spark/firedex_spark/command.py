"""``firedex spark JOB``: thin. Read, let a job do it, write its report, end with a code."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from firedex.cli.options import SEED, read_or_fail, scenario_argument
from firedex.cli.output import fail
from firedex.wire import WireError, from_json
from firedex.wire.incident import PhaseProfile
from firedex_spark.calibrate import calibrate
from firedex_spark.generate_command import generate
from firedex_spark.job_command import (
    ALARM,
    SOURCE,
    job_options,
    say,
    tell,
    writing,
)
from firedex_spark.job_reports import (
    CALIBRATION_RESULTS,
    FLEET_RESULTS,
    WEIGHTS_RESULTS,
    write_calibration,
    write_fleet_outcome,
    write_weights,
)
from firedex_spark.plan_sites import plan_sites
from firedex_spark.profile_files import changes_of, profiles_of, without_a_rule
from firedex_spark.simulate_sweep import read_grid, simulate_sweep
from firedex_spark.sweep_report import SWEEP_RESULTS, best_of, write_sweep
from firedex_spark.utility_weights import fit_utility_weights
from firedex_spark.validate_command import arrange_records_command, validate_delays_command

__all__ = ["spark"]

MOST_SHOWN = 10


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
        fitted = fit_utility_weights(session, feedback, say)
        write_weights(fitted, changes_of(fitted.worths, before), folder)
    missing = without_a_rule(fitted.worths)
    summary = {
        "feedback": fitted.feedback,
        "copies": fitted.copies,
        "weights": len(fitted.worths),
        "rules": sum(len(profile.rules) for profile in profiles_of(fitted.worths)),
        "without_a_rule": [str(one) for one in missing],
        "raters": fitted.raters,
        "not_fitted": fitted.not_fitted,
        "refused_rows": fitted.refused,
        "files_left_out": [str(bad) for bad in fitted.left_out],
    }
    tell(out, summary, json)
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

    What chance explains stays as declared. The gain is shown on the later half of the records, by
    what the earlier half says.

    RECORDS is a file or a folder of Parquet files. SCENARIO must have the assignment that they
    were made under, as `firedex plan --write planned.yaml` writes it. Writes overlay.yaml (what
    changes), calibrated.yaml (the whole scenario), estimates.json, quarantine.json, report.html.
    Exit code 1 if predictions of the later half became worse.
    """
    declared = read_or_fail(scenario)
    if declared.assignment is None:
        fail(f"{scenario}: has no assignment; write one with firedex plan {scenario} --write FILE")
    with writing("calibrate", out, CALIBRATION_RESULTS, [records], master, memory) as (
        session,
        folder,
    ):
        done = calibrate(session, records, declared, say, site=site)
        write_calibration(done, folder)
    summary = {
        "site": done.site,
        "changed": len(done.overlay),
        "as_declared": sum(one.as_declared for one in done.estimates),
        "before": asdict(done.before),
        "after": asdict(done.after),
        "better": done.better,
        "worse": done.worse,
        "refused_rows": dict(done.refused),
        "files_left_out": [str(bad) for bad in done.left_out],
    }
    tell(out, summary, json)
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
        outcome = plan_sites(session, fleet, folder, say)
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
    tell(out, summary, json)
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
            say=say,
        )
        write_sweep(points, folder)
    failed = [f"{dict(point.values)}: {point.error}" for point in points if point.error]
    summary = {
        "points": len(points),
        "failed_points": len(failed),
        "failed": failed if json else failed[:MOST_SHOWN],
        **best_of(points),
    }
    tell(out, summary, json)
    sys.exit(ALARM if failed else 0)


spark.add_command(validate_delays_command)
spark.add_command(arrange_records_command)
spark.add_command(generate)

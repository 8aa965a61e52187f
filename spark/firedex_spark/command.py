"""``firedex spark JOB``: read options, run the job, write its results, set the exit code."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from firedex.cli.options import SEED, read_scenario_or_exit, scenario_argument
from firedex.cli.output import fail
from firedex.wire import WireError, from_json
from firedex.wire.incident import PhaseProfile
from firedex_spark.calibration.job import calibrate
from firedex_spark.calibration.report import CALIBRATION_RESULTS, write_calibration
from firedex_spark.fleet.job import FLEET_RESULTS, plan_sites, write_outcome
from firedex_spark.generate_command import generate
from firedex_spark.job_command import (
    PROBLEM_FOUND,
    SOURCE,
    job_options,
    job_results,
    log_progress,
    print_summary,
)
from firedex_spark.sweep.job import read_grid, simulate_sweep
from firedex_spark.sweep.report import SWEEP_RESULTS, best_point, write_sweep
from firedex_spark.validation.command import arrange_records_command, validate_delays_command
from firedex_spark.weights.job import fit_utility_weights
from firedex_spark.weights.profiles import make_profiles, profile_changes, topics_without_rule
from firedex_spark.weights.report import WEIGHTS_RESULTS, write_weights

__all__ = ["spark"]

MAX_SHOWN = 10


@click.group(
    short_help="Run a job on Spark.",
    epilog="Example: firedex spark plan-sites fleet.parquet --out plans",
)
def spark() -> None:
    """Run a job on all cores of this machine, or on a cluster with --master or spark-submit.

    Exit codes: 0 = complete; 1 = complete, but a problem was found (a prediction does not hold, or
    a role, site or point failed); 2 = not complete, the reason is printed.
    Results are published only when they are complete. FIREDEX_SPARK_LOG=ERROR shows Spark's log.
    """


@spark.command(
    "fit-utility-weights",
    short_help="Learn utility weights from feedback.",
    epilog="Example: firedex spark fit-utility-weights feedback --out weights",
)
@click.argument("feedback", type=SOURCE)
@click.option(
    "--previous",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Earlier profiles (profiles.json or the response of GET /v1/profiles), to report changes.",
)
@job_options
def fit_utility_weights_command(
    feedback: Path, previous: Path | None, out: Path, master: str | None, memory: str, json: bool
) -> None:
    """Learn the utility weight of each topic for each role and incident phase.

    FEEDBACK is a Parquet file or a folder of Parquet files with the columns site, at_seconds,
    rater, role, phase, topic, kind (rating, acknowledgement, dwell, choice), value, other_topic.
    Writes profiles.json (for `firedex profiles load`), worths.json, quarantine.json and
    report.html. Exit code 1 if the weights of a role could not be fitted.
    """
    before = () if previous is None else _profiles(previous)
    with job_results("fit-utility-weights", out, WEIGHTS_RESULTS, [feedback], master, memory) as (
        session,
        folder,
    ):
        fitted = fit_utility_weights(session, feedback, log_progress)
        write_weights(fitted, profile_changes(fitted.worths, before), folder)
    missing = topics_without_rule(fitted.worths)
    summary = {
        "feedback_rows": fitted.feedback,
        "duplicate_rows": fitted.duplicates,
        "weights": len(fitted.worths),
        "rules": sum(len(profile.rules) for profile in make_profiles(fitted.worths)),
        "topics_without_rule": [str(one) for one in missing],
        "raters": fitted.raters,
        "roles_not_fitted": fitted.roles_not_fitted,
        "check_rows": fitted.refused,
        "skipped_files": [str(bad) for bad in fitted.skipped],
    }
    print_summary(out, summary, json)
    sys.exit(PROBLEM_FOUND if fitted.roles_not_fitted else 0)


def _profiles(file: Path) -> tuple[PhaseProfile, ...]:
    try:
        return from_json(tuple[PhaseProfile, ...], file.read_text("utf-8"), tolerant=True)
    except (WireError, UnicodeDecodeError) as error:
        fail(f"{file}: invalid profiles: {error}")


@spark.command(
    "calibrate",
    short_help="Estimate scenario parameters from delivery records.",
    epilog="Example: firedex spark calibrate records planned.yaml --out calibrated",
)
@click.argument("records", type=SOURCE)
@scenario_argument
@click.option("--site", help="Site whose records are used; required if there are several sites.")
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
    """Estimate rates, sizes, losses, bandwidths and bursts from delivery records.

    A declared value is kept unless the records differ from it significantly. The report shows
    whether the estimates improve predictions: parameters from the earlier half of the records
    predict the later half.

    RECORDS is a Parquet file or a folder of Parquet files. SCENARIO must contain the assignment
    that was active (`firedex plan --write planned.yaml`). Writes overlay.yaml (changed values),
    calibrated.yaml (the whole scenario), estimates.json, quarantine.json and report.html.
    Exit code 1 if predictions of the later half became worse.
    """
    declared = read_scenario_or_exit(scenario)
    if declared.assignment is None:
        fail(f"{scenario}: has no assignment; create one with firedex plan {scenario} --write FILE")
    with job_results("calibrate", out, CALIBRATION_RESULTS, [records], master, memory) as (
        session,
        folder,
    ):
        calibration = calibrate(session, records, declared, log_progress, site=site)
        write_calibration(calibration, folder)
    summary = {
        "site": calibration.site,
        "changed_parameters": len(calibration.overlay),
        "unchanged_parameters": sum(one.as_declared for one in calibration.estimates),
        "error_before": asdict(calibration.before),
        "error_after": asdict(calibration.after),
        "better": calibration.is_better,
        "worse": calibration.is_worse,
        "check_rows": dict(calibration.refused),
        "skipped_files": [str(bad) for bad in calibration.skipped],
    }
    print_summary(out, summary, json)
    sys.exit(PROBLEM_FOUND if calibration.is_worse else 0)


@spark.command(
    "plan-sites",
    short_help="Plan many sites.",
    epilog="Example: firedex spark plan-sites fleet.parquet --out plans",
)
@click.argument("fleet", type=SOURCE)
@job_options
def plan_sites_command(fleet: Path, out: Path, master: str | None, memory: str, json: bool) -> None:
    """Plan every site of a table of sites.

    FLEET is a Parquet file or a folder of Parquet files with the columns site and scenario (JSON).
    Writes plans/ (one row for each subscription, or one row with the error of a site),
    quarantine.json and summary.json. Exit code 1 if a site could not be planned.
    """
    with job_results("plan-sites", out, FLEET_RESULTS, [fleet], master, memory) as (
        session,
        folder,
    ):
        start = time.perf_counter()
        outcome = plan_sites(session, fleet, folder, log_progress)
        seconds = time.perf_counter() - start
        write_outcome(outcome, folder)
    summary = {
        "sites": outcome.sites,
        "subscriptions": outcome.subscriptions,
        "utility": outcome.utility,
        "failed_sites": len(outcome.failed),
        "failed": outcome.failed if json else _first_entries(outcome.failed),
        "subscriptions_per_second": round(outcome.subscriptions / seconds),
        "skipped_files": [str(bad) for bad in outcome.skipped],
    }
    print_summary(out, summary, json)
    sys.exit(PROBLEM_FOUND if outcome.failed else 0)


def _first_entries(entries: Mapping[str, str]) -> dict[str, str]:
    return dict(list(entries.items())[:MAX_SHOWN])


@spark.command(
    "simulate-sweep",
    short_help="Simulate a grid of parameter values.",
    epilog="Example: firedex spark simulate-sweep planned.yaml --grid grid.yaml --out sweep",
)
@scenario_argument
@click.option(
    "--grid",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="YAML file with a list of values for each path, such as network.switches.core.error_rate.",
)
@click.option(
    "--replications",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Number of runs for each point.",
)
@click.option(
    "--publications",
    type=click.IntRange(1, 50_000_000),
    default=100_000,
    show_default=True,
    help="Number of publications in each run.",
)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of the random generator."
)
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
    """Simulate every combination of the values of a grid, in parallel.

    Writes sweep.jsonl (one point in each line) and report.html. A point that cannot be simulated
    is listed there with its error, and the exit code is 1.
    """
    base = read_scenario_or_exit(scenario)
    with job_results("simulate-sweep", out, SWEEP_RESULTS, [grid], master, memory) as (
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
            report_progress=log_progress,
        )
        write_sweep(points, folder)
    failed = [f"{dict(point.values)}: {point.error}" for point in points if point.error]
    summary = {
        "points": len(points),
        "failed_points": len(failed),
        "failed": failed if json else failed[:MAX_SHOWN],
        **best_point(points),
    }
    print_summary(out, summary, json)
    sys.exit(PROBLEM_FOUND if failed else 0)


spark.add_command(validate_delays_command)
spark.add_command(arrange_records_command)
spark.add_command(generate)

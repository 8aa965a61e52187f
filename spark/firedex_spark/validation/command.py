"""The commands ``validate-delays`` and ``arrange-records``."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import click

from firedex_spark.errors import NoInput, UnreadablePredictions
from firedex_spark.job_command import (
    PROBLEM_FOUND,
    SOURCE,
    Finite,
    job_options,
    job_results,
    log_progress,
    print_summary,
    report_errors,
)
from firedex_spark.output_folder import locked_folder
from firedex_spark.records.arrange import arrange_records
from firedex_spark.records.predictions import DEFAULT_SITE, PredictedSubscription, read_predictions
from firedex_spark.report import write_quarantine
from firedex_spark.session import spark_session
from firedex_spark.validation.job import Validation, validate_delays
from firedex_spark.validation.report import describe_alarm, write_validation
from firedex_spark.validation.stream import follow_delays
from firedex_spark.validation.verdicts import Bounds

__all__ = ["arrange_records_command", "validate_delays_command"]

DEFAULT_BOUNDS = Bounds()


BOUND = Finite(min=0.0)
LEVEL = Finite(0, 1, min_open=True, max_open=True)
VALIDATION_RESULTS = ("measured.parquet", "quarantine.json", "report.html", "state", "checkpoint")
ARRANGE_RESULTS = ("quarantine.json", "records")


@click.command(
    "validate-delays",
    short_help="Compare predicted and measured delays.",
    epilog="Example: firedex spark validate-delays records --predictions plan.json --out validated",
)
@click.argument("records", type=SOURCE)
@click.option(
    "--predictions",
    type=SOURCE,
    required=True,
    help="File or folder with predictions: configurations or plans (JSON), or Parquet files.",
)
@click.option(
    "--site",
    default=DEFAULT_SITE,
    show_default=True,
    help="Site of plans that do not name one (`firedex plan --json`).",
)
@click.option(
    "--run",
    "runs",
    multiple=True,
    help="Use only the records of this run; may be given several times.",
)
@click.option(
    "--delay-bound",
    type=BOUND,
    default=DEFAULT_BOUNDS.delay,
    show_default=True,
    help="Allowed relative error of a mean delay.",
)
@click.option(
    "--delay-bound-seconds",
    type=BOUND,
    default=DEFAULT_BOUNDS.delay_seconds,
    show_default=True,
    help="Allowed absolute error of a mean delay, if it is larger than that of --delay-bound.",
)
@click.option(
    "--success-bound",
    type=BOUND,
    default=DEFAULT_BOUNDS.success,
    show_default=True,
    help="Allowed absolute error of a success rate.",
)
@click.option(
    "--drift-bound",
    type=BOUND,
    default=DEFAULT_BOUNDS.drift,
    show_default=True,
    help="Allowed relative change of a mean delay during a run.",
)
@click.option(
    "--level",
    type=LEVEL,
    default=DEFAULT_BOUNDS.level,
    show_default=True,
    help="Probability that a report contains a false alarm.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Keep running and process files as they are added. The command can be restarted any time.",
)
@click.option("--once", is_flag=True, help="With --follow: process new files and exit.")
@job_options
def validate_delays_command(
    records: Path,
    predictions: Path,
    site: str,
    runs: tuple[str, ...],
    delay_bound: float,
    delay_bound_seconds: float,
    success_bound: float,
    drift_bound: float,
    level: float,
    follow: bool,
    once: bool,
    out: Path,
    master: str | None,
    memory: str,
    json: bool,
) -> None:
    """Compare delivery records with the predictions of the active configurations.

    RECORDS is a Parquet file or a folder of Parquet files, flat or by site and day. Writes
    measured.parquet, quarantine.json and report.html. Exit code 1 if a prediction does not hold,
    2 if no prediction could be judged.
    """
    if once and not follow:
        raise click.UsageError("--once requires --follow")
    bounds = Bounds(
        delay=delay_bound,
        delay_seconds=delay_bound_seconds,
        success=success_bound,
        drift=drift_bound,
        level=level,
    )
    last_predictions: list[PredictedSubscription] = []
    results: list[Validation] = []

    def current_predictions() -> list[PredictedSubscription]:
        try:
            last_predictions[:] = read_predictions(predictions, site)
        except UnreadablePredictions as error:
            if not last_predictions:
                raise
            log_progress(f"keeping the earlier predictions: {error}")
        return last_predictions

    def on_result(validation: Validation) -> None:
        write_validation(validation, out)
        known = results[0].skipped if results else ()
        for bad in validation.skipped if follow else ():
            if bad not in known:
                log_progress(f"skipped: {bad}")
        results[:] = [validation]
        log_progress(f"{validation.records} records: {len(validation.alarming)} alarms")

    with (
        report_errors(),
        locked_folder(out, VALIDATION_RESULTS, [records, predictions]),
        spark_session("validate-delays", master=master, memory=memory) as session,
    ):
        if follow:
            with _stop_on_interrupt() as stop:
                follow_delays(
                    session,
                    records,
                    current_predictions,
                    out,
                    bounds=bounds,
                    runs=runs,
                    once=once,
                    on_result=on_result,
                    report_progress=log_progress,
                    stop=stop,
                )
        else:
            on_result(
                validate_delays(
                    session, records, current_predictions(), bounds, log_progress, runs=runs
                )
            )
        if not results:
            raise NoInput(records, "delivery records")
        results[0].check()
    alarming = results[0].alarming
    summary = {
        "records": results[0].records,
        "rows": len(results[0].rows),
        "alarms": len(alarming),
        "first_alarms": [describe_alarm(row) for row in alarming[:10]],
        "configurations_without_records": len(results[0].without_records),
        "check_rows": dict(results[0].refused),
        "skipped_files": [str(bad) for bad in results[0].skipped],
    }
    print_summary(out, summary, json)
    sys.exit(PROBLEM_FOUND if alarming else 0)


@contextmanager
def _stop_on_interrupt() -> Iterator[Event]:
    """Yield an event that the first interrupt sets; Spark's own handler would cancel the batch."""
    stop = Event()

    def on_interrupt(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        log_progress("stopping after the current batch")
        stop.set()

    previous_handler = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous_handler)


@click.command(
    "arrange-records",
    short_help="Sort delivery records by site and day.",
    epilog="Example: firedex spark arrange-records records --out arranged",
)
@click.argument("records", type=SOURCE)
@job_options
def arrange_records_command(
    records: Path, out: Path, master: str | None, memory: str, json: bool
) -> None:
    """Sort flat record files into folders by site and day, which other jobs read faster.

    Writes records/site=NAME/day=DATE and quarantine.json. Duplicates are kept. Rows without a site
    are counted and not written.
    """
    with job_results("arrange-records", out, ARRANGE_RESULTS, [records], master, memory) as (
        session,
        folder,
    ):
        rows, refused, skipped = arrange_records(session, records, folder, log_progress)
        write_quarantine(folder, skipped)
    summary = {
        "records": rows,
        "check_rows": refused,
        "skipped_files": [str(bad) for bad in skipped],
    }
    print_summary(out, summary, json)

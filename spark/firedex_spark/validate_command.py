"""``firedex spark validate-delays`` and ``arrange-records``: thin."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import click

from firedex_spark.arrange_records import arrange_records
from firedex_spark.errors import NoInput, UnreadablePredictions
from firedex_spark.job_command import (
    ALARM,
    SOURCE,
    job_options,
    reasons_told,
    say,
    tell,
    writing,
)
from firedex_spark.measured_row import Bounds
from firedex_spark.number_options import Finite
from firedex_spark.output_folder import own_folder
from firedex_spark.prediction_files import USUAL_SITE, PredictedSubscription, read_predictions
from firedex_spark.report_files import write_quarantine
from firedex_spark.session import spark_session
from firedex_spark.validate_delays import Validation, validate_delays
from firedex_spark.validate_stream import follow_delays
from firedex_spark.validation_report import alarm_in_words, write_validation

__all__ = ["arrange_records_command", "validate_delays_command"]

USUAL = Bounds()


BOUND = Finite(min=0.0)
LEVEL = Finite(0, 1, min_open=True, max_open=True)
OWN = ("measured.parquet", "quarantine.json", "report.html", "state", "checkpoint")
ARRANGED = ("quarantine.json", "records")


@click.command(
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
@click.option(
    "--delay-bound",
    type=BOUND,
    default=USUAL.delay,
    show_default=True,
    help="By what part a mean delay may be off.",
)
@click.option(
    "--delay-bound-seconds",
    type=BOUND,
    default=USUAL.delay_seconds,
    show_default=True,
    help="Or by how much, if that is more.",
)
@click.option(
    "--success-bound",
    type=BOUND,
    default=USUAL.success,
    show_default=True,
    help="By how much a success rate may be off.",
)
@click.option(
    "--drift-bound",
    type=BOUND,
    default=USUAL.drift,
    show_default=True,
    help="By what part a mean delay may rise or fall over the time of a run.",
)
@click.option(
    "--level",
    type=LEVEL,
    default=USUAL.level,
    show_default=True,
    help="The probability of any false alarm in a report.",
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
    drift_bound: float,
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
        delay=delay_bound,
        delay_seconds=delay_bound_seconds,
        success=success_bound,
        drift=drift_bound,
        level=level,
    )
    said: list[PredictedSubscription] = []
    last: list[Validation] = []

    def present() -> list[PredictedSubscription]:
        try:
            said[:] = read_predictions(predictions, site)
        except UnreadablePredictions as error:
            if not said:
                raise
            say(f"predictions stay as they were: {error}")
        return said

    def told(validation: Validation) -> None:
        write_validation(validation, out)
        known = last[0].left_out if last else ()
        for bad in validation.left_out if follow else ():
            if bad not in known:
                say(f"left out: {bad}")
        last[:] = [validation]
        say(f"{validation.records} records: {len(validation.alarming)} alarms")

    with (
        reasons_told(),
        own_folder(out, OWN, [records, predictions]),
        spark_session("validate-delays", master=master, memory=memory) as session,
    ):
        if follow:
            with _ended_by_an_interrupt() as stop:
                follow_delays(
                    session,
                    records,
                    present,
                    out,
                    bounds=bounds,
                    runs=runs,
                    once=once,
                    told=told,
                    say=say,
                    stop=stop,
                )
        else:
            told(validate_delays(session, records, present(), bounds, say, runs=runs))
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
    tell(out, summary, json)
    sys.exit(ALARM if alarming else 0)


@contextmanager
def _ended_by_an_interrupt() -> Iterator[Event]:
    """Set by the first one, in place of what Spark does: that would tear down what is at work."""
    stop = Event()

    def interrupted(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        say("ending")
        stop.set()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@click.command(
    "arrange-records",
    short_help="Sort records by site and day.",
    epilog="Example: firedex spark arrange-records records --out arranged",
)
@click.argument("records", type=SOURCE)
@job_options
def arrange_records_command(
    records: Path, out: Path, master: str | None, memory: str, json: bool
) -> None:
    """Sort flat files into folders by site and day, which other jobs read faster.

    Writes records/site=NAME/day=DATE and quarantine.json. Copies stay; rows without a site, which
    belong in no folder, are counted and left out.
    """
    with writing("arrange-records", out, ARRANGED, [records], master, memory) as (session, folder):
        rows, refused, left_out = arrange_records(session, records, folder, say)
        write_quarantine(folder, left_out)
    summary = {
        "records": rows,
        "refused_rows": refused,
        "files_left_out": [str(bad) for bad in left_out],
    }
    tell(out, summary, json)

"""What ``validate-delays`` writes: data for machines, a page for people."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firedex_spark.html_report import Page, plot
from firedex_spark.measured_row import WRONG_CLOCK, Bounds, MeasuredRow
from firedex_spark.output_folder import replaced
from firedex_spark.report_files import (
    milliseconds,
    say_what_was_left_out,
    write_quarantine,
)
from firedex_spark.validate_delays import MEASURED_COLUMNS, Validation

__all__ = ["alarm_in_words", "write_validation"]

TEXTS = ("site", "subscriber", "filter", "method", "verdict")
WHOLE = ("configuration_version", "priority", "offered", "delivered", "wrong_clocks")
COLUMNS = [name for name in MEASURED_COLUMNS if name != "means"]
TYPES = {
    **dict.fromkeys(TEXTS, pa.string()),
    **dict.fromkeys(WHOLE, pa.int64()),
    "wanders": pa.bool_(),
}
SCHEMA = pa.schema([(name, TYPES.get(name, pa.float64())) for name in COLUMNS])
MOST_PLOTS = 6
HEADINGS = (
    "what",
    "offered",
    "success",
    "predicted",
    "mean ms",
    "± ms",
    "predicted ms",
    "off by",
    "p95 ms",
    "predicted ms",
    "p99 ms",
    "in time",
    "predicted",
    "drift",
    "verdict",
)


def write_validation(validation: Validation, folder: Path) -> None:
    """``measured.parquet``, ``quarantine.json``, ``report.html``."""
    rows = [{name: getattr(row, name) for name in COLUMNS} for row in validation.rows]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    replaced(folder / "measured.parquet", lambda path: pq.write_table(table, path))
    write_quarantine(folder, validation.left_out)
    _page(validation).write(folder / "report.html")


def alarm_in_words(row: MeasuredRow) -> str:
    """What is wrong, with the figures."""
    said = f"{_name(row)}: {row.verdict}"
    if row.verdict == "delay out of bounds":
        said += f", mean {_ms(row.delay_mean_seconds)} ± {_ms(row.delay_mean_half_width_seconds)}"
        said += f" ms, predicted {_ms(row.predicted_delay_mean_seconds)} ms"
    elif row.verdict == "success out of bounds":
        said += f", {row.success_rate:.3f} ± {row.success_rate_half_width or 0.0:.3f}"
        said += f", predicted {row.predicted_success_rate:.3f}"
    elif row.verdict == "drifts":
        said += f", mean delay changes by {row.drift or 0.0:+.1%} over the time"
    elif row.verdict == WRONG_CLOCK:
        said += ", more than 1 % was received before it was published; no delay is judged"
    return said


def _page(validation: Validation) -> Page:
    page, bounds = Page("Predicted and measured delays"), validation.bounds
    rows, alarms = validation.rows, validation.alarming
    page.text(
        f"{validation.records} records. {len(alarms)} of {len(rows)} rows are out of bounds or "
        f"drift. Bounds: mean delay {bounds.delay:.0%} or {bounds.delay_seconds * 1e3:g} ms, "
        f"success {bounds.success:g}, drift {bounds.drift:.0%} over a run; the chance of any false "
        f"alarm in this report is at most {bounds.level:.0%}. “Off by” is how far the measured "
        "mean is above (+) or below (-) the predicted one."
    )
    page.items([alarm_in_words(row) for row in alarms[:20]])
    _say_what_is_missing(page, validation)
    page.table(("verdict", "rows"), Counter(row.verdict for row in rows).most_common())
    if any(_is_plotted(row) for row in rows):
        page.image(_beside(rows, bounds), "predicted and measured mean delays")
    classes = [row for row in rows if row.subscriber is None]
    page.heading("Classes")
    _table(page, classes)
    shown = sorted((row for row in classes if row.means), key=lambda row: not row.alarming)
    for row in shown[:MOST_PLOTS]:
        page.image(_over_time(row), f"class {row.priority} of {row.site} over time")
    page.heading("Subscriptions")
    _table(page, [row for row in rows if row.subscriber is not None])
    return page


def _say_what_is_missing(page: Page, validation: Validation) -> None:
    say_what_was_left_out(page, validation.left_out, validation.refused)
    if validation.unrecorded:
        page.text(
            f"{len(validation.unrecorded)} predicted configurations have no record at all, such "
            f"as {validation.unrecorded[0][0]} version {validation.unrecorded[0][1]}."
        )
    page.items(
        f"{_name(row)} is without {row.wrong_clocks} subscribers whose clock is wrong."
        for row in validation.rows
        if row.subscriber is None and row.wrong_clocks
    )
    if any(row.delivered and row.success_rate is None for row in validation.rows):
        page.text(
            "Where success is –, the records are of deliveries alone, as clients keep them: "
            "success is not judged there, and “in time” is of what arrived."
        )


def _table(page: Page, rows: list[MeasuredRow]) -> None:
    page.table(
        HEADINGS,
        [
            (
                _name(row),
                row.offered,
                row.success_rate,
                row.predicted_success_rate,
                milliseconds(row.delay_mean_seconds),
                milliseconds(row.delay_mean_half_width_seconds),
                milliseconds(row.predicted_delay_mean_seconds),
                None if row.relative_error is None else f"{row.relative_error:+.1%}",
                milliseconds(row.delay_p95_seconds),
                milliseconds(row.predicted_delay_p95_seconds),
                milliseconds(row.delay_p99_seconds),
                row.timely_fraction,
                row.predicted_timely_fraction,
                None if row.drift is None else f"{row.drift:+.1%}",
                row.verdict,
            )
            for row in rows
        ],
        [row.alarming for row in rows],
    )


def _name(row: MeasuredRow) -> str:
    what = f"class {row.priority}"
    if row.subscriber is not None:
        what = f"{row.subscriber} {row.filter} ({what})"
    return f"{row.site} v{row.configuration_version} {what}"


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g}"


def _is_plotted(row: MeasuredRow) -> bool:
    return bool(row.delay_mean_half_width_seconds and row.predicted_delay_mean_seconds)


def _beside(rows: tuple[MeasuredRow, ...], bounds: Bounds) -> bytes:
    """Every row that has both: on the line it is as predicted, in the band within bounds."""
    shown = [row for row in rows if _is_plotted(row)]

    def draw(axes: Any) -> None:
        both = [
            value * 1e3
            for row in shown
            for value in (row.predicted_delay_mean_seconds, row.delay_mean_seconds)
            if value
        ]
        ends = (min(both) / 1.5, max(both) * 1.5)
        at = np.geomspace(*ends, 200)
        allowed = np.array([bounds.delay_allowed(each / 1e3) * 1e3 for each in at])
        axes.plot(ends, ends, color="black", linewidth=1)
        low = np.maximum(at - allowed, ends[0] / 10)
        axes.fill_between(at, low, at + allowed, color="0.9", label="bounds")
        for alarming, colour, label in (
            (False, "tab:blue", "no alarm"),
            (True, "tab:red", "alarm"),
        ):
            of = [row for row in shown if row.alarming == alarming]
            axes.errorbar(
                [(row.predicted_delay_mean_seconds or 0.0) * 1e3 for row in of],
                [(row.delay_mean_seconds or 0.0) * 1e3 for row in of],
                yerr=[(row.delay_mean_half_width_seconds or 0.0) * 1e3 for row in of],
                fmt="o",
                markersize=4,
                color=colour,
                label=label,
            )
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set(xlabel="predicted mean delay (ms)", ylabel="measured, 95 % interval (ms)")
        axes.legend()

    return plot(draw, height=5.0)


def _over_time(row: MeasuredRow) -> bytes:
    def draw(axes: Any) -> None:
        axes.plot([mean * 1e3 for mean in row.means], marker=".", label="measured")
        if row.predicted_delay_mean_seconds is not None:
            axes.axhline(row.predicted_delay_mean_seconds * 1e3, color="black", label="predicted")
        axes.set(title=_name(row), xlabel="batch", ylabel="mean delay (ms)")
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.legend()

    return plot(draw, height=2.5)

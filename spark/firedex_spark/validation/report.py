"""The files that ``validate-delays`` writes: data and an HTML page."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from firedex_spark.output_folder import write_table
from firedex_spark.report import Page, add_skipped_input, milliseconds, plot, write_quarantine
from firedex_spark.validation.job import MEASURED_COLUMNS, Validation
from firedex_spark.validation.verdicts import WRONG_CLOCK, Bounds, MeasuredRow

__all__ = ["describe_alarm", "write_validation"]

TEXTS = ("site", "subscriber", "filter", "method", "verdict")
INTEGERS = ("configuration_version", "priority", "offered", "delivered", "wrong_clocks")
COLUMNS = [name for name in MEASURED_COLUMNS if name != "means"]
TYPES = {
    **dict.fromkeys(TEXTS, pa.string()),
    **dict.fromkeys(INTEGERS, pa.int64()),
    "wanders": pa.bool_(),
}
SCHEMA = pa.schema([(name, TYPES.get(name, pa.float64())) for name in COLUMNS])
MAX_PLOTS = 6
HEADINGS = (
    "subscription or class",
    "offered",
    "success rate",
    "predicted",
    "mean ms",
    "± ms",
    "predicted ms",
    "error",
    "p95 ms",
    "predicted ms",
    "p99 ms",
    "timely fraction",
    "predicted",
    "drift",
    "verdict",
)


def write_validation(validation: Validation, folder: Path) -> None:
    """Write ``measured.parquet``, ``quarantine.json`` and ``report.html``."""
    rows = [{name: getattr(row, name) for name in COLUMNS} for row in validation.rows]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    write_table(folder / "measured.parquet", table)
    write_quarantine(folder, validation.skipped)
    _page(validation).write(folder / "report.html")


def describe_alarm(row: MeasuredRow) -> str:
    """Return a sentence with the figures of an alarm."""
    text = f"{_name(row)}: {row.verdict}"
    if row.verdict == "delay out of bounds":
        text += f", mean {_ms(row.delay_mean_seconds)} ± {_ms(row.delay_mean_half_width_seconds)}"
        text += f" ms, predicted {_ms(row.predicted_delay_mean_seconds)} ms"
    elif row.verdict == "success out of bounds":
        text += f", {row.success_rate:.3f} ± {row.success_rate_half_width or 0.0:.3f}"
        text += f", predicted {row.predicted_success_rate:.3f}"
    elif row.verdict == "drift":
        text += f", mean delay changes by {row.drift or 0.0:+.1%} during the run"
    elif row.verdict == WRONG_CLOCK:
        text += ", more than 1 % of deliveries were received before publication; not judged"
    return text


def _page(validation: Validation) -> Page:
    page, bounds = Page("Predicted and measured delays"), validation.bounds
    rows, alarms = validation.rows, validation.alarming
    page.text(
        f"{validation.records} records. {len(alarms)} of {len(rows)} rows have an alarm. Bounds: "
        f"mean delay {bounds.delay:.0%} or {bounds.delay_seconds * 1e3:g} ms, success rate "
        f"{bounds.success:g}, drift {bounds.drift:.0%} during a run. The probability of any false "
        f"alarm in this report is at most {bounds.level:.0%}. “Error” is the relative difference "
        "between the measured and the predicted mean delay."
    )
    page.items([describe_alarm(row) for row in alarms[:20]])
    _add_missing_data(page, validation)
    page.table(("verdict", "rows"), Counter(row.verdict for row in rows).most_common())
    if any(_is_plotted(row) for row in rows):
        page.image(_plot_predicted_and_measured(rows, bounds), "predicted and measured mean delays")
    classes = [row for row in rows if row.subscriber is None]
    page.heading("Classes")
    _table(page, classes)
    plotted = sorted((row for row in classes if row.means), key=lambda row: not row.alarming)
    for row in plotted[:MAX_PLOTS]:
        page.image(_plot_over_time(row), f"class {row.priority} of {row.site} over time")
    page.heading("Subscriptions")
    _table(page, [row for row in rows if row.subscriber is not None])
    return page


def _add_missing_data(page: Page, validation: Validation) -> None:
    add_skipped_input(page, validation.skipped, validation.refused)
    if validation.without_records:
        site, version = validation.without_records[0]
        page.text(
            f"{len(validation.without_records)} predicted configurations have no records, for "
            f"example {site} version {version}."
        )
    page.items(
        f"{_name(row)} excludes {row.wrong_clocks} subscribers with a wrong clock."
        for row in validation.rows
        if row.subscriber is None and row.wrong_clocks
    )
    if any(row.delivered and row.success_rate is None for row in validation.rows):
        page.text(
            "Where the success rate is –, the records hold deliveries only, as clients write them: "
            "success is not judged, and the timely fraction refers to deliveries."
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
    name = f"class {row.priority}"
    if row.subscriber is not None:
        name = f"{row.subscriber} {row.filter} ({name})"
    return f"{row.site} v{row.configuration_version} {name}"


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g}"


def _is_plotted(row: MeasuredRow) -> bool:
    return bool(row.delay_mean_half_width_seconds and row.predicted_delay_mean_seconds)


def _plot_predicted_and_measured(rows: tuple[MeasuredRow, ...], bounds: Bounds) -> bytes:
    """Plot measured over predicted mean delays, with the bounds as a band."""
    plotted = [row for row in rows if _is_plotted(row)]

    def draw(axes: Any) -> None:
        both = [
            value * 1e3
            for row in plotted
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
            of = [row for row in plotted if row.alarming == alarming]
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


def _plot_over_time(row: MeasuredRow) -> bytes:
    def draw(axes: Any) -> None:
        axes.plot([mean * 1e3 for mean in row.means], marker=".", label="measured")
        if row.predicted_delay_mean_seconds is not None:
            axes.axhline(row.predicted_delay_mean_seconds * 1e3, color="black", label="predicted")
        axes.set(title=_name(row), xlabel="batch", ylabel="mean delay (ms)")
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.legend()

    return plot(draw, height=2.5)

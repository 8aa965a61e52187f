"""What each job writes into its output folder: data for machines, a page for people."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from firedex.wire import SimulationReport, to_json, to_plain
from firedex_spark.calibrate import Calibration
from firedex_spark.delay_verdicts import MeasuredRow
from firedex_spark.errors import BadFile
from firedex_spark.html_report import Page, plot
from firedex_spark.output_folder import write_whole
from firedex_spark.plan_sites import FleetOutcome
from firedex_spark.profile_files import ProfileChange, profiles_of
from firedex_spark.simulate_sweep import SweepPoint
from firedex_spark.utility_weights import FittedWeights
from firedex_spark.validate_delays import Validation

__all__ = [
    "CALIBRATION_RESULTS",
    "FLEET_RESULTS",
    "SWEEP_RESULTS",
    "WEIGHTS_RESULTS",
    "write_calibration",
    "write_fleet_outcome",
    "write_sweep",
    "write_validation",
    "write_weights",
]

WEIGHTS_RESULTS = ("profiles.json", "worths.json", "quarantine.json", "report.html")
CALIBRATION_RESULTS = (
    "overlay.yaml",
    "calibrated.yaml",
    "estimates.json",
    "quarantine.json",
    "report.html",
)
FLEET_RESULTS = ("plans", "quarantine.json", "summary.json")
SWEEP_RESULTS = ("sweep.jsonl", "report.html")
"""What each job writes; the last is put in its place last."""
TEXTS = ("site", "subscriber", "filter", "method", "verdict")
WHOLE = ("configuration_version", "priority", "offered", "delivered")
MOST_PLOTS = 6
MEASURED_HEADINGS = (
    "what",
    "offered",
    "success",
    "predicted",
    "mean ms",
    "± ms",
    "predicted ms",
    "error",
    "p95 ms",
    "p99 ms",
    "in time",
    "drift",
    "verdict",
)


def _write_json(path: Path, data: object) -> None:
    write_whole(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def _quarantine(folder: Path, left_out: Sequence[BadFile]) -> None:
    said = [
        {"file": str(bad.file), "error": type(bad).__name__, "reason": bad.reason}
        for bad in left_out
    ]
    _write_json(folder / "quarantine.json", said)


def _what_was_left_out(page: Page, left_out: Sequence[BadFile], refused: dict[str, int]) -> None:
    page.items([f"left out: {bad}" for bad in left_out])
    page.items([f"{count} rows refused: {reason}" for reason, count in refused.items()])


def write_validation(validation: Validation, folder: Path) -> None:
    """``measured.parquet``, ``quarantine.json``, ``report.html``."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{k: v for k, v in asdict(row).items() if k != "means"} for row in validation.rows]
    names = list(rows[0]) if rows else ["site"]
    schema = pa.schema(
        [
            (n, pa.string() if n in TEXTS else pa.int64() if n in WHOLE else pa.float64())
            for n in names
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "measured.parquet")
    _quarantine(folder, validation.left_out)
    _validation_page(validation).write(folder / "report.html")


def _validation_page(validation: Validation) -> Page:
    page, bounds = Page("Predicted and measured delays"), validation.bounds
    alarms = validation.alarming
    page.text(
        f"{validation.records} records. {len(alarms)} of {len(validation.rows)} rows are out of "
        f"bounds or drift. Bounds: mean delay {bounds.delay:.0%} or {bounds.delay_seconds * 1e3:g} "
        f"ms, success {bounds.success:g}; the chance of any false alarm in this report is at most "
        f"{bounds.level:.0%}."
    )
    _what_was_left_out(page, validation.left_out, dict(validation.refused))
    classes = [row for row in validation.rows if row.subscriber is None]
    page.heading("Classes")
    _measured_table(page, classes)
    for row in [r for r in classes if r.means][:MOST_PLOTS]:
        page.image(_over_time(row), f"class {row.priority} of {row.site} over time")
    page.heading("Subscriptions")
    _measured_table(page, [row for row in validation.rows if row.subscriber is not None])
    return page


def _measured_table(page: Page, rows: list[MeasuredRow]) -> None:
    page.table(
        MEASURED_HEADINGS,
        [
            (
                _name(row),
                row.offered,
                row.success_rate,
                row.predicted_success_rate,
                _ms(row.delay_mean_seconds),
                _ms(row.delay_mean_half_width_seconds),
                _ms(row.predicted_delay_mean_seconds),
                None if row.relative_error is None else f"{row.relative_error:+.1%}",
                _ms(row.delay_p95_seconds),
                _ms(row.delay_p99_seconds),
                row.timely_fraction,
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


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _over_time(row: MeasuredRow) -> bytes:
    def draw(axes: Any) -> None:
        axes.plot([mean * 1e3 for mean in row.means], marker=".", label="measured")
        if row.predicted_delay_mean_seconds is not None:
            axes.axhline(row.predicted_delay_mean_seconds * 1e3, color="black", label="predicted")
        axes.set(title=_name(row), xlabel="batch", ylabel="mean delay (ms)", ylim=(0, None))
        axes.legend()

    return plot(draw, height=2.5)


def write_weights(fitted: FittedWeights, changes: Sequence[ProfileChange], folder: Path) -> None:
    """``WEIGHTS_RESULTS``: ``profiles.json`` is for the service."""
    profiles = profiles_of(fitted.worths)
    _write_json(folder / "profiles.json", [to_plain(profile) for profile in profiles])
    _write_json(folder / "worths.json", [asdict(worth) for worth in fitted.worths])
    _quarantine(folder, fitted.left_out)
    page = Page("What information is worth")
    page.text(
        f"{fitted.feedback} rows of feedback, {fitted.copies} of them copies. A weight is the "
        "worth on the scale of ratings, 1 to 5; with few ratings it is near that of its class of "
        "topics."
    )
    _what_was_left_out(page, fitted.left_out, fitted.refused)
    page.items([f"{role} is not fitted: {why}" for role, why in fitted.not_fitted.items()])
    page.heading("How people rate")
    figures = ("bias_spread", "noise", "top_of_scale_share", "topic_spread", "class_spread")
    page.table(
        ("role", *(name.replace("_", " ") for name in figures)),
        [(role, *(said[name] for name in figures)) for role, said in fitted.raters.items()],
    )
    page.image(plot(lambda axes: _draw_worths(axes, fitted)), "worth and its interval")
    page.heading("What changed, and why")
    page.table(
        ("filter", "role", "phase", "before", "now", "95 % interval", "why"),
        [
            (c.filter, c.role, c.phase, c.before, c.after, _interval(c.interval), c.why)
            for c in changes
        ],
    )
    page.write(folder / "report.html")


def _interval(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _draw_worths(axes: Any, fitted: FittedWeights) -> None:
    for role in fitted.raters:
        worths = sorted(
            (w for w in fitted.worths if w.role == role and w.topic), key=lambda w: w.worth
        )
        at = [worth.worth for worth in worths]
        half = [worth.interval[1] - worth.worth for worth in worths]
        axes.errorbar(range(len(at)), at, yerr=half, fmt=".", label=role)
    axes.set(xlabel="topics, by worth", ylabel="worth (points)")
    if fitted.raters:
        axes.legend()


def write_calibration(done: Calibration, folder: Path) -> None:
    """``CALIBRATION_RESULTS``: what changes, and the whole scenario with it."""
    overlay = yaml.safe_dump(done.overlay, sort_keys=False, allow_unicode=True)
    (folder / "overlay.yaml").write_text(overlay, "utf-8")
    plain = {k: v for k, v in to_plain(done.scenario).items() if v is not None}
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    (folder / "calibrated.yaml").write_text(text, "utf-8")
    _write_json(folder / "estimates.json", [asdict(one) for one in done.estimates])
    _quarantine(folder, done.left_out)
    page = Page("The model's parameters, from what was delivered")
    page.text(f"From the records of {done.site}.")
    _what_was_left_out(page, done.left_out, dict(done.refused))
    page.heading("Predictions before and after")
    page.table(
        ("", "median error of delays", "worst", "worst error of success"),
        [
            (name, f"{error.delay_median:.1%}", f"{error.delay_worst:.1%}", error.success_worst)
            for name, error in (("declared", done.before), ("calibrated", done.after))
        ],
    )
    page.heading("Parameters")
    page.table(
        ("parameter", "of", "declared", "estimated", "±", "in the overlay", "note"),
        [
            (
                e.kind,
                e.name,
                e.declared,
                e.estimated,
                e.half_width,
                "yes" if e.applied else "no",
                e.note,
            )
            for e in done.estimates
        ],
    )
    page.write(folder / "report.html")


def write_fleet_outcome(outcome: FleetOutcome, folder: Path) -> None:
    """Beside the plans: ``quarantine.json``, ``summary.json``."""
    _quarantine(folder, outcome.left_out)
    said = {k: v for k, v in asdict(outcome).items() if k != "left_out"}
    _write_json(folder / "summary.json", said)


def write_sweep(points: Sequence[SweepPoint], folder: Path) -> None:
    """``SWEEP_RESULTS``: ``sweep.jsonl`` has a point in each line."""
    lines = [
        f'{{"values": {json.dumps(dict(point.values))}, {_outcome_of(point)}}}' for point in points
    ]
    (folder / "sweep.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    page = Page("A sweep of simulations")
    names = list(points[0].values)
    page.table(
        (*names, "achieved utility", "highest class ms", "lowest class ms", "error"),
        [
            (*(point.values[name] for name in names), *_figures(point.report), point.error)
            for point in points
        ],
        [point.error is not None for point in points],
    )

    def draw(axes: Any) -> None:
        done = [(n, p.report.achieved_utility_rate) for n, p in enumerate(points) if p.report]
        axes.plot([n for n, _ in done], [rate for _, rate in done], marker=".")
        axes.set(xlabel="point of the grid", ylabel="achieved utility rate", ylim=(0, 1.05))

    page.image(plot(draw), "achieved utility over the grid")
    page.write(folder / "report.html")


def _outcome_of(point: SweepPoint) -> str:
    if point.report is None:
        return f'"error": {json.dumps(point.error)}'
    return f'"report": {to_json(point.report)}'


def _figures(report: SimulationReport | None) -> tuple[float | None, ...]:
    if report is None:
        return None, None, None
    first, last = report.classes[0], report.classes[-1]
    delays = _ms(first.delay_mean_seconds), _ms(last.delay_mean_seconds)
    return report.achieved_utility_rate, *delays

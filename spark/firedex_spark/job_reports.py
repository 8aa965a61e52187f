"""What each job writes into its output folder: data for machines, a page for people."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from firedex.wire import to_plain
from firedex_spark.calibrate import Calibration
from firedex_spark.html_report import Page, plot
from firedex_spark.plan_sites import FleetOutcome
from firedex_spark.profile_files import ProfileChange, profiles_of, without_a_rule
from firedex_spark.report_files import (
    say_what_was_left_out,
    write_json,
    write_quarantine,
)
from firedex_spark.utility_weights import FittedWeights

__all__ = [
    "CALIBRATION_RESULTS",
    "FLEET_RESULTS",
    "WEIGHTS_RESULTS",
    "write_calibration",
    "write_fleet_outcome",
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
"""What each job writes; the last is put in its place last."""


def write_weights(fitted: FittedWeights, changes: Sequence[ProfileChange], folder: Path) -> None:
    """``WEIGHTS_RESULTS``: ``profiles.json`` is for the service."""
    profiles = profiles_of(fitted.worths)
    write_json(folder / "profiles.json", [to_plain(profile) for profile in profiles])
    write_json(folder / "worths.json", [asdict(worth) for worth in fitted.worths])
    write_quarantine(folder, fitted.left_out)
    page = Page("What information is worth")
    page.text(
        f"{fitted.feedback} rows of feedback, {fitted.copies} of them copies. A weight is the "
        "worth in points, on the scale behind the ratings: an opinion from 4.5 on is rated 5, so "
        "that what nearly everybody rates 5 is worth more than 5, and what everybody rates 1 may "
        "be worth less than 1 (a weight is never below 0.01). With few ratings it is near that "
        "of its class of topics."
    )
    say_what_was_left_out(page, fitted.left_out, fitted.refused)
    page.items([f"{role} is not fitted: {why}" for role, why in fitted.not_fitted.items()])
    page.heading("How people rate")
    figures = ("bias_spread", "noise", "top_of_scale_share", "topic_spread", "class_spread")
    page.table(
        ("role", *(name.replace("_", " ") for name in figures)),
        [(role, *(said[name] for name in figures)) for role, said in fitted.raters.items()],
    )
    page.image(plot(lambda axes: _draw_worths(axes, fitted)), "worth and its interval")
    page.heading("What changed, and why")
    page.items([str(one) for one in without_a_rule(fitted.worths)])
    page.table(
        ("filter", "role", "phase", "before", "now", "95 % interval", "why"),
        [
            (c.filter, c.role, c.phase, c.before, c.after, _interval(c.interval), c.why)
            for c in changes
        ],
    )
    page.write(folder / "report.html")


def _interval(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


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
    write_json(folder / "estimates.json", [asdict(one) for one in done.estimates])
    write_quarantine(folder, done.left_out)
    page = Page("The model's parameters, from what was delivered")
    page.text(f"From the records of {done.site}.")
    say_what_was_left_out(page, done.left_out, dict(done.refused))
    page.heading("Predictions before and after")
    page.text(
        "Errors in the later half of every run, which nothing was estimated from for this table: "
        "of what is declared, and with what the earlier half says. The overlay is then estimated "
        f"from both halves. {_verdict(done)}"
    )
    page.table(
        ("", "median error of delays", "worst", "worst error of success"),
        [
            (name, f"{error.delay_median:.1%}", f"{error.delay_worst:.1%}", error.success_worst)
            for name, error in (("declared", done.before), ("calibrated", done.after))
        ],
    )
    page.heading("Parameters")
    page.text(
        "What chance explains stays as declared, judged for all parameters together at 5 %. How "
        "fast a broker and a switch's tables work is not told by records from end to end, and "
        "stays as declared too."
    )
    page.table(
        ("parameter", "of", "declared", "estimated", "95 % interval", "in the overlay", "note"),
        [
            (
                e.kind,
                e.name,
                e.declared,
                e.estimated,
                _interval(e.interval),
                "yes" if e.applied else "as declared" if e.as_declared else "no",
                e.note,
            )
            for e in done.estimates
        ],
    )
    page.write(folder / "report.html")


def _verdict(done: Calibration) -> str:
    noise = done.before.delay_noise
    if done.better:
        return "Predictions of delays are better with it."
    if done.worse:
        return "Predictions of delays are worse with it: do not use it without a look at why."
    if done.before == done.after:
        return "They are the same: nothing that matters to predictions is changed."
    measured = "" if noise is None else f" (the measured means are uncertain by {noise:.1%})"
    return f"Which of both is better the records do not tell{measured}."


def write_fleet_outcome(outcome: FleetOutcome, folder: Path) -> None:
    """Beside the plans: ``quarantine.json``, ``summary.json``."""
    write_quarantine(folder, outcome.left_out)
    said = {k: v for k, v in asdict(outcome).items() if k != "left_out"}
    write_json(folder / "summary.json", said)

"""The files that ``fit-utility-weights`` writes: profiles, worths and an HTML page."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from firedex.wire import to_plain
from firedex_spark.report import (
    Page,
    add_skipped_input,
    interval_text,
    plot,
    write_json,
    write_quarantine,
)
from firedex_spark.weights.job import FittedWeights
from firedex_spark.weights.profiles import ProfileChange, make_profiles, topics_without_rule

__all__ = ["WEIGHTS_RESULTS", "write_weights"]

WEIGHTS_RESULTS = ("profiles.json", "worths.json", "quarantine.json", "report.html")


def write_weights(fitted: FittedWeights, changes: Sequence[ProfileChange], folder: Path) -> None:
    """Write ``WEIGHTS_RESULTS``."""
    profiles = make_profiles(fitted.worths)
    write_json(folder / "profiles.json", [to_plain(profile) for profile in profiles])
    write_json(folder / "worths.json", [asdict(worth) for worth in fitted.worths])
    write_quarantine(folder, fitted.skipped)
    page = Page("Utility weights learnt from feedback")
    page.text(
        f"{fitted.feedback} rows of feedback, {fitted.duplicates} of them duplicates. A weight is "
        "the worth in points on the scale behind the ratings: an opinion of 4.5 or more is rated "
        "5, so a topic that nearly everybody rates 5 has a weight above 5, and one that everybody "
        "rates 1 may have a weight below 1 (at least 0.01). With few ratings a weight is near that "
        "of the topic class."
    )
    add_skipped_input(page, fitted.skipped, fitted.refused)
    page.items([f"{role} is not fitted: {why}" for role, why in fitted.roles_not_fitted.items()])
    page.heading("Raters")
    figures = ("bias_spread", "noise", "top_of_scale_share", "topic_spread", "class_spread")
    page.table(
        ("role", *(name.replace("_", " ") for name in figures)),
        [(role, *(said[name] for name in figures)) for role, said in fitted.raters.items()],
    )
    page.image(plot(lambda axes: _draw_worths(axes, fitted)), "worth and its interval")
    page.heading("Changes of rules")
    page.items([str(one) for one in topics_without_rule(fitted.worths)])
    page.table(
        ("filter", "role", "phase", "before", "now", "95 % interval", "reason"),
        [
            (c.filter, c.role, c.phase, c.before, c.after, interval_text(c.interval), c.why)
            for c in changes
        ],
    )
    page.write(folder / "report.html")


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

"""Plots of a run: by class, over time and by subscription."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from firedex_emulation.measurement.comparison import ModeMeasurement
from firedex_emulation.testbed.modes import MODE_TITLES

__all__ = ["plot_classes", "plot_over_time", "plot_subscriptions"]

COLOURS = mpl.colormaps["viridis"]
MODE_COLOURS = {"none": "#888888", "priority": "#d08700", "firedex": "#0b6e4f"}
MIN_SECONDS = 1e-4
MAX_LABELLED_CHANGES = 12
"""With more changes than this, joins and leaves are not labelled."""


def plot_classes(measured: Sequence[ModeMeasurement], folder: Path) -> Path:
    """Plot delay and success of each class in each mode: measured bars, predicted marks."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    delay, success = figure.subplots(1, 2)
    width = 0.8 / max(len(measured), 1)
    for number, mode in enumerate(measured):
        at = np.array([row.priority for row in mode.classes]) + (number - len(measured) / 2) * width
        colour = MODE_COLOURS[mode.mode]
        delay.bar(
            at,
            [row.delay_mean_seconds or np.nan for row in mode.classes],
            width,
            align="edge",
            color=colour,
            label=MODE_TITLES[mode.mode],
            yerr=[row.delay_half_width_seconds or 0.0 for row in mode.classes],
        )
        predicted = [row.delay_mean_predicted_seconds or np.nan for row in mode.classes]
        delay.plot(at + width / 2, predicted, "k_", markersize=9)
        success.bar(
            at,
            [row.success_measured for row in mode.classes],
            width,
            align="edge",
            color=colour,
            label=MODE_TITLES[mode.mode],
        )
        success.plot(
            at + width / 2, [row.success_predicted or np.nan for row in mode.classes], "k_"
        )
    delay.set(yscale="log", xlabel="class (0 is the highest)", ylabel="mean delay, seconds")
    success.set(xlabel="class (0 is the highest)", ylabel="delivered", ylim=(0, 1.05))
    figure.legend(
        *success.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(measured),
        title="bars: measured, marks: predicted",
        fontsize="small",
    )
    return _save(figure, folder / "classes.svg")


def plot_over_time(mode: ModeMeasurement, folder: Path) -> Path:
    """Plot delay and success of each class by second, and mark the changes."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    delay, success = figure.subplots(2, 1, sharex=True)
    classes = sorted({row.priority for row in mode.by_second})
    for priority in classes:
        rows = [row for row in mode.by_second if row.priority == priority]
        colour = COLOURS(priority / max(max(classes), 1))
        seconds = [row.second for row in rows]
        values = [row.delay_mean_seconds or np.nan for row in rows]
        delay.plot(seconds, values, color=colour, label=f"class {priority}")
        success.plot(seconds, [row.delivered / row.sent for row in rows], color=colour)
    label_all = len(mode.reconfigurations) <= MAX_LABELLED_CHANGES
    for change in mode.reconfigurations:
        for panel in (delay, success):
            panel.axvline(change.at_seconds, color="#c00", linewidth=0.6, alpha=0.6)
        if label_all or change.kind not in ("join", "leave"):
            _add_label(delay, change.at_seconds, change.description)
    delay.set(yscale="log", ylabel="mean delay, seconds", title=MODE_TITLES[mode.mode])
    success.set(xlabel="seconds into the run", ylabel="delivered", ylim=(0, 1.05))
    figure.legend(fontsize="x-small", ncols=8, loc="outside lower center")
    return _save(figure, folder / f"over-time-{mode.mode}.svg")


def _add_label(panel: Any, at: float, text: str) -> None:
    panel.annotate(
        text,
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        rotation=90,
        fontsize="x-small",
        ha="right",
        va="top",
        color="#c00",
    )


def plot_subscriptions(measured: Sequence[ModeMeasurement], folder: Path) -> Path:
    """Plot the mean delays of all subscriptions, measured against predicted."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    panel = figure.subplots()
    largest, least = 1.0, MIN_SECONDS
    for mode in measured:
        pairs = [
            (row.delay_mean_predicted_seconds, row.delay_mean_seconds)
            for row in mode.subscriptions
            if row.delay_mean_predicted_seconds and row.delay_mean_seconds
        ]
        if pairs:
            x, y = zip(*pairs, strict=True)
            panel.plot(
                x, y, "o", color=MODE_COLOURS[mode.mode], label=MODE_TITLES[mode.mode], alpha=0.7
            )
            largest, least = max(largest, *x, *y), min(*x, *y, largest)
    span = np.array([least, largest])
    panel.plot(span, span, "k-", linewidth=0.8)
    panel.fill_between(span, span / 1.2, span * 1.2, color="#888", alpha=0.2)
    panel.set(xscale="log", yscale="log", xlabel="predicted, seconds", ylabel="measured, seconds")
    panel.legend(fontsize="small", title="band: within 20 %")
    return _save(figure, folder / "subscriptions.svg")


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path)
    figure.savefig(path.with_suffix(".png"), dpi=120)
    return path

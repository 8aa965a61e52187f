"""Figures as PNG and SVG."""

from itertools import cycle
from pathlib import Path
from typing import Any

from firedex.reproduction.figure import Figure, Panel

__all__ = ["plot"]

COLUMNS = 3
WIDTH, HEIGHT = 4.6, 3.4


def plot(figure: Figure, folder: Path) -> list[Path]:
    """Draw a figure; lines are the model, points with error bars the simulation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # half a second to import
    from matplotlib.figure import Figure as Drawing

    columns = min(COLUMNS, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    drawing = Drawing(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
    FigureCanvasAgg(drawing)
    drawing.suptitle(figure.title)
    axes = drawing.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, figure.panels, strict=False):
        _draw(axis, panel)
    for axis in axes[len(figure.panels) :]:
        axis.set_visible(False)
    paths = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        drawing.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _draw(axis: Any, panel: Panel) -> None:
    colours = dict.fromkeys(series.label for series in panel.series)
    palette = cycle(["C0", "C1", "C2", "C3", "C4", "C5", "C6"])
    colour = {label: next(palette) for label in colours}
    for number, series in enumerate(panel.series):
        known = [
            (x, y, row)
            for row, (x, y) in enumerate(zip(series.x, series.y, strict=True))
            if y is not None
        ]
        if not known:
            continue
        xs = [x for x, _, _ in known]
        ys = [y for _, y, _ in known]
        error = None
        if series.half_width is not None:
            error = [series.half_width[row] or 0.0 for _, _, row in known]
        if panel.bars:
            width = 0.8 / len(panel.series)
            places = [x + (number - (len(panel.series) - 1) / 2) * width for x in xs]
            axis.bar(places, ys, width, yerr=error, label=series.label, color=f"C{number}")
        elif series.by == "simulation":
            axis.errorbar(
                xs, ys, yerr=error, fmt="o", ms=4, color=colour[series.label], label=series.label
            )
        else:
            style = "--" if "paper" in series.label else "-"
            shown = (
                series.label
                if not any(
                    other.label == series.label and other.by == "simulation"
                    for other in panel.series
                )
                else None
            )
            axis.plot(xs, ys, style, color=colour[series.label], label=shown)
    axis.set_title(panel.title, fontsize=8)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    if panel.log_y:
        axis.set_yscale("log")
    elif "%" in panel.y_label:
        axis.set_ylim(0, 105)
    if panel.ticks:
        axis.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=30, ha="right", fontsize=7)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)

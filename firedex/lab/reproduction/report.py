"""Files of the reproduction: data, plots, and a report of the claims that hold."""

import csv
import html
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from firedex.lab.reproduction.figure import Effort, Figure, Panel

__all__ = ["STYLE", "plot", "write_figure", "write_report"]

STYLE = (
    "<style>body{font:15px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.3rem .6rem;"
    "text-align:left;vertical-align:top}img{max-width:100%}</style>"
)

INTRODUCTION = (
    "Each row has a claim of the paper, the result measured here, the verdict, and the reason if "
    "the claim does not hold. Points are simulations with 95 % confidence intervals over random "
    "scenarios; lines are the model."
)


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write the data as CSV and the plot as PNG and SVG; return the paths."""
    data = folder / f"{figure.name}.csv"
    with data.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["panel", "series", "by", "x", "y", "half_width", "unit"])
        for panel in figure.panels:
            for series in panel.series:
                for row, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
                    half = series.half_width[row] if series.half_width else None
                    writer.writerow(
                        [panel.title, series.label, series.by, x, y, half, panel.y_label]
                    )
    return [data, *plot(figure, folder)]


def write_report(figures: Sequence[Figure], effort: Effort, folder: Path) -> list[Path]:
    """Write the report as Markdown and as HTML; return the paths."""
    markdown, page = folder / "report.md", folder / "report.html"
    markdown.write_text(_markdown(figures, effort), "utf-8")
    page.write_text(_html(figures, effort), "utf-8")
    return [markdown, page]


def _method(effort: Effort) -> str:
    return (
        f"Each point is the mean of {effort.seeds} random scenarios of Table 2, each simulated "
        f"once with about {effort.publications} publications. Bandwidths are set so that the loads "
        "are those of the paper (§5.2)."
    )


def _markdown(figures: Sequence[Figure], effort: Effort) -> str:
    lines = ["# The paper's evaluation, reproduced", "", INTRODUCTION, "", _method(effort), ""]
    for figure in figures:
        lines += [f"## {figure.name}: {figure.title}", "", f"![{figure.title}]({figure.name}.svg)"]
        lines += ["", "| claim of the paper | measured | verdict | reason |", "|---|---|---|---|"]
        for claim in figure.claims:
            lines.append(
                f"| {claim.paper} | {claim.measured} | **{claim.verdict}** | {claim.why} |"
            )
        lines.append("")
    return "\n".join(lines)


def _html(figures: Sequence[Figure], effort: Effort) -> str:
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<title>The paper's evaluation, reproduced</title>",
        STYLE,
        "<h1>The paper's evaluation, reproduced</h1>",
        f"<p>{html.escape(INTRODUCTION)}</p><p>{html.escape(_method(effort))}</p>",
    ]
    for figure in figures:
        parts.append(f"<h2>{figure.name}: {html.escape(figure.title)}</h2>")
        parts.append(f"<img src='{figure.name}.svg' alt='{html.escape(figure.title)}'>")
        parts.append("<table><tr><th>claim of the paper<th>measured<th>verdict<th>reason</tr>")
        for claim in figure.claims:
            cells = (claim.paper, claim.measured, claim.verdict, claim.why)
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells) + "</tr>")
        parts.append("</table>")
    return "\n".join(parts) + "\n"


COLUMNS = 3
WIDTH, HEIGHT = 4.6, 3.4


def plot(figure: Figure, folder: Path) -> list[Path]:
    """Draw a figure; lines are the model, points with error bars are the simulation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # the import takes half a second
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

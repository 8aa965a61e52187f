"""Figures as files: data, plots, and a report that says what holds."""

import csv
import html
from collections.abc import Sequence
from pathlib import Path

from firedex.reproduction.effort import Effort
from firedex.reproduction.figure import Figure
from firedex.reproduction.plots import plot

__all__ = ["write_figure", "write_report"]

INTRODUCTION = (
    "Each row: what the paper says, what was measured here, whether the one follows from the "
    "other, and why not where it does not. Points are simulations with 95 % confidence intervals "
    "over scenarios drawn anew, lines are the model."
)


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """The data as CSV, the plot as PNG and SVG."""
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
    """The report, as Markdown and as HTML."""
    markdown, page = folder / "report.md", folder / "report.html"
    markdown.write_text(_markdown(figures, effort), "utf-8")
    page.write_text(_html(figures, effort), "utf-8")
    return [markdown, page]


def _how(effort: Effort) -> str:
    return (
        f"{effort.seeds} scenarios drawn from Table 2 for each point, each simulated once with "
        f"about {effort.publications} publications. Bandwidths are such that the loads are those "
        "that the paper states (§5.2)."
    )


def _markdown(figures: Sequence[Figure], effort: Effort) -> str:
    lines = ["# The paper's evaluation, reproduced", "", INTRODUCTION, "", _how(effort), ""]
    for figure in figures:
        lines += [f"## {figure.name}: {figure.title}", "", f"![{figure.title}]({figure.name}.svg)"]
        lines += ["", "| the paper says | measured | | why |", "|---|---|---|---|"]
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
        "<style>body{font:15px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.3rem .6rem;"
        "text-align:left;vertical-align:top}img{max-width:100%}</style>",
        "<h1>The paper's evaluation, reproduced</h1>",
        f"<p>{html.escape(INTRODUCTION)}</p><p>{html.escape(_how(effort))}</p>",
    ]
    for figure in figures:
        parts.append(f"<h2>{figure.name}: {html.escape(figure.title)}</h2>")
        parts.append(f"<img src='{figure.name}.svg' alt='{html.escape(figure.title)}'>")
        parts.append("<table><tr><th>the paper says<th>measured<th><th>why</tr>")
        for claim in figure.claims:
            cells = (claim.paper, claim.measured, claim.verdict, claim.why)
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells) + "</tr>")
        parts.append("</table>")
    return "\n".join(parts) + "\n"

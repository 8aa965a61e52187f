"""The files that ``simulate-sweep`` writes: points as JSON and an HTML page. Does not use Spark."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from firedex.wire import SimulationReport, to_json
from firedex_spark.report import Page, milliseconds, plot
from firedex_spark.sweep.job import SweepPoint

__all__ = ["SWEEP_RESULTS", "best_point", "points_by_line", "write_sweep"]

SWEEP_RESULTS = ("sweep.jsonl", "report.html")
"""The last file is published last."""
MAX_LINES = 10
UTILITY_TOLERANCE = 1e-9

Figures = tuple[float, float | None]
"""Achieved utility rate, and the mean delay of the highest class in milliseconds."""


def write_sweep(points: Sequence[SweepPoint], folder: Path) -> None:
    """Write ``SWEEP_RESULTS``: ``sweep.jsonl`` has one point in each line."""
    lines = [
        f'{{"values": {json.dumps(dict(point.values))}, {_outcome_text(point)}}}'
        for point in points
    ]
    (folder / "sweep.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    page = Page("Simulated grid of parameters")
    names = list(points[0].values)
    page.table(
        (*names, "achieved utility", "highest class ms", "lowest class ms", "error"),
        [
            (*(point.values[name] for name in names), *_figures(point.report), point.error)
            for point in points
        ],
        [point.error is not None for point in points],
    )
    for name in names:
        if len({str(point.values[name]) for point in points}) > 1:
            page.heading(f"Over {name}")
            page.image(_plot_lines(points, name), f"utility and delay over {name}")
    page.write(folder / "report.html")


def best_point(points: Sequence[SweepPoint]) -> dict[str, Any]:
    """Return the point with the highest utility; of equal ones that with the lowest delay."""
    done = [(*_utility_and_delay(point), dict(point.values)) for point in points if point.report]
    highest_utility = max((utility for utility, _, _ in done), default=None)
    best_points = [
        one
        for one in done
        if highest_utility is not None and one[0] >= highest_utility - UTILITY_TOLERANCE
    ]
    best = min(best_points, key=lambda one: one[1] or 0.0, default=None)
    return {
        "best_values": best[2] if best else None,
        "best_achieved_utility_rate": best[0] if best else None,
        "points_with_same_utility": len(best_points),
    }


def points_by_line(
    points: Sequence[SweepPoint], name: str
) -> Iterator[tuple[str, list[tuple[Any, Figures]]]]:
    """Yield the points that differ only in ``name``, sorted by its value, with a label."""
    groups: dict[str, list[tuple[Any, Figures]]] = {}
    for point in points:
        if point.report is None:
            continue
        others = {key: value for key, value in point.values.items() if key != name}
        label = ", ".join(f"{key.rsplit('.', 1)[-1]} {_short(v)}" for key, v in others.items())
        groups.setdefault(label, []).append((point.values[name], _utility_and_delay(point)))
    for label, members in groups.items():
        numbers = all(isinstance(value, int | float) for value, _ in members)
        yield label, sorted(members, key=lambda one: one[0]) if numbers else members


def _plot_lines(points: Sequence[SweepPoint], name: str) -> bytes:
    lines = list(points_by_line(points, name))

    def draw(panels: Any) -> None:
        utility, delay = panels
        for label, members in lines[:MAX_LINES]:
            at = [value if isinstance(value, int | float) else str(value) for value, _ in members]
            utility.plot(at, [figures[0] for _, figures in members], "o-", label=label)
            delay.plot(at, [figures[1] for _, figures in members], "o-", label=label)
        utility.set(ylabel="achieved utility rate")
        delay.set(ylabel="highest class, mean delay (ms)", xlabel=name)
        if lines and lines[0][0]:
            hidden_lines = len(lines) - MAX_LINES
            title = f"{hidden_lines} more lines are not shown" if hidden_lines > 0 else None
            utility.legend(
                fontsize="small", title=title, loc="center left", bbox_to_anchor=(1.01, 0.5)
            )

    return plot(draw, height=6.0, rows=2)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _utility_and_delay(point: SweepPoint) -> Figures:
    utility, first, _ = _figures(point.report)
    return utility or 0.0, first


def _outcome_text(point: SweepPoint) -> str:
    if point.report is None:
        return f'"error": {json.dumps(point.error)}'
    return f'"report": {to_json(point.report)}'


def _figures(report: SimulationReport | None) -> tuple[float | None, ...]:
    if report is None:
        return None, None, None
    first, last = report.classes[0], report.classes[-1]
    delays = milliseconds(first.delay_mean_seconds), milliseconds(last.delay_mean_seconds)
    return report.achieved_utility_rate, *delays

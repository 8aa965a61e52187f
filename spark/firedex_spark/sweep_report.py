"""The page of a sweep: every point, and how what comes out follows each value. Knows no Spark."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from firedex.wire import SimulationReport, to_json
from firedex_spark.html_report import Page, plot
from firedex_spark.report_files import milliseconds
from firedex_spark.simulate_sweep import SweepPoint

__all__ = ["SWEEP_RESULTS", "best_of", "lines_over", "write_sweep"]

SWEEP_RESULTS = ("sweep.jsonl", "report.html")
"""The last is put in its place last."""
MOST_LINES = 10
SAME = 1e-9

Figures = tuple[float, float | None]
"""Achieved utility rate, and the mean delay of the highest class in milliseconds."""


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
    for name in names:
        if len({str(point.values[name]) for point in points}) > 1:
            page.heading(f"Over {name}")
            page.image(_drawn(points, name), f"utility and delay over {name}")
    page.write(folder / "report.html")


def best_of(points: Sequence[SweepPoint]) -> dict[str, Any]:
    """The point of the highest utility; of several alike, that of the soonest highest class."""
    done = [(*_of(point), dict(point.values)) for point in points if point.report]
    most = max((utility for utility, _, _ in done), default=None)
    alike = [one for one in done if most is not None and one[0] >= most - SAME]
    best = min(alike, key=lambda one: one[1] or 0.0, default=None)
    return {
        "best_values": best[2] if best else None,
        "best_achieved_utility_rate": best[0] if best else None,
        "points_as_good": len(alike),
    }


def lines_over(
    points: Sequence[SweepPoint], name: str
) -> Iterator[tuple[str, list[tuple[Any, Figures]]]]:
    """Points that are alike in every other value, by what that is, in the order of ``name``'s."""
    groups: dict[str, list[tuple[Any, Figures]]] = {}
    for point in points:
        if point.report is None:
            continue
        others = {key: value for key, value in point.values.items() if key != name}
        label = ", ".join(f"{key.rsplit('.', 1)[-1]} {_short(v)}" for key, v in others.items())
        groups.setdefault(label, []).append((point.values[name], _of(point)))
    for label, members in groups.items():
        numbers = all(isinstance(value, int | float) for value, _ in members)
        yield label, sorted(members, key=lambda one: one[0]) if numbers else members


def _drawn(points: Sequence[SweepPoint], name: str) -> bytes:
    lines = list(lines_over(points, name))

    def draw(panels: Any) -> None:
        utility, delay = panels
        for label, members in lines[:MOST_LINES]:
            at = [value if isinstance(value, int | float) else str(value) for value, _ in members]
            utility.plot(at, [figures[0] for _, figures in members], "o-", label=label)
            delay.plot(at, [figures[1] for _, figures in members], "o-", label=label)
        utility.set(ylabel="achieved utility rate")
        delay.set(ylabel="highest class, mean delay (ms)", xlabel=name)
        if lines and lines[0][0]:
            beyond = len(lines) - MOST_LINES
            title = f"and {beyond} more, not drawn" if beyond > 0 else None
            utility.legend(
                fontsize="small", title=title, loc="center left", bbox_to_anchor=(1.01, 0.5)
            )

    return plot(draw, height=6.0, rows=2)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _of(point: SweepPoint) -> Figures:
    utility, first, _ = _figures(point.report)
    return utility or 0.0, first


def _outcome_of(point: SweepPoint) -> str:
    if point.report is None:
        return f'"error": {json.dumps(point.error)}'
    return f'"report": {to_json(point.report)}'


def _figures(report: SimulationReport | None) -> tuple[float | None, ...]:
    if report is None:
        return None, None, None
    first, last = report.classes[0], report.classes[-1]
    delays = milliseconds(first.delay_mean_seconds), milliseconds(last.delay_mean_seconds)
    return report.achieved_utility_rate, *delays

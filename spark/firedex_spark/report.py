"""Reports: one HTML page with tables and plots, and JSON files. Does not import Spark."""

import base64
import html
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from firedex.system.files import write_atomically
from firedex_spark.errors import BadFile

__all__ = [
    "Page",
    "add_skipped_input",
    "interval_text",
    "milliseconds",
    "plot",
    "write_json",
    "write_quarantine",
]


STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .6rem;"
    "text-align:right}td:first-child,th:first-child{text-align:left;white-space:nowrap}tr.alarm{background:#fdd}"
    "img{max-width:100%}"
)
MAX_TABLE_ROWS = 500


class Page:
    """An HTML page that is built from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title, self._parts = title, [f"<h1>{html.escape(title)}</h1>"]

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def heading(self, text: str) -> None:
        """Add a heading."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def items(self, text: Iterable[str]) -> None:
        """Add a list, unless it is empty."""
        lines = "".join(f"<li>{html.escape(one)}</li>" for one in text)
        if lines:
            self._parts.append(f"<ul>{lines}</ul>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        alarming: Sequence[bool] = (),
    ) -> None:
        """Add a table; a long one is cut, with highlighted rows first."""
        highlighted = list(alarming) or [False] * len(rows)
        order = sorted(range(len(rows)), key=lambda row: not highlighted[row])
        self._parts.append("<table><tr>" + "".join(f"<th>{html.escape(c)}" for c in columns))
        for row in order[:MAX_TABLE_ROWS]:
            kind = " class='alarm'" if highlighted[row] else ""
            cells = "".join(f"<td>{html.escape(_cell_text(cell))}" for cell in rows[row])
            self._parts.append(f"<tr{kind}>{cells}")
        self._parts.append("</table>")
        if len(rows) > MAX_TABLE_ROWS:
            self.text(
                f"{len(rows) - MAX_TABLE_ROWS} more rows are in the data files beside this page."
            )

    def image(self, png: bytes, alternative_text: str) -> None:
        """Add a plot."""
        data = base64.b64encode(png).decode()
        self._parts.append(
            f"<img alt='{html.escape(alternative_text)}' src='data:image/png;base64,{data}'>"
        )

    def write(self, path: Path) -> None:
        """Write the page in one step."""
        head = "<!doctype html><html lang='en'><meta charset='utf-8'>"
        head += f"<title>{html.escape(self._title)}</title><style>{STYLE}</style>"
        write_atomically(path, "\n".join([head, *self._parts]) + "\n")


def _cell_text(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def plot(
    draw: Callable[[Any], None], *, width: float = 8.0, height: float = 4.0, rows: int = 1
) -> bytes:
    """Call ``draw`` with one pair of axes, or with ``rows`` pairs; return the plot as PNG."""
    import matplotlib as mpl  # workers import jobs and do not need it

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(rows, 1, figsize=(width, height), sharex=True)
    try:
        draw(axes)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        return buffer.getvalue()
    finally:
        plt.close(figure)


def write_json(path: Path, data: object) -> None:
    """Write data as JSON in one step."""
    write_atomically(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def write_quarantine(folder: Path, skipped: Sequence[BadFile]) -> None:
    """Write ``quarantine.json``: every skipped file and the reason."""
    text = [
        {"file": str(bad.file), "error": type(bad).__name__, "reason": bad.reason}
        for bad in skipped
    ]
    write_json(folder / "quarantine.json", text)


def add_skipped_input(page: Page, skipped: Sequence[BadFile], refused: Mapping[str, int]) -> None:
    """Add the files and rows that were not used, with reasons."""
    page.items([f"skipped: {bad}" for bad in skipped])
    page.items([f"{count} rows refused: {reason}" for reason, count in refused.items()])


def milliseconds(seconds: float | None) -> float | None:
    """Return seconds as milliseconds."""
    return None if seconds is None else seconds * 1e3


def interval_text(interval: tuple[float, float] | None) -> str | None:
    """Return an interval as a table shows it."""
    return None if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"

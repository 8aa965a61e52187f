"""Reports as one HTML file each: tables, and plots inside the page. Knows nothing of Spark."""

import base64
import html
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from firedex_spark.output_folder import write_whole

__all__ = ["Page", "plot"]

STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .6rem;"
    "text-align:right}td:first-child,th:first-child{text-align:left;white-space:nowrap}tr.alarm{background:#fdd}"
    "img{max-width:100%}"
)
LONGEST_TABLE = 500


class Page:
    """A page that grows from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title, self._parts = title, [f"<h1>{html.escape(title)}</h1>"]

    def text(self, said: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{html.escape(said)}</p>")

    def heading(self, said: str) -> None:
        """A heading."""
        self._parts.append(f"<h2>{html.escape(said)}</h2>")

    def items(self, said: Iterable[str]) -> None:
        """A list; nothing if it is empty."""
        lines = "".join(f"<li>{html.escape(one)}</li>" for one in said)
        if lines:
            self._parts.append(f"<ul>{lines}</ul>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        alarming: Sequence[bool] = (),
    ) -> None:
        """A table; of a long one the first rows, alarming ones before others."""
        marked = list(alarming) or [False] * len(rows)
        order = sorted(range(len(rows)), key=lambda row: not marked[row])
        self._parts.append("<table><tr>" + "".join(f"<th>{html.escape(c)}" for c in columns))
        for row in order[:LONGEST_TABLE]:
            kind = " class='alarm'" if marked[row] else ""
            cells = "".join(f"<td>{html.escape(_shown(cell))}" for cell in rows[row])
            self._parts.append(f"<tr{kind}>{cells}")
        self._parts.append("</table>")
        if len(rows) > LONGEST_TABLE:
            self.text(f"… and {len(rows) - LONGEST_TABLE} more rows, in the data beside this page.")

    def image(self, png: bytes, about: str) -> None:
        """A plot."""
        data = base64.b64encode(png).decode()
        self._parts.append(f"<img alt='{html.escape(about)}' src='data:image/png;base64,{data}'>")

    def write(self, path: Path) -> None:
        """Write the page; it appears whole or not at all."""
        head = "<!doctype html><html lang='en'><meta charset='utf-8'>"
        head += f"<title>{html.escape(self._title)}</title><style>{STYLE}</style>"
        write_whole(path, "\n".join([head, *self._parts]) + "\n")


def _shown(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def plot(
    draw: Callable[[Any], None], *, width: float = 8.0, height: float = 4.0, rows: int = 1
) -> bytes:
    """What ``draw`` puts on a pair of axes, as PNG; on as many as ``rows``, over each other."""
    figure, axes = plt.subplots(rows, 1, figsize=(width, height), sharex=True)
    try:
        draw(axes)
        into = io.BytesIO()
        figure.savefig(into, format="png", dpi=110, bbox_inches="tight")
        return into.getvalue()
    finally:
        plt.close(figure)

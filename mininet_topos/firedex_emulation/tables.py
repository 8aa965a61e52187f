"""What was measured, on the terminal: a table for each way, and one for all ways."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from firedex.cli.output import console
from firedex_emulation.measurement import Group, WayMeasurement
from firedex_emulation.ways import TITLES
from firedex_emulation.wording import delay_text, share_text

__all__ = ["show"]

NOTICEABLE_STALL_SECONDS = 0.1
HEADINGS = ("class", "sent", "delivered", "predicted", "median", "mean", "predicted", "p95")


def show(measured: Sequence[WayMeasurement], written: Sequence[Path] = ()) -> None:
    """Print everything that somebody who looks once should see."""
    terminal = console()
    for way in measured:
        terminal.print(_classes(way))
        for note in way.notes:
            terminal.print(f"[yellow]{escape(note)}[/yellow]")
        if way.stalled_seconds > NOTICEABLE_STALL_SECONDS:
            terminal.print(
                f"[yellow]the machine itself stood still for {delay_text(way.stalled_seconds)} in "
                "all: what was under way then is later by as much[/yellow]"
            )
    terminal.print(_ways(measured))
    if any(way.reconfigurations for way in measured):
        terminal.print(_changes(measured))
    for path in written:
        terminal.print(f"written: {escape(str(path))}", soft_wrap=True)


def _classes(way: WayMeasurement) -> Table:
    title = f"{TITLES[way.way]} ({way.transport})"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("prediction")
    for row in way.classes:
        table.add_row(str(row.priority), *_cells(row))
    return table


def _cells(row: Group) -> list[str]:
    return [
        str(row.sent),
        share_text(row.success_measured),
        share_text(row.success_predicted),
        delay_text(row.delay_p50_seconds),
        delay_text(row.delay_mean_seconds),
        delay_text(row.delay_mean_predicted_seconds),
        delay_text(row.delay_p95_seconds),
        row.verdict,
    ]


def _ways(measured: Sequence[WayMeasurement]) -> Table:
    table = Table(title="All ways", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("way")
    for heading in ("highest class", "its median", "utility", "in time", "host time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for way in measured:
        top = way.classes[0] if way.classes else None
        table.add_row(
            TITLES[way.way],
            share_text(top.success_measured if top else None),
            delay_text(top.delay_p50_seconds if top else None),
            share_text(way.utility.achieved),
            share_text(way.utility.timely),
            delay_text(way.host_seconds),
        )
    return table


def _changes(measured: Sequence[WayMeasurement]) -> Table:
    table = Table(title="Changes", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("way")
    table.add_column("what")
    for heading in ("at", "in force after", "all moved after", "lost of class 0"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("trouble")
    for way in measured:
        for row in way.reconfigurations:
            table.add_row(
                TITLES[way.way],
                escape(row.what),
                f"{row.at_seconds:.1f} s",
                delay_text(row.acknowledged_seconds),
                delay_text(row.moved_seconds),
                "–" if row.lost_highest is None else str(row.lost_highest),
                escape(row.trouble or ""),
            )
    return table

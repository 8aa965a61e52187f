"""Tables on the terminal: one for each mode, and one for all modes."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from firedex.cli.output import console
from firedex_emulation.measurement.comparison import DeliveryStatistics, ModeMeasurement
from firedex_emulation.testbed.modes import MODE_TITLES

__all__ = ["delay_text", "print_tables", "share_text"]

NOTICEABLE_STALL_SECONDS = 0.1
HEADINGS = ("class", "sent", "delivered", "predicted", "median", "mean", "predicted", "p95")


def print_tables(measured: Sequence[ModeMeasurement], written: Sequence[Path] = ()) -> None:
    """Print the tables, the notes and the names of the written files."""
    terminal = console()
    for mode in measured:
        terminal.print(_classes_table(mode))
        for note in mode.notes:
            terminal.print(f"[yellow]{escape(note)}[/yellow]")
        if mode.stalled_seconds > NOTICEABLE_STALL_SECONDS:
            terminal.print(
                f"[yellow]the machine stalled for {delay_text(mode.stalled_seconds)} in all, which "
                "increases the measured delays[/yellow]"
            )
    terminal.print(_modes_table(measured))
    if any(mode.reconfigurations for mode in measured):
        terminal.print(_changes_table(measured))
    for path in written:
        terminal.print(f"written: {escape(str(path))}", soft_wrap=True)


def _classes_table(mode: ModeMeasurement) -> Table:
    title = f"{MODE_TITLES[mode.mode]} ({mode.transport})"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("prediction")
    for row in mode.classes:
        table.add_row(str(row.priority), *_cells(row))
    return table


def _cells(row: DeliveryStatistics) -> list[str]:
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


def _modes_table(measured: Sequence[ModeMeasurement]) -> Table:
    table = Table(title="All modes", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("mode")
    for heading in ("class 0", "median delay", "utility", "timely utility", "host time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for mode in measured:
        top = mode.classes[0] if mode.classes else None
        table.add_row(
            MODE_TITLES[mode.mode],
            share_text(top.success_measured if top else None),
            delay_text(top.delay_p50_seconds if top else None),
            share_text(mode.utility.achieved),
            share_text(mode.utility.timely),
            delay_text(mode.host_seconds),
        )
    return table


def _changes_table(measured: Sequence[ModeMeasurement]) -> Table:
    table = Table(title="Changes", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("mode")
    table.add_column("change")
    for heading in ("at", "active after", "applied by all after", "class 0 lost"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("error")
    for mode in measured:
        for row in mode.reconfigurations:
            table.add_row(
                MODE_TITLES[mode.mode],
                escape(row.description),
                f"{row.at_seconds:.1f} s",
                delay_text(row.acknowledged_seconds),
                delay_text(row.moved_seconds),
                "–" if row.lost_highest is None else str(row.lost_highest),
                escape(row.error_message or ""),
            )
    return table


def delay_text(seconds: float | None) -> str:
    """Return a delay in milliseconds, or in seconds from one second on."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"


def share_text(share: float | None) -> str:
    """Return a share in percent."""
    return "–" if share is None else f"{share:.1%}"

"""The state of a site's parts: a live table on a terminal, lines elsewhere, JSON for machines."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Protocol

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from firedex.site_up.supervisor import PartState, State

__all__ = ["JsonLines", "PlainLines", "StateView", "terminal_table"]

COLOURS = {State.UP: "green", State.SILENT: "yellow", State.DIED: "red"}


class StateView(Protocol):
    """Is told every change."""

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:
        """``changed`` is new; ``all_parts`` includes it."""


class PlainLines:
    """One line for each change."""

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:  # noqa: ARG002
        """Say it."""
        more = [changed.address, *(["elsewhere"] if changed.elsewhere else [])]
        more += [f"process {changed.pid}"] if changed.pid is not None else []
        detail = f": {changed.detail}" if changed.detail else ""
        click.echo(f"{changed.name}: {changed.state} ({', '.join(more)}){detail}")


class JsonLines:
    """One JSON object for each change."""

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:  # noqa: ARG002
        """Say it."""
        click.echo(json.dumps(asdict(changed)))


class _LiveTable:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:  # noqa: ARG002
        self._live.update(_table(all_parts), refresh=True)


@contextmanager
def terminal_table(terminal: Console) -> Iterator[StateView]:
    """A table that is kept up to date."""
    # It refreshes when something changes: a thread that does so by itself is one too many here.
    with Live(console=terminal, auto_refresh=False) as live:
        yield _LiveTable(live)


def _table(parts: Sequence[PartState]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("part", "state", "where", "process", "restarts"):
        table.add_column(heading, overflow="fold")
    for part in parts:
        said = escape(part.state + (f": {part.detail}" if part.detail else ""))
        colour = COLOURS.get(part.state)
        table.add_row(
            part.name,
            f"[{colour}]{said}[/{colour}]" if colour else said,
            escape(part.address),
            "elsewhere" if part.elsewhere else str(part.pid or ""),
            str(part.restarts or ""),
        )
    return table

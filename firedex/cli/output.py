"""Output of the commands: the console, JSON, tables, and errors."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import click
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.wire import ClassPrediction, Prediction, Scenario, SubscriptionPrediction, to_plain

__all__ = [
    "INPUT_ERROR",
    "as_json_text",
    "console",
    "delay_text",
    "fail",
    "first_names",
    "new_table",
    "show_prediction",
    "write_scenario",
]

INPUT_ERROR = 2
"""Exit code for errors that the user can fix."""
FILE_WIDTH = 160


def console() -> Console:
    """Return a console as wide as the terminal; for a file or pipe, long lines are not cut."""
    return Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)


def fail(message: str) -> NoReturn:
    """Print an error and exit."""
    click.echo(f"firedex: {message}", err=True)
    sys.exit(INPUT_ERROR)


def as_json_text(data: object) -> str:
    """Return indented JSON."""
    return json.dumps(data, indent=2)


def write_scenario(scenario: Scenario, path: Path) -> None:
    """Write a scenario as a YAML file and print its path."""
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    try:
        path.write_text(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), "utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    click.echo(f"wrote {path}", err=True)


MAX_NAMES = 3
WIDE_COLUMNS = 100
"""A terminal with this many columns also shows the less important table columns."""

Cell = Callable[[SubscriptionPrediction], str]


def show_prediction(console: Console, prediction: Prediction, *, everything: bool) -> None:
    """Print the prediction by class or by subscription, and the load of the network."""
    console.print(
        _subscription_table(prediction, console.width) if everything else _class_table(prediction)
    )
    loads = ", ".join(f"{s.id} {s.utilization:.1%}" for s in prediction.switches)
    console.print(
        f"load: {loads}; first to saturate: {prediction.first_to_saturate}", highlight=False
    )
    for queue in prediction.queues:
        if queue.reason:
            console.print(f"[yellow]{queue.id}: {queue.reason}[/yellow]", highlight=False)
    console.print(
        f"utility: {prediction.utility:.2f} of {prediction.maximum_utility:.2f} "
        f"({prediction.achieved_utility_rate:.1%}; mean per subscription "
        f"{prediction.achieved_utility_rate_per_subscription:.1%})",
        highlight=False,
    )
    missed = [row for row in prediction.subscriptions if row.deadline_met is False]
    names = f": {first_names([f'{s.subscriber} {s.filter}' for s in missed])}" if missed else ""
    console.print(
        f"within deadlines: {prediction.timely_utility:.2f}; "
        f"deadlines missed: {prediction.deadlines_missed}{escape(names)}",
        highlight=False,
    )


def _class_table(prediction: Prediction) -> Table:
    table = new_table(f"By class, {prediction.model} model")
    for heading in ("class", "filters", "offered/s", "drop", "delivered", "mean", "p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in prediction.classes:
        members = [s for s in prediction.subscriptions if s.priority == row.priority]
        drops = [s.drop_rate for s in members]
        table.add_row(
            str(row.priority),
            str(row.subscriptions),
            f"{row.offered_events_per_second:.1f}",
            _range_text(min(drops), max(drops)),
            f"{row.success_rate:.1%}",
            _class_delay(row, members, row.delay_mean_seconds),
            _class_delay(row, members, row.delay_p95_seconds),
        )
    return table


def _class_delay(
    row: ClassPrediction, members: Sequence[SubscriptionPrediction], seconds: float | None
) -> str:
    methods = {member.method for member in members}
    if row.delay_mean_seconds is None and "unstable" in methods:
        return "grows"
    return ("~" if "fluid" in methods else "") + delay_text(seconds)


def _subscription_table(prediction: Prediction, width: int) -> Table:
    table = new_table(f"By subscription, {prediction.model} model")
    columns: list[tuple[str, bool, Cell]] = [
        ("flow", False, lambda row: str(row.flow)),
        ("class", True, lambda row: str(row.priority)),
        ("drop", False, lambda row: f"{row.drop_rate:.1%}"),
        ("delivered", True, _delivered_text),
        ("mean", True, lambda row: _row_delay(row, row.delay_mean_seconds)),
        ("p95", True, lambda row: _row_delay(row, row.delay_p95_seconds)),
        ("deadline", True, _deadline_text),
    ]
    shown = [column for column in columns if column[1] or width >= WIDE_COLUMNS]
    table.add_column("subscription", overflow="fold")
    for heading, _, _ in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in prediction.subscriptions:
        name = escape(f"{row.subscriber} {row.filter}")
        table.add_row(name, *(cell(row) for _, _, cell in shown))
    return table


def _delivered_text(row: SubscriptionPrediction) -> str:
    return "nothing sent" if row.method == "nothing-offered" else f"{row.success_rate:.1%}"


def _row_delay(row: SubscriptionPrediction, seconds: float | None) -> str:
    if row.method == "unstable":
        return "grows"
    return ("~" if row.method == "fluid" else "") + delay_text(seconds)


def _deadline_text(row: SubscriptionPrediction) -> str:
    if row.deadline_met is None:
        return ""
    return "met" if row.deadline_met else "[red]missed[/red]"


def new_table(title: str) -> Table:
    """Return an empty table without borders."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def delay_text(seconds: float | None) -> str:
    """Return a delay in milliseconds or seconds."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _range_text(low: float, high: float) -> str:
    return f"{low:.1%}" if high - low < 5e-4 else f"{low:.0%}-{high:.0%}"


def first_names(names: Sequence[str]) -> str:
    """Return the first names and the number of the others."""
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown}, and {len(names) - MAX_NAMES} more"

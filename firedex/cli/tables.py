"""Predictions and plans as tables for people: nothing is cut off, columns give way instead."""

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.prototype_measurements import Comparison
from firedex.wire import ClassPrediction, Prediction, SubscriptionPrediction

__all__ = ["delay_text", "new_table", "show_comparison", "show_prediction", "some"]

MOST_FILTERS = 3
WIDE = 100
"""Columns from which a terminal has room for what can also be found elsewhere."""

Cell = Callable[[SubscriptionPrediction], str]


def show_prediction(console: Console, prediction: Prediction, *, everything: bool) -> None:
    """What each class (or each subscription) will get, and how full the network is."""
    console.print(_subscriptions(prediction, console.width) if everything else _classes(prediction))
    loads = ", ".join(f"{s.id} {s.utilization:.1%}" for s in prediction.switches)
    console.print(
        f"load: {loads}; first to saturate: {prediction.first_to_saturate}", highlight=False
    )
    for queue in prediction.queues:
        if queue.reason:
            console.print(f"[yellow]{queue.id}: {queue.reason}[/yellow]", highlight=False)
    console.print(
        f"utility: {prediction.utility:.2f} of {prediction.maximum_utility:.2f} "
        f"({prediction.achieved_utility_rate:.1%}; by the paper's averaging "
        f"{prediction.achieved_utility_rate_per_subscription:.1%})",
        highlight=False,
    )
    missed = [row for row in prediction.subscriptions if row.deadline_met is False]
    names = f": {some([f'{s.subscriber} {s.filter}' for s in missed])}" if missed else ""
    console.print(
        f"within deadlines: {prediction.timely_utility:.2f}; "
        f"deadlines missed: {prediction.deadlines_missed}{escape(names)}",
        highlight=False,
    )


def _classes(prediction: Prediction) -> Table:
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
            _range(min(drops), max(drops)),
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


def _subscriptions(prediction: Prediction, width: int) -> Table:
    table = new_table(f"By subscription, {prediction.model} model")
    columns: list[tuple[str, bool, Cell]] = [
        ("flow", False, lambda row: str(row.flow)),
        ("class", True, lambda row: str(row.priority)),
        ("drop", False, lambda row: f"{row.drop_rate:.1%}"),
        ("delivered", True, _delivered),
        ("mean", True, lambda row: _row_delay(row, row.delay_mean_seconds)),
        ("p95", True, lambda row: _row_delay(row, row.delay_p95_seconds)),
        ("deadline", True, _deadline),
    ]
    shown = [column for column in columns if column[1] or width >= WIDE]
    table.add_column("subscription", overflow="fold")
    for heading, _, _ in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in prediction.subscriptions:
        name = escape(f"{row.subscriber} {row.filter}")
        table.add_row(name, *(cell(row) for _, _, cell in shown))
    return table


def _delivered(row: SubscriptionPrediction) -> str:
    return "nothing sent" if row.method == "nothing-offered" else f"{row.success_rate:.1%}"


def _row_delay(row: SubscriptionPrediction, seconds: float | None) -> str:
    if row.method == "unstable":
        return "grows"
    return ("~" if row.method == "fluid" else "") + delay_text(seconds)


def _deadline(row: SubscriptionPrediction) -> str:
    if row.deadline_met is None:
        return ""
    return "met" if row.deadline_met else "[red]missed[/red]"


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Measured and predicted delays of one recorded experiment."""
    table = new_table(escape(comparison.experiment))
    table.add_column("class", justify="right")
    table.add_column("measured", justify="right")
    for way in comparison.predicted:
        table.add_column(way, justify="right")
    for priority, delay in comparison.measured.items():
        cells = [str(priority), delay_text(delay)]
        for way, predicted in comparison.predicted.items():
            error = comparison.errors(way).get(priority)
            said = "" if error is None else f" ({error:+.0%})"
            cells.append(f"{delay_text(predicted[priority])}{said}")
        table.add_row(*cells)
    table.add_section()
    medians = [f"{comparison.median_error(way):.1%}" for way in comparison.predicted]
    table.add_row("median", "error", *medians)
    console.print(table)


def new_table(title: str) -> Table:
    """A table without borders."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def delay_text(seconds: float | None) -> str:
    """A delay in the unit that suits it."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _range(least: float, most: float) -> str:
    return f"{least:.1%}" if most - least < 5e-4 else f"{least:.0%}-{most:.0%}"


def some(names: Sequence[str]) -> str:
    """The first few of many names."""
    shown = ", ".join(names[:MOST_FILTERS])
    return shown if len(names) <= MOST_FILTERS else f"{shown}, and {len(names) - MOST_FILTERS} more"

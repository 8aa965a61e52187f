"""Predictions and plans as tables for people."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.prototype_measurements import Comparison
from firedex.wire import Prediction, Scenario

__all__ = ["show_comparison", "show_plan", "show_prediction"]

MOST_FILTERS = 3
FILTER_COLUMNS = 24
"""Columns that a filter gets before it is folded."""
WIDE_ENOUGH = 120
"""Columns that a terminal needs for the list of what is in each class."""


def show_plan(
    console: Console, scenario: Scenario, prediction: Prediction, *, everything: bool
) -> None:
    """What goes into each class, and what it will get."""
    wanted = sum(len(subscriber.subscriptions) for subscriber in scenario.subscribers)
    console.print(
        f"[bold]{escape(scenario.name)}[/bold]: {wanted} subscriptions of "
        f"{len(scenario.subscribers)} subscribers to {len(scenario.topics)} topics"
    )
    show_prediction(console, prediction, everything=everything, with_filters=True)


def show_prediction(
    console: Console, prediction: Prediction, *, everything: bool, with_filters: bool = False
) -> None:
    """What each class (or each subscription) will get, and how full the network is."""
    with_filters = with_filters and console.width >= WIDE_ENOUGH
    console.print(_subscriptions(prediction) if everything else _classes(prediction, with_filters))
    for switch in prediction.switches:
        console.print(f"switch {switch.id}: {switch.utilization:.1%} loaded")
    if prediction.first_to_saturate:
        console.print(f"first to saturate: {prediction.first_to_saturate}")
    for queue in prediction.queues:
        if queue.reason:
            console.print(f"[yellow]{queue.id}: {queue.reason}[/yellow]", highlight=False)
    console.print(
        f"utility {prediction.utility:.2f} of {prediction.maximum_utility:.2f} "
        f"({prediction.achieved_utility_rate:.1%}; "
        f"{prediction.achieved_utility_rate_per_subscription:.1%} by the paper's averaging), "
        f"within deadlines {prediction.timely_utility:.2f}; "
        f"deadlines missed: {prediction.deadlines_missed}"
    )


def _classes(prediction: Prediction, with_filters: bool) -> Table:
    table = Table(title=f"By class, {prediction.model} model", title_justify="left")
    for heading in ("class", "filters", "offered/s", "drop", "delivered", "mean", "p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    if with_filters:
        table.add_column("what is in it")
    for row in prediction.classes:
        members = [s for s in prediction.subscriptions if s.priority == row.priority]
        drops = [s.drop_rate for s in members]
        cells = [
            str(row.priority),
            str(row.subscriptions),
            f"{row.offered_events_per_second:.1f}",
            _range(min(drops), max(drops)),
            f"{row.success_rate:.1%}",
            _delay(row.delay_mean_seconds),
            _delay(row.delay_p95_seconds),
        ]
        if with_filters:
            cells.append(escape(_some([f"{s.subscriber} {s.filter}" for s in members])))
        table.add_row(*cells)
    return table


def _subscriptions(prediction: Prediction) -> Table:
    table = Table(title=f"By subscription, {prediction.model} model", title_justify="left")
    longest = max((len(row.filter) for row in prediction.subscriptions), default=0)
    table.add_column("subscriber", overflow="fold")
    table.add_column("filter", overflow="fold", min_width=min(longest, FILTER_COLUMNS))
    for heading in ("flow", "class", "drop", "delivered", "mean", "p95", "deadline"):
        table.add_column(heading, justify="right")
    for row in prediction.subscriptions:
        deadline = "" if row.deadline_seconds is None else _delay(row.deadline_seconds)
        if row.deadline_met is not None:
            deadline += " met" if row.deadline_met else " [red]missed[/red]"
        table.add_row(
            escape(row.subscriber),
            escape(row.filter),
            str(row.flow),
            str(row.priority),
            f"{row.drop_rate:.1%}",
            f"{row.success_rate:.1%}",
            _delay(row.delay_mean_seconds),
            _delay(row.delay_p95_seconds),
            deadline,
        )
    return table


def _delay(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _range(least: float, most: float) -> str:
    return f"{least:.1%}" if most - least < 5e-4 else f"{least:.0%}-{most:.0%}"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_FILTERS])
    return shown if len(names) <= MOST_FILTERS else f"{shown}, … ({len(names)})"


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Measured and predicted delays of one recorded experiment."""
    table = Table(title=escape(comparison.experiment), title_justify="left")
    table.add_column("class", justify="right")
    table.add_column("measured", justify="right")
    for way in comparison.predicted:
        table.add_column(way, justify="right")
    for priority, delay in comparison.measured.items():
        cells = [str(priority), _delay(delay)]
        for way, predicted in comparison.predicted.items():
            error = comparison.errors(way).get(priority)
            said = "" if error is None else f" ({error:+.0%})"
            cells.append(f"{_delay(predicted[priority])}{said}")
        table.add_row(*cells)
    table.add_section()
    medians = [f"{comparison.median_error(way):.1%}" for way in comparison.predicted]
    table.add_row("median", "error", *medians)
    console.print(table)

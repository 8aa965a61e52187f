"""Simulations as tables for people, beside what the model predicts."""

from rich.console import Console
from rich.markup import escape

from firedex.cli.tables import delay_text, new_table
from firedex.wire import (
    ClassPrediction,
    Prediction,
    SimulatedClass,
    SimulatedSubscription,
    SimulationReport,
    SubscriptionPrediction,
)

__all__ = ["show_simulation"]


def show_simulation(
    console: Console,
    name: str,
    report: SimulationReport,
    prediction: Prediction,
    *,
    everything: bool,
) -> None:
    """What each class (or subscription) got, and what was predicted."""
    counts = report.notifications
    console.print(
        f"[bold]{escape(name)}[/bold]: {report.replications} replications, "
        f"{report.publications} publications; {counts.delivered} notifications delivered, dropped "
        f"at gateway {counts.dropped_at_gateway}, meter {counts.dropped_at_meter}, buffer "
        f"{counts.dropped_at_buffer}, lost on link {counts.lost_on_link}",
        highlight=False,
    )
    if not report.publications:
        console.print("[yellow]nothing is published: there is nothing to see[/yellow]")
    table = new_table("Simulated, and (predicted)")
    table.add_column("subscription" if everything else "class", overflow="fold")
    for heading in ("delivered", "mean", "p95", "p99"):
        table.add_column(heading, justify="right", no_wrap=True)
    if everything:
        for row, expected in zip(report.subscriptions, prediction.subscriptions, strict=True):
            table.add_row(escape(f"{row.subscriber} {row.filter}"), *_cells(row, expected))
    else:
        for each, foreseen in zip(report.classes, prediction.classes, strict=True):
            table.add_row(str(each.priority), *_cells(each, foreseen))
    console.print(table)
    loads = ", ".join(f"{s.id} {s.utilization:.1%}" for s in report.switches)
    console.print(f"load: {loads}", highlight=False)
    console.print(
        f"utility: {report.utility:.2f} of {report.maximum_utility:.2f} "
        f"({report.achieved_utility_rate:.1%}, predicted {prediction.achieved_utility_rate:.1%}; "
        f"by the paper's averaging {report.achieved_utility_rate_per_subscription:.1%}); within "
        f"deadlines: {report.timely_utility:.2f}, predicted {prediction.timely_utility:.2f}",
        highlight=False,
    )


def _cells(
    row: SimulatedClass | SimulatedSubscription, expected: ClassPrediction | SubscriptionPrediction
) -> list[str]:
    success = "-" if row.success_rate is None else f"{row.success_rate:.1%}"
    return [
        f"{success} ({expected.success_rate:.1%})",
        f"{_with_half_width(row.delay_mean_seconds, row.delay_mean_half_width_seconds)} "
        f"({delay_text(expected.delay_mean_seconds)})",
        f"{_with_half_width(row.delay_p95_seconds, row.delay_p95_half_width_seconds)} "
        f"({delay_text(expected.delay_p95_seconds)})",
        delay_text(row.delay_p99_seconds),
    ]


def _with_half_width(figure: float | None, half_width: float | None) -> str:
    text = delay_text(figure)
    if figure is None or half_width is None or figure <= 0:
        return text
    return f"{text} ± {half_width / figure:.0%}"

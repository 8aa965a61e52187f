"""Plans as tables for people: what was decided, what is proved of it, what it could not do."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.cli.tables import delay_text, new_table, show_prediction, some
from firedex.planning import Plan, PolicyOutcome
from firedex.wire import (
    ClassPrediction,
    Overcommitment,
    PlanReport,
    Prediction,
    UnmetDeadline,
)
from firedex_models.prediction_table import FLUID, UNSTABLE

__all__ = ["show_plan", "show_policies"]

MOST_DEADLINES = 5
NOTHING = 1e-12


def show_plan(console: Console, plan: Plan, *, everything: bool) -> None:
    """What goes into each class, what it will get, and what the plan could not do."""
    scenario, prediction = plan.scenario, plan.table.to_prediction()
    console.print(
        f"[bold]{escape(scenario.name)}[/bold]: {len(prediction.subscriptions)} subscriptions, "
        f"{len(scenario.subscribers)} subscribers, {len(scenario.topics)} topics",
        highlight=False,
    )
    show_prediction(console, prediction, everything=everything)
    if not everything:
        _show_members(console, prediction)
    for line in _how_made(plan.report):
        console.print(line, highlight=False)
    for line in _shortcomings(plan.report, everything=everything):
        console.print(f"[yellow]{escape(line)}[/yellow]", highlight=False)


def _show_members(console: Console, prediction: Prediction) -> None:
    for row in prediction.classes:
        members = [s for s in prediction.subscriptions if s.priority == row.priority]
        names = some([f"{s.subscriber} {s.filter}" for s in members])
        console.print(f"class {row.priority}: {escape(names)}", highlight=False)


def _how_made(report: PlanReport) -> list[str]:
    lines = [
        f"policies: {report.priority_policy} ({report.ranking} ranking, {report.split} split), "
        f"drop rates {report.drop_policy}"
    ]
    if report.utility_gap is not None:
        within = " within the classes' limits" if report.drop_policy == "deadline-aware" else ""
        more = f"{report.utility_gap:.0e} more" if report.utility_gap > NOTHING else "more"
        lines.append(
            f"proved: no other drop rates{within} are worth {more} (dual gap, {report.solver})"
        )
    if report.split_gap is not None:
        worth = "nothing" if report.split_gap == 0 else f"at most {report.split_gap:.1e}"
        lines.append(f"proved: {worth} to gain by other cuts into flows")
    elif report.split == "optimal":
        lines.append(
            "not proved: what other cuts into flows could gain (only for drop rates optimized, and "
            "where no filters of a subscriber overlap)"
        )
    if report.moved_subscriptions is not None:
        kept = ", on the previous flows" if report.kept_previous_flows else ""
        lines.append(f"moved since the previous plan: {report.moved_subscriptions}{kept}")
    return lines


def _shortcomings(report: PlanReport, *, everything: bool) -> list[str]:
    lines = [_overcommitted(entry) for entry in report.overcommitted]
    if report.undropped_subscribers:
        lines.append(
            "nothing is dropped, since QoS 0 shares its only flow with QoS 1 or 2: "
            + some(report.undropped_subscribers)
        )
    deadlines = report.unmet_deadlines
    shown = deadlines if everything else deadlines[:MOST_DEADLINES]
    lines += [_unmet(entry) for entry in shown]
    if len(shown) < len(deadlines):
        lines.append(f"and {len(deadlines) - len(shown)} more deadlines (--all shows them)")
    return lines


def _overcommitted(entry: Overcommitment) -> str:
    whose = f"role {entry.role}" if entry.role else "everybody together"
    return (
        f"switch {entry.switch} ({entry.queue}): {whose} may reserve {entry.available:.1%} by "
        f"QoS 1 and 2, and asks for {entry.reserved:.1%}; {entry.excess:.1%} "
        f"({entry.excess_bits_per_second / 1000:.4g} kbit/s) too much is served last"
    )


def _unmet(entry: UnmetDeadline) -> str:
    asked = f"{entry.subscriber} {entry.filter}: not {entry.percentile:.0%} within "
    asked += delay_text(entry.deadline_seconds)
    if entry.reason == "nothing-delivered":
        return f"{asked}: nothing of it arrives"
    if entry.delay_seconds is None or entry.late_by_seconds is None:
        return f"{asked}: its queue grows without bound"
    return (
        f"{asked} but within {delay_text(entry.delay_seconds)}, "
        f"{delay_text(entry.late_by_seconds)} late"
    )


def show_policies(console: Console, outcomes: Sequence[PolicyOutcome]) -> None:
    """One row for each pair of policies; then what each of their classes gets."""
    table = new_table("Policies side by side")
    for heading in ("priorities", "drop rates"):
        table.add_column(heading, no_wrap=True)
    for heading in ("utility", "by mean", "in time", "late", "lost", "busiest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(outcome.priority_policy, outcome.drop_policy, *_summary(outcome))
    console.print(table)
    console.print(
        "utility: ΣU ÷ ΣÛ; by mean: the mean of U ÷ Û, as the paper has it; in time: ΣU ÷ ΣÛ of "
        "what arrives within its deadline; late: deadlines missed by what is sent; lost: by what "
        "is all dropped or lost; ~: a buffer overflows, a coarse figure; grows: without bound",
        highlight=False,
    )
    console.print(_by_class(outcomes))
    for outcome in outcomes:
        if outcome.problem:
            console.print(
                f"[yellow]{outcome.priority_policy}, {outcome.drop_policy}: "
                f"{escape(outcome.problem)}[/yellow]",
                highlight=False,
            )


def _summary(outcome: PolicyOutcome) -> list[str]:
    if outcome.plan is None:
        return ["cannot", "", "", "", "", ""]
    table = outcome.plan.table
    busiest = max((s.utilization for s in table.switches()), default=0.0)
    most = float(table.maximum_utility.sum())
    unmet = outcome.plan.report.unmet_deadlines
    unsent = sum(entry.reason == "nothing-delivered" for entry in unmet)
    return [
        f"{table.achieved_utility_rate:.1%}",
        f"{table.achieved_utility_rate_per_subscription:.1%}",
        f"{table.timely_utility / most if most else 1.0:.1%}",
        str(len(unmet) - unsent),
        str(unsent),
        f"{busiest:.1%}",
    ]


def _by_class(outcomes: Sequence[PolicyOutcome]) -> Table:
    made = [(outcome, outcome.plan.table.classes()) for outcome in outcomes if outcome.plan]
    used = sorted({row.priority for _, classes in made for row in classes})
    table = new_table("Delivered, and mean delay, by class")
    table.add_column("priorities, drop rates", overflow="fold")
    for priority in used:
        table.add_column(str(priority), justify="right")
    for outcome, classes in made:
        cells = dict.fromkeys(used, "")
        for row in classes:
            delay = _class_delay(outcome, row)
            cells[row.priority] = f"{row.success_rate:.0%}\n{delay}"
        table.add_row(f"{outcome.priority_policy}, {outcome.drop_policy}", *cells.values())
    return table


def _class_delay(outcome: PolicyOutcome, row: ClassPrediction) -> str:
    if outcome.plan is None:
        return ""
    table = outcome.plan.table
    methods = set(table.method[table.priority == row.priority].tolist())
    if row.delay_mean_seconds is None and UNSTABLE in methods:
        return "grows"
    return ("~" if FLUID in methods else "") + delay_text(row.delay_mean_seconds)

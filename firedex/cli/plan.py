"""``firedex plan``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.cli.options import (
    SEED,
    all_option,
    json_option,
    read_scenario_or_exit,
    scenario_argument,
)
from firedex.cli.output import (
    as_json_text,
    console,
    delay_text,
    fail,
    first_names,
    new_table,
    show_prediction,
    write_scenario,
)
from firedex.planning import Plan, PlanningError, PolicyOutcome, compare_policies, plan_scenario
from firedex.wire import (
    ClassPrediction,
    DropPolicy,
    Overcommitment,
    PlanReport,
    Prediction,
    PriorityPolicy,
    Ranking,
    Solver,
    Split,
    UnmetDeadline,
    to_plain,
)
from firedex_models.prediction_table import FLUID, UNSTABLE

__all__ = ["plan", "show_plan", "show_policies"]


@click.command(
    epilog="Example: firedex plan builtin:high-rise --drop-policy deadline-aware "
    "--write planned.yaml",
)
@scenario_argument
@click.option(
    "--priority-policy",
    type=click.Choice(get_args(PriorityPolicy)),
    help="How subscriptions are ranked. Default: as in the scenario.",
)
@click.option(
    "--drop-policy",
    type=click.Choice(get_args(DropPolicy)),
    help="How drop rates are chosen. Default: as in the scenario.",
)
@click.option(
    "--ranking",
    type=click.Choice(get_args(Ranking)),
    help="Rank subscriptions per subscriber or globally. Default: as in the scenario.",
)
@click.option(
    "--split",
    type=click.Choice(get_args(Split)),
    help="How a ranked list is split into flows. Default: as in the scenario.",
)
@click.option("--seed", type=SEED, help="Seed of the random priority policy.")
@click.option(
    "--solver",
    type=click.Choice(get_args(Solver)),
    default="kkt",
    show_default=True,
    help="Solver of the drop rates. Both find the same optimum; kkt is faster. Flows that cross "
    "several managed switches are always solved by cvxpy.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Compare all policies instead of making a plan. Cannot be combined with --write, "
    "--previous or --drop-policy.",
)
@click.option(
    "--previous",
    metavar="SCENARIO",
    help="Scenario with the active plan; subscriptions that move to another flow are counted. "
    "Default: the assignment in SCENARIO.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the scenario with its assignment to this file, for firedex predict.",
)
@all_option
@json_option
def plan(
    scenario: str,
    solver: Solver,
    compare: bool,
    previous: str | None,
    write: Path | None,
    all: bool,  # noqa: A002  # the name of the option
    json: bool,
    drop_policy: DropPolicy | None,
    **policies: Any,
) -> None:
    """Assign flows, priorities and drop rates, and predict the result for each subscription."""
    requested = read_scenario_or_exit(scenario)
    if compare and (write or previous or drop_policy):
        raise click.UsageError(
            "--compare makes no plan; it cannot be combined with --write, --previous or "
            "--drop-policy"
        )
    before = None
    if previous is not None:
        before = read_scenario_or_exit(previous).assignment
        if before is None:
            fail(f"--previous: {previous} has no assignment")
    with Console(stderr=True).status("planning ...") as status:
        if compare:
            _show_policies(
                compare_policies(requested, solver=solver, report=status.update, **policies), json
            )
            return
        try:
            new_plan = plan_scenario(
                requested, drop_policy=drop_policy, solver=solver, previous=before, **policies
            )
        except PlanningError as error:
            fail(str(error))
    if write is not None:
        write_scenario(new_plan.planned_scenario, write)
    if json:
        prediction = to_plain(new_plan.table.to_prediction())
        click.echo(as_json_text({**prediction, "plan": to_plain(new_plan.report)}))
    else:
        show_plan(console(), new_plan, everything=all)


def _show_policies(outcomes: list[PolicyOutcome], json: bool) -> None:
    if json:
        click.echo(as_json_text({"policies": [_outcome_as_dict(outcome) for outcome in outcomes]}))
    else:
        show_policies(console(), outcomes)


def _outcome_as_dict(outcome: PolicyOutcome) -> dict[str, Any]:
    pair = {"priority_policy": outcome.priority_policy, "drop_policy": outcome.drop_policy}
    if outcome.plan is None:
        return {**pair, "problem": outcome.problem}
    table, report = outcome.plan.table, outcome.plan.report
    return {
        **pair,
        "problem": None,
        "utility": float(table.utility.sum()),
        "achieved_utility_rate": table.achieved_utility_rate,
        "achieved_utility_rate_per_subscription": table.achieved_utility_rate_per_subscription,
        "timely_utility": table.timely_utility,
        "deadlines_missed": len(report.unmet_deadlines),
        "deadlines_missed_by_reason": {
            reason: sum(entry.reason == reason for entry in report.unmet_deadlines)
            for reason in ("late", "nothing-delivered", "unstable")
        },
        "switches": [to_plain(switch) for switch in table.switches()],
        "classes": [to_plain(row) for row in table.classes()],
    }


MAX_DEADLINES = 5
ROUNDING_ERROR = 1e-12


def show_plan(console: Console, plan: Plan, *, everything: bool) -> None:
    """Print each class with its prediction, how the plan was made, and its shortcomings."""
    scenario, prediction = plan.scenario, plan.table.to_prediction()
    console.print(
        f"[bold]{escape(scenario.name)}[/bold]: {len(prediction.subscriptions)} subscriptions, "
        f"{len(scenario.subscribers)} subscribers, {len(scenario.topics)} topics",
        highlight=False,
    )
    show_prediction(console, prediction, everything=everything)
    if not everything:
        _show_members(console, prediction)
    for line in _method_lines(plan.report):
        console.print(line, highlight=False)
    for line in _shortcoming_lines(plan.report, everything=everything):
        console.print(f"[yellow]{escape(line)}[/yellow]", highlight=False)


def _show_members(console: Console, prediction: Prediction) -> None:
    for row in prediction.classes:
        members = [s for s in prediction.subscriptions if s.priority == row.priority]
        names = first_names([f"{s.subscriber} {s.filter}" for s in members])
        console.print(f"class {row.priority}: {escape(names)}", highlight=False)


def _method_lines(report: PlanReport) -> list[str]:
    lines = [
        f"policies: {report.priority_policy} ({report.ranking} ranking, {report.split} split), "
        f"drop rates {report.drop_policy}"
    ]
    if report.utility_gap is not None:
        within = (
            " within the limits of the classes" if report.drop_policy == "deadline-aware" else ""
        )
        more = f"{report.utility_gap:.0e} more" if report.utility_gap > ROUNDING_ERROR else "more"
        lines.append(
            f"proved: no other drop rates{within} give {more} utility (dual gap, {report.solver})"
        )
    if report.split_gap is not None:
        gain = "nothing" if report.split_gap == 0 else f"at most {report.split_gap:.1e} utility"
        lines.append(f"proved: another split into flows gains {gain}")
    elif report.split == "optimal":
        lines.append(
            "not proved: whether another split into flows gains utility (this is proved only with "
            "optimized drop rates and without overlapping filters of one subscriber)"
        )
    if report.moved_subscriptions is not None:
        kept = ", previous flows kept" if report.kept_previous_flows else ""
        lines.append(
            f"subscriptions moved since the previous plan: {report.moved_subscriptions}{kept}"
        )
    return lines


def _shortcoming_lines(report: PlanReport, *, everything: bool) -> list[str]:
    lines = [_overcommitment_text(entry) for entry in report.overcommitted]
    if report.undropped_subscribers:
        lines.append(
            "drop rate 0 because QoS 0 shares the only flow with QoS 1 or 2: "
            + first_names(report.undropped_subscribers)
        )
    deadlines = report.unmet_deadlines
    shown = deadlines if everything else deadlines[:MAX_DEADLINES]
    lines += [_unmet_deadline_text(entry) for entry in shown]
    if len(shown) < len(deadlines):
        lines.append(f"and {len(deadlines) - len(shown)} more missed deadlines (see --all)")
    return lines


def _overcommitment_text(entry: Overcommitment) -> str:
    roles = f"role {entry.role}" if entry.role else "all roles together"
    return (
        f"switch {entry.switch} ({entry.queue}): {roles} requested {entry.reserved:.1%} for QoS 1 "
        f"and 2, but {entry.available:.1%} can be reserved; the excess of {entry.excess:.1%} "
        f"({entry.excess_bits_per_second / 1000:.4g} kbit/s) has the lowest priority"
    )


def _unmet_deadline_text(entry: UnmetDeadline) -> str:
    deadline = delay_text(entry.deadline_seconds)
    missed = f"{entry.subscriber} {entry.filter} misses its deadline ({entry.percentile:.0%} "
    missed += f"within {deadline})"
    if entry.reason == "nothing-delivered":
        return f"{missed}: no event is delivered"
    if entry.delay_seconds is None or entry.late_by_seconds is None:
        return f"{missed}: the queue grows without bound"
    return (
        f"{missed}: predicted {delay_text(entry.delay_seconds)}, "
        f"{delay_text(entry.late_by_seconds)} late"
    )


def show_policies(console: Console, outcomes: Sequence[PolicyOutcome]) -> None:
    """Print one row for each pair of policies, then the predictions of their classes."""
    table = new_table("Comparison of policies")
    for heading in ("priorities", "drop rates"):
        table.add_column(heading, no_wrap=True)
    for heading in ("utility", "by mean", "in time", "late", "lost", "busiest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(outcome.priority_policy, outcome.drop_policy, *_summary_cells(outcome))
    console.print(table)
    console.print(
        "utility: ΣU ÷ ΣÛ; by mean: mean of U ÷ Û (as in the paper); in time: ΣU ÷ ΣÛ of "
        "events within their deadline; late: deadlines missed by delivered events; lost: "
        "deadlines missed because every event is dropped or lost; ~: estimate for a full buffer; "
        "grows: without bound",
        highlight=False,
    )
    console.print(_class_table(outcomes))
    for outcome in outcomes:
        if outcome.problem:
            console.print(
                f"[yellow]{outcome.priority_policy}, {outcome.drop_policy}: "
                f"{escape(outcome.problem)}[/yellow]",
                highlight=False,
            )


def _summary_cells(outcome: PolicyOutcome) -> list[str]:
    if outcome.plan is None:
        return ["infeasible", "", "", "", "", ""]
    table = outcome.plan.table
    busiest = max((s.utilization for s in table.switches()), default=0.0)
    maximum = float(table.maximum_utility.sum())
    unmet = outcome.plan.report.unmet_deadlines
    unsent = sum(entry.reason == "nothing-delivered" for entry in unmet)
    return [
        f"{table.achieved_utility_rate:.1%}",
        f"{table.achieved_utility_rate_per_subscription:.1%}",
        f"{table.timely_utility / maximum if maximum else 1.0:.1%}",
        str(len(unmet) - unsent),
        str(unsent),
        f"{busiest:.1%}",
    ]


def _class_table(outcomes: Sequence[PolicyOutcome]) -> Table:
    planned = [(outcome, outcome.plan.table.classes()) for outcome in outcomes if outcome.plan]
    priorities = sorted({row.priority for _, classes in planned for row in classes})
    table = new_table("Success rate and mean delay by class")
    table.add_column("priorities, drop rates", overflow="fold")
    for priority in priorities:
        table.add_column(str(priority), justify="right")
    for outcome, classes in planned:
        cells = dict.fromkeys(priorities, "")
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

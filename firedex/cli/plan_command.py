"""``firedex plan``: read, plan elsewhere, show."""

from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from firedex.cli.options import SEED, all_option, json_option, read_or_fail, scenario_argument
from firedex.cli.output import as_json_text, console, fail, write_scenario
from firedex.cli.plan_tables import show_plan, show_policies
from firedex.planning import PlanningError, PolicyOutcome, compare_policies, plan_scenario
from firedex.wire import DropPolicy, PriorityPolicy, Ranking, Solver, Split, to_plain

__all__ = ["plan"]


@click.command(
    short_help="Assign flows, priorities and drop rates.",
    epilog="Example: firedex plan builtin:high-rise --drop-policy deadline-aware "
    "--write planned.yaml",
)
@scenario_argument
@click.option(
    "--priority-policy",
    type=click.Choice(get_args(PriorityPolicy)),
    help="What is ranked highest. Default: the scenario's.",
)
@click.option(
    "--drop-policy",
    type=click.Choice(get_args(DropPolicy)),
    help="How drop rates are set. Default: the scenario's.",
)
@click.option(
    "--ranking",
    type=click.Choice(get_args(Ranking)),
    help="Whom a subscription is ranked among. Default: the scenario's.",
)
@click.option(
    "--split",
    type=click.Choice(get_args(Split)),
    help="How a ranked list is cut into flows. Default: the scenario's.",
)
@click.option("--seed", type=SEED, help="Of the random priority policy.")
@click.option(
    "--solver",
    type=click.Choice(get_args(Solver)),
    default="kkt",
    show_default=True,
    help="Both find the same optimum: kkt is ours and fast, cvxpy a general solver. Flows that "
    "several switches limit always go to cvxpy.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Show all policies side by side instead of a plan; not with --write, --previous, "
    "--drop-policy.",
)
@click.option(
    "--previous",
    metavar="SCENARIO",
    help="A scenario with the plan in force, to count moves from. Default: SCENARIO's own.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the scenario with its assignment here, for firedex predict.",
)
@all_option
@json_option
def plan(
    scenario: str,
    solver: Solver,
    compare: bool,
    previous: str | None,
    write: Path | None,
    all: bool,  # noqa: A002  # its option's name
    json: bool,
    drop_policy: DropPolicy | None,
    **policies: Any,
) -> None:
    """Assign flows, priorities and drop rates, and predict what each subscription then gets."""
    wanted = read_or_fail(scenario)
    if compare and (write or previous or drop_policy):
        raise click.UsageError(
            "--compare makes no plan: it cannot be combined with --write, --previous or "
            "--drop-policy"
        )
    before = None
    if previous is not None:
        before = read_or_fail(previous).assignment
        if before is None:
            fail(f"--previous: {previous} has no assignment")
    with Console(stderr=True).status("planning …") as status:
        if compare:
            _show_policies(
                compare_policies(wanted, solver=solver, report=status.update, **policies), json
            )
            return
        try:
            made = plan_scenario(
                wanted, drop_policy=drop_policy, solver=solver, previous=before, **policies
            )
        except PlanningError as error:
            fail(str(error))
    if write is not None:
        write_scenario(made.planned, write)
    if json:
        prediction = to_plain(made.table.to_prediction())
        click.echo(as_json_text({**prediction, "plan": to_plain(made.report)}))
    else:
        show_plan(console(), made, everything=all)


def _show_policies(outcomes: list[PolicyOutcome], json: bool) -> None:
    if json:
        click.echo(as_json_text({"policies": [_plain(outcome) for outcome in outcomes]}))
    else:
        show_policies(console(), outcomes)


def _plain(outcome: PolicyOutcome) -> dict[str, Any]:
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

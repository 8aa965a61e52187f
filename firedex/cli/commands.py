"""``firedex check``, ``predict`` and ``scenarios``."""

import sys
from typing import get_args

import click

from firedex.cli.options import all_option, json_option, read_scenario_or_exit, scenario_argument
from firedex.cli.output import INPUT_ERROR, as_json_text, console, fail, show_prediction
from firedex.scenario import (
    InvalidScenarioFile,
    ScenarioFileError,
    built_in_scenarios,
    read_scenario,
    scenario_warnings,
)
from firedex.wire import ModelName, to_json
from firedex_models import FifoModel, MissingAssignment, predict

__all__ = ["check", "predict_command", "scenarios"]


@click.command(epilog="Example: firedex check site.yaml")
@scenario_argument
@json_option
def check(scenario: str, json: bool) -> None:
    """Report all problems of a scenario with line numbers; exit with code 2 if it is invalid.

    Settings that are valid but are probably mistakes are reported as advice.
    """
    problems: list[dict[str, object]] = []
    advice: list[str] = []
    message = f"{scenario}: no problems"
    try:
        advice = scenario_warnings(read_scenario(scenario))
    except InvalidScenarioFile as error:
        message = str(error)
        problems = [
            {"line": p.line, "path": list(p.path), "message": p.message} for p in error.problems
        ]
    except ScenarioFileError as error:
        if not json:
            fail(str(error))
        problems = [{"line": None, "path": [], "message": str(error)}]
    if json:
        result = {"valid": not problems, "problems": problems, "advice": advice}
        click.echo(as_json_text(result))
    else:
        click.echo("\n".join([message, *(f"  advice: {line}" for line in advice)]))
    sys.exit(INPUT_ERROR if problems else 0)


@click.command(
    "predict",
    epilog="Example: firedex predict site.yaml --model independent",
)
@scenario_argument
@click.option(
    "--model",
    type=click.Choice(get_args(ModelName)),
    default="fan-out",
    show_default=True,
    help="How packets arrive at a link: fan-out (packets of one publication arrive together) or "
    "independent (as in the paper).",
)
@click.option(
    "--fifo",
    type=click.Choice(get_args(FifoModel)),
    default="exact",
    show_default=True,
    help="Model of the publishers' links: exact (Pollaczek-Khinchine) or paper (Eq. 4 there).",
)
@all_option
@json_option
def predict_command(
    scenario: str,
    model: ModelName,
    fifo: FifoModel,
    all: bool,  # noqa: A002  # the name of the option
    json: bool,
) -> None:
    """Predict the delay and success rate of each subscription with the scenario's assignment."""
    try:
        table = predict(read_scenario_or_exit(scenario), model=model, fifo=fifo)
    except MissingAssignment as error:
        fail(f"{error}, with: firedex plan {scenario} --write planned.yaml")
    if json:
        click.echo(to_json(table.to_prediction(), indent=2))
    else:
        show_prediction(console(), table.to_prediction(), everything=all)


@click.command(epilog="Example: firedex scenarios")
@click.option("--show", metavar="NAME", help="Print the YAML of this scenario.")
@json_option
def scenarios(show: str | None, json: bool) -> None:
    """List the built-in scenarios, or print one."""
    built_in = built_in_scenarios()
    if show is not None:
        name = show.removeprefix("builtin:")
        if name not in built_in:
            fail(f"there is no built-in scenario {name!r}; choose one of {', '.join(built_in)}")
        click.echo(built_in[name].text, nl=False)
    elif json:
        click.echo(as_json_text([f"builtin:{name}" for name in built_in]))
    else:
        for name, scenario in built_in.items():
            click.echo(f"builtin:{name:16} {scenario.description}")

"""The subcommands of ``firedex``. Each is thin: read, compute elsewhere, show."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn, get_args

import click
from rich.console import Console

from firedex import __version__
from firedex.benchmarks import BENCHMARKS, run_benchmark
from firedex.cli.tables import show_comparison, show_plan, show_prediction
from firedex.planning import PlanningError, plan_scenario
from firedex.prototype_measurements import (
    MeasurementsError,
    compare,
    read_experiments,
    scenario_of,
)
from firedex.scenario_file import (
    InvalidScenarioFile,
    ScenarioFileError,
    built_in_scenarios,
    read_scenario,
)
from firedex.wire import DropPolicy, ModelName, PriorityPolicy, Scenario, WireError, to_json
from firedex_models import FifoModel, NotAssigned, predict

__all__ = ["firedex"]

MISTAKE_IN_INPUT = 2
"""Exit code of everything that the user can mend."""
BAR_NOT_KEPT = 1
"""Exit code of a benchmark that missed its bar."""

scenario_argument = click.argument("scenario", metavar="SCENARIO")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
everything_option = click.option(
    "--all", "everything", is_flag=True, help="Show every subscription, not only classes."
)


def _fail(message: str) -> NoReturn:
    click.echo(f"firedex: {message}", err=True)
    sys.exit(MISTAKE_IN_INPUT)


def _read(source: str) -> Scenario:
    try:
        return read_scenario(source)
    except ScenarioFileError as error:
        _fail(str(error))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="firedex")
def firedex() -> None:
    """Plan, predict and enforce which MQTT events get through a network that is too small.

    SCENARIO is a YAML file (docs/scenario.md) or one that comes along, such as builtin:high-rise.
    Every option has a twin in the environment: FIREDEX_PREDICT_MODEL is predict's --model.
    """


@firedex.command(epilog="Example: firedex check site.yaml")
@scenario_argument
@json_option
def check(scenario: str, as_json: bool) -> None:
    """Say everything that is wrong with a scenario, line by line; exit code 2 if anything is."""
    problems: list[dict[str, object]] = []
    try:
        read_scenario(scenario)
    except InvalidScenarioFile as error:
        problems = [
            {"line": p.line, "path": list(p.path), "message": p.message} for p in error.problems
        ]
        said = str(error)
    except ScenarioFileError as error:
        if not as_json:
            _fail(str(error))
        problems = [{"line": None, "path": [], "message": str(error)}]
    if as_json:
        click.echo(_plain_json({"valid": not problems, "problems": problems}))
    else:
        click.echo(said if problems else f"{scenario}: no problems")
    sys.exit(MISTAKE_IN_INPUT if problems else 0)


@firedex.command("predict", epilog="Example: firedex predict site.yaml --model independent")
@scenario_argument
@click.option(
    "--model",
    type=click.Choice(get_args(ModelName)),
    default="fan-out",
    show_default=True,
    help="Do packets of one publication reach a link together, or independently (the paper's)?",
)
@click.option(
    "--fifo",
    type=click.Choice(get_args(FifoModel)),
    default="exact",
    show_default=True,
    help="Publishers' links by Pollaczek-Khinchine, or by the paper's Eq. 4.",
)
@everything_option
@json_option
def predict_command(
    scenario: str, model: ModelName, fifo: FifoModel, everything: bool, as_json: bool
) -> None:
    """Predict what each subscription gets under the scenario's own assignment."""
    try:
        table = predict(_read(scenario), model=model, fifo=fifo)
    except NotAssigned as error:
        _fail(f"{error}, with: firedex plan {scenario}")
    if as_json:
        click.echo(to_json(table.to_prediction(), indent=2))
    else:
        show_prediction(Console(), table.to_prediction(), everything=everything)


@firedex.command(epilog="Example: firedex plan builtin:high-rise --drop-policy exponential")
@scenario_argument
@click.option(
    "--priority-policy",
    type=click.Choice(get_args(PriorityPolicy)),
    help="Overrides the scenario's.",
)
@click.option(
    "--drop-policy", type=click.Choice(get_args(DropPolicy)), help="Overrides the scenario's."
)
@everything_option
@json_option
def plan(
    scenario: str,
    priority_policy: PriorityPolicy | None,
    drop_policy: DropPolicy | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Assign flows, priorities and drop rates, and predict what each subscription then gets."""
    try:
        made = plan_scenario(
            _read(scenario), priority_policy=priority_policy, drop_policy=drop_policy
        )
    except PlanningError as error:
        _fail(str(error))
    prediction = predict(made).to_prediction()
    if as_json:
        click.echo(to_json(prediction, indent=2))
    else:
        show_plan(Console(), made, prediction, everything=everything)


@firedex.command(epilog="Example: firedex scenarios")
@json_option
def scenarios(as_json: bool) -> None:
    """List the scenarios that come along."""
    names = [f"builtin:{name}" for name in built_in_scenarios()]
    click.echo(_plain_json(names) if as_json else "\n".join(names))


@firedex.command(epilog="Example: firedex bench predict --json")
@click.argument("name", type=click.Choice(sorted(BENCHMARKS)), required=False)
@click.option("--all", "everything", is_flag=True, help="Run every benchmark.")
@json_option
def bench(name: str | None, everything: bool, as_json: bool) -> None:
    """Run a benchmark: both sides of its ratio, and the machine it ran on.

    Exit code 1 if a bar is not kept.
    """
    if everything == (name is not None):
        raise click.UsageError(f"name one of {', '.join(sorted(BENCHMARKS))}, or give --all")
    kept = True
    for chosen in sorted(BENCHMARKS) if name is None else [name]:
        with Console(stderr=True).status("…") as status:
            result = run_benchmark(chosen, status.update)
        kept = kept and all(comparison.kept for comparison in result.comparisons)
        click.echo(_plain_json(result.as_plain()) if as_json else result.as_text())
    sys.exit(0 if kept else BAR_NOT_KEPT)


@firedex.command(epilog="Example: firedex measurements ../shared/reference")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--scenarios",
    "write_to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write each experiment as a scenario into this folder, for firedex predict.",
)
@json_option
def measurements(folder: Path, write_to: Path | None, as_json: bool) -> None:
    """Put the recorded delays of the paper authors' prototype beside what the model predicts.

    FOLDER holds the recordings (prototype_experiment_*.csv and .txt). Classes are numbered from 1
    there; errors are stated from class 2 on.
    """
    try:
        experiments = read_experiments(folder)
        scenarios = {found.name: scenario_of(found) for found in experiments}
        comparisons = [compare(experiment) for experiment in experiments]
        for name, scenario in scenarios.items() if write_to else ():
            target = Path(write_to or ".") / f"{name}.yaml"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(to_json(scenario, indent=2), "utf-8")
    except (MeasurementsError, WireError, OSError) as error:
        _fail(str(error))
    if as_json:
        click.echo(_plain_json([asdict(comparison) for comparison in comparisons]))
        return
    for comparison in comparisons:
        show_comparison(Console(), comparison)


def _plain_json(data: object) -> str:
    return json.dumps(data, indent=2)

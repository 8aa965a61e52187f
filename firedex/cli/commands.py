"""The commands of ``firedex`` itself. Each is thin: read, compute elsewhere, show."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click
from rich.console import Console

from firedex.benchmarks import benchmark_names, run_benchmark
from firedex.built_in_scenarios import built_in_scenarios
from firedex.cli.group import firedex
from firedex.cli.options import all_option, json_option, read_or_fail, scenario_argument
from firedex.cli.output import MISTAKE_IN_INPUT, as_json_text, console, fail, write_scenario
from firedex.cli.plan_command import plan
from firedex.cli.reproduce_command import reproduce_command
from firedex.cli.simulate_command import simulate
from firedex.cli.tables import show_comparison, show_prediction
from firedex.prototype_measurements import (
    MeasurementsError,
    compare,
    read_experiments,
    scenario_of,
    with_htb,
)
from firedex.scenario_advice import advice_on
from firedex.scenario_file import (
    InvalidScenarioFile,
    ScenarioFileError,
    read_scenario,
)
from firedex.wire import ModelName, WireError, to_json
from firedex_models import FifoModel, NotAssigned, predict

__all__ = ["firedex"]

BAR_NOT_KEPT = 1
"""Exit code of a benchmark that missed its bar."""


@firedex.command(
    short_help="Say what is wrong with a scenario.", epilog="Example: firedex check site.yaml"
)
@scenario_argument
@json_option
def check(scenario: str, json: bool) -> None:
    """Say everything that is wrong with a scenario, line by line; exit code 2 if anything is.

    What is allowed but probably not meant is said too, as advice.
    """
    problems: list[dict[str, object]] = []
    advice: list[str] = []
    said = f"{scenario}: no problems"
    try:
        advice = advice_on(read_scenario(scenario))
    except InvalidScenarioFile as error:
        said = str(error)
        problems = [
            {"line": p.line, "path": list(p.path), "message": p.message} for p in error.problems
        ]
    except ScenarioFileError as error:
        if not json:
            fail(str(error))
        problems = [{"line": None, "path": [], "message": str(error)}]
    if json:
        found = {"valid": not problems, "problems": problems, "advice": advice}
        click.echo(as_json_text(found))
    else:
        click.echo("\n".join([said, *(f"  advice: {line}" for line in advice)]))
    sys.exit(MISTAKE_IN_INPUT if problems else 0)


@firedex.command(
    "predict",
    short_help="Predict what an assignment gets.",
    epilog="Example: firedex predict site.yaml --model independent",
)
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
@all_option
@json_option
def predict_command(
    scenario: str,
    model: ModelName,
    fifo: FifoModel,
    all: bool,  # noqa: A002  # its option's name
    json: bool,
) -> None:
    """Predict what each subscription gets under the scenario's own assignment."""
    try:
        table = predict(read_or_fail(scenario), model=model, fifo=fifo)
    except NotAssigned as error:
        fail(f"{error}, with: firedex plan {scenario} --write planned.yaml")
    if json:
        click.echo(to_json(table.to_prediction(), indent=2))
    else:
        show_prediction(console(), table.to_prediction(), everything=all)


firedex.add_command(plan)
firedex.add_command(simulate)
firedex.add_command(reproduce_command)


@firedex.command(short_help="List what comes along.", epilog="Example: firedex scenarios")
@click.option("--show", metavar="NAME", help="Print this one, to start one's own from.")
@json_option
def scenarios(show: str | None, json: bool) -> None:
    """List the scenarios that come along, or print one."""
    found = built_in_scenarios()
    if show is not None:
        name = show.removeprefix("builtin:")
        if name not in found:
            fail(f"there is no built-in scenario {name!r}; there are {', '.join(found)}")
        click.echo(found[name].text, nl=False)
    elif json:
        click.echo(as_json_text([f"builtin:{name}" for name in found]))
    else:
        for name, scenario in found.items():
            click.echo(f"builtin:{name:16} {scenario.about}")


@firedex.command(short_help="Run a benchmark.", epilog="Example: firedex bench predict --json")
@click.argument("name", type=click.Choice(benchmark_names()), required=False)
@click.option("--all", is_flag=True, help="Run every benchmark.")
@json_option
def bench(
    name: str | None,
    all: bool,  # noqa: A002  # its option's name
    json: bool,
) -> None:
    """Run a benchmark: both sides of its ratio, and the machine it ran on.

    Run it on an otherwise idle machine. Exit code 1 if a bar is not kept.
    """
    if all == (name is not None):
        raise click.UsageError(f"name one of {', '.join(benchmark_names())}, or give --all")
    results = []
    for chosen in benchmark_names() if name is None else [name]:
        with Console(stderr=True).status("…") as status:
            results.append(run_benchmark(chosen, status.update))
        if not json:
            click.echo(results[-1].as_text())
    if json:
        plain = [result.as_plain() for result in results]
        click.echo(as_json_text(plain if all else plain[0]))
    kept = not [result for result in results if not result.kept]
    sys.exit(0 if kept else BAR_NOT_KEPT)


@firedex.command(
    short_help="Compare predictions with recordings.",
    epilog="Example: firedex measurements ../shared/reference",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--scenarios",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write each experiment here, plain and with HTB, for firedex predict.",
)
@json_option
def measurements(folder: Path, scenarios: Path | None, json: bool) -> None:
    """Put the recorded delays of the paper authors' prototype beside what the model predicts.

    FOLDER holds the recordings (prototype_experiment_*.csv and .txt). Classes are numbered from 1
    there; errors are stated from class 2 on.
    """
    try:
        experiments = read_experiments(folder)
        comparisons = [compare(experiment) for experiment in experiments]
        if scenarios is not None:
            scenarios.mkdir(parents=True, exist_ok=True)
        for experiment in experiments if scenarios else ():
            plain = scenario_of(experiment)
            for name, variant in (("", plain), ("-htb", with_htb(plain))):
                target = Path(scenarios or ".") / f"{experiment.name}{name}.yaml"
                write_scenario(variant, target)
    except (MeasurementsError, WireError, OSError) as error:
        fail(str(error))
    if json:
        click.echo(as_json_text([asdict(comparison) for comparison in comparisons]))
        return
    for comparison in comparisons:
        show_comparison(console(), comparison)

"""Arguments and options that several commands share."""

import click

from firedex.cli.output import fail
from firedex.scenario import ScenarioFileError, read_scenario
from firedex.wire import Scenario

__all__ = ["SEED", "all_option", "json_option", "read_scenario_or_exit", "scenario_argument"]

SEED = click.IntRange(0, 2**53)
"""Range of a random seed; the upper limit is that of integers in `firedex.wire`."""

# A parameter has the name of its option, because the environment variable is made from it.
scenario_argument = click.argument("scenario", metavar="SCENARIO")
json_option = click.option("--json", is_flag=True, help="Print JSON.")
all_option = click.option("--all", is_flag=True, help="Show every subscription instead of classes.")


def read_scenario_or_exit(source: str) -> Scenario:
    """Read a scenario; exit with all its errors if it is invalid."""
    try:
        return read_scenario(source)
    except ScenarioFileError as error:
        fail(str(error))

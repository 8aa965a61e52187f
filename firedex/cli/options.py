"""What several commands take: a scenario, and how much of the answer to show."""

import click

from firedex.cli.output import fail
from firedex.scenario_file import ScenarioFileError, read_scenario
from firedex.wire import Scenario

__all__ = ["SEED", "all_option", "json_option", "read_or_fail", "scenario_argument"]

SEED = click.IntRange(0, 2**53)
"""As large as the contract's counts."""

# Parameters are called as their options are, because their twins in the environment are.
scenario_argument = click.argument("scenario", metavar="SCENARIO")
json_option = click.option("--json", is_flag=True, help="Print JSON for machines.")
all_option = click.option("--all", is_flag=True, help="Show every subscription, not only classes.")


def read_or_fail(source: str) -> Scenario:
    """The scenario, or the end of the command with everything that is wrong with it."""
    try:
        return read_scenario(source)
    except ScenarioFileError as error:
        fail(str(error))

"""The systemd units and the compose file start commands that exist, with options that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from firedex.cli import firedex

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def option_names(command: str) -> set[str]:
    """Return the long options of a command, and the variables that set them."""
    found = firedex.get_command(click.Context(firedex), command)
    assert found is not None
    options = [p for p in found.params if isinstance(p, click.Option)]
    prefix = f"FIREDEX_{command.upper().replace('-', '_')}_"
    variables = {prefix + str(option.name).upper() for option in options}
    for option in options:
        named = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
        variables.update(named)
    return {name for option in options for name in option.opts} | variables


def check_command(words: list[str]) -> None:
    known = option_names(words[0])
    for word in words[1:]:
        if word.startswith("--"):
            assert word in known, f"firedex {words[0]} has no option {word}"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_starts_a_command_with_options_that_exist(unit: Path) -> None:
    text = unit.read_text()
    started = re.search(r"^ExecStart=/opt/firedex/bin/firedex (.*)$", text, re.MULTILINE)
    assert started is not None
    words = shlex.split(started[1])
    check_command(words)
    settings = re.search(r"^EnvironmentFile=/etc/firedex/(.*)$", text, re.MULTILINE)
    assert settings is not None
    variables = re.findall(
        r"^#? ?(FIREDEX_\w+)=", (unit.parent / settings[1]).read_text(), re.MULTILINE
    )
    assert variables
    assert set(variables) <= option_names(words[0])


def test_compose_file_starts_commands_with_options_that_exist() -> None:
    services = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())["services"]
    ours = {name: entry for name, entry in services.items() if "build" in entry}
    assert set(ours) == {"service", "gateway"}
    for entry in ours.values():
        check_command(shlex.split(entry["command"]))

"""Where output goes, and how it fails."""

import json
import sys
from pathlib import Path
from typing import NoReturn

import click
import yaml
from rich.console import Console

from firedex.wire import Scenario, to_plain

__all__ = ["MISTAKE_IN_INPUT", "as_json_text", "console", "fail", "write_scenario"]

MISTAKE_IN_INPUT = 2
"""Exit code of everything that the user can mend."""
COLUMNS_OF_A_FILE = 160


def console() -> Console:
    """The terminal at its width; a file or a pipe gets lines long enough to lose nothing."""
    return Console() if sys.stdout.isatty() else Console(width=COLUMNS_OF_A_FILE)


def fail(message: str) -> NoReturn:
    """Say what needs mending, and end."""
    click.echo(f"firedex: {message}", err=True)
    sys.exit(MISTAKE_IN_INPUT)


def as_json_text(data: object) -> str:
    """JSON for machines."""
    return json.dumps(data, indent=2)


def write_scenario(scenario: Scenario, path: Path) -> None:
    """Write a scenario as YAML, for any command that takes one, and say so."""
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    try:
        path.write_text(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), "utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    click.echo(f"wrote {path}", err=True)

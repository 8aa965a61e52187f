"""Commands that other parts bring along: found by entry point, loaded when they are called.

So the command line imports no part, and one that is not installed is missed only by who calls it.
"""

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

__all__ = ["add_part_commands"]

GROUP = "firedex.commands"
EXTRAS = {
    "configurations": "service",
    "controller": "controller",
    "emulate": "emulation",
    "gateway": "service",
    "incident": "service",
    "profiles": "service",
    "pub": "clients",
    "serve": "service",
    "spark": "spark",
    "status": "service",
    "sub": "clients",
    "subscriptions": "service",
    "switch-agent": "controller",
    "tokens": "service",
    "up": "service",
    "what-if": "service",
}


def add_part_commands(group: click.Group) -> frozenset[str]:
    """Let ``group`` have every command that an installed part announces; their names."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        group.add_command(_LazyCommand(entry))
    return frozenset(entry.name for entry in found)


class _LazyCommand(click.Command):
    """Stands for a command until it is needed."""

    def __init__(self, entry: EntryPoint) -> None:
        super().__init__(entry.name)
        self._entry = entry

    def _loaded(self) -> click.Command:
        try:
            command: click.Command = self._entry.load()
        except ModuleNotFoundError as error:
            extra = EXTRAS.get(self._entry.name, self._entry.name)
            click.echo(
                f"firedex: {self._entry.name} needs the module {error.name!r}, which is not "
                f"installed.\nInstall it with: pip install 'firedex[{extra}]'",
                err=True,
            )
            sys.exit(2)
        return command

    def get_short_help_str(self, limit: int = 45) -> str:
        return self._loaded_quietly().get_short_help_str(limit)

    def _loaded_quietly(self) -> click.Command:
        try:
            command: click.Command = self._entry.load()
        except ModuleNotFoundError:
            return click.Command(self._entry.name, help="(not installed)")
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        return self._loaded().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        return ctx.command.invoke(ctx)

"""The ``firedex`` command. Its parts are extras: what is missing is named, not traced back."""

import sys
from importlib import import_module

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from firedex.cli.group import firedex
        from firedex.cli.part_commands import add_part_commands

        of_parts = add_part_commands(firedex)
        if not of_parts.intersection(sys.argv[1:2]):
            import_module("firedex.cli.commands")  # adds its own; they need the model
    except ModuleNotFoundError as error:
        sys.exit(
            f"firedex: this needs the module {error.name!r}, which is not installed.\n"
            "Install the command line with: pip install 'firedex[planning]'"
        )
    try:
        firedex(auto_envvar_prefix="FIREDEX")
    except OSError as error:
        sys.exit(f"firedex: {error}")

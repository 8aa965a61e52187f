"""The ``firedex`` command. Its parts are extras: what is missing is named, not traced back."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from firedex.cli.commands import firedex
        from firedex.cli.part_commands import add_part_commands
    except ModuleNotFoundError as error:
        sys.exit(
            f"firedex: this needs the module {error.name!r}, which is not installed.\n"
            "Install the command line with: pip install 'firedex[planning]'"
        )
    add_part_commands(firedex)
    try:
        firedex(auto_envvar_prefix="FIREDEX")
    except OSError as error:
        sys.exit(f"firedex: {error}")

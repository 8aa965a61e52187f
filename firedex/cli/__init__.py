"""The ``firedex`` command line: a table of commands, each imported only when it is called."""

import sys

__all__ = ["firedex", "main"]

try:
    from firedex.cli.group import firedex, main
except ModuleNotFoundError as error:
    sys.exit(
        f"firedex: this needs the module {error.name!r}, which is not installed.\n"
        "Install the command line with: pip install 'firedex[cli]'"
    )

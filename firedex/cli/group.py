"""The ``firedex`` command group: it lists all commands, and imports only the one that is called."""

import sys
from dataclasses import dataclass
from importlib import import_module

import click

from firedex import __version__

__all__ = ["COMMANDS", "CommandEntry", "firedex", "main"]

MISSING_EXTRA = 2
"""Exit code of a command whose extra is not installed."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is defined, the extra that it needs, and its line in ``firedex --help``."""

    target: str
    extra: str
    summary: str


COMMANDS: dict[str, CommandEntry] = {
    "bench": CommandEntry("firedex.lab.benchmarks.command:bench", "lab", "Run a benchmark."),
    "certificates": CommandEntry(
        "firedex.certificates.commands:certificates",
        "federation",
        "Make and exchange the certificates of sites, parts, switches and clients.",
    ),
    "check": CommandEntry(
        "firedex.cli.commands:check", "planning", "Report all problems of a scenario."
    ),
    "configurations": CommandEntry(
        "firedex.service.commands.configurations:configurations",
        "service",
        "List and export the configurations of a service.",
    ),
    "controller": CommandEntry(
        "firedex_controller.command:controller", "controller", "Run the OpenFlow controller."
    ),
    "emulate": CommandEntry(
        "firedex_emulation.command:emulate",
        "emulation",
        "Run a scenario on emulated switches and compare it with the prediction.",
    ),
    "federation": CommandEntry(
        "firedex.federation.commands:federation",
        "federation",
        "Show the sites, links and interest of a federation.",
    ),
    "federator": CommandEntry(
        "firedex.federation.commands:federator",
        "federation",
        "Connect the broker of a site with other sites.",
    ),
    "gateway": CommandEntry(
        "firedex.gateway.command:gateway", "gateway", "Run the gateway beside a broker."
    ),
    "incident": CommandEntry(
        "firedex.service.commands.operator:incident",
        "service",
        "Show or change the incident and its phase.",
    ),
    "measurements": CommandEntry(
        "firedex.lab.recordings:measurements",
        "lab",
        "Compare predictions with recorded experiments.",
    ),
    "plan": CommandEntry(
        "firedex.cli.plan:plan", "planning", "Assign flows, priorities and drop rates."
    ),
    "predict": CommandEntry(
        "firedex.cli.commands:predict_command",
        "planning",
        "Predict delays and success rates of an assignment.",
    ),
    "profiles": CommandEntry(
        "firedex.service.commands.profiles:profiles",
        "service",
        "Import and export the utility profiles of a service.",
    ),
    "pub": CommandEntry("firedex_clients.commands:pub", "clients", "Publish events."),
    "reproduce": CommandEntry(
        "firedex.lab.reproduction.command:reproduce_command",
        "lab",
        "Reproduce the FireDeX paper, or a thesis on federation.",
    ),
    "scenarios": CommandEntry(
        "firedex.cli.commands:scenarios", "planning", "List the built-in scenarios."
    ),
    "serve": CommandEntry(
        "firedex.service.commands.serve:serve", "service", "Run the configuration service."
    ),
    "simulate": CommandEntry(
        "firedex.cli.simulate:simulate",
        "planning",
        "Simulate a scenario and compare it with the prediction.",
    ),
    "spark": CommandEntry("firedex_spark.command:spark", "spark", "Run a Spark job."),
    "status": CommandEntry(
        "firedex.service.commands.operator:status", "service", "Show the status of a service."
    ),
    "sub": CommandEntry("firedex_clients.commands:sub", "clients", "Subscribe and print events."),
    "subscriptions": CommandEntry(
        "firedex.service.commands.operator:subscriptions",
        "service",
        "List subscriptions with their predictions.",
    ),
    "switch-agent": CommandEntry(
        "firedex_controller.agent.command:switch_agent",
        "controller",
        "Run the agent that sets up queues on a switch host.",
    ),
    "tokens": CommandEntry(
        "firedex.service.commands.tokens:tokens", "service", "Create, list and revoke API tokens."
    ),
    "up": CommandEntry("firedex.site.command:up", "site", "Run all parts of a site."),
    "what-if": CommandEntry(
        "firedex.service.commands.operator:what_if",
        "service",
        "Show the effect of a change without applying it.",
    ),
}


def _reset_help_option(command: click.Command) -> None:
    """Let click build the help option again, with the names that the ``firedex`` group sets.

    Click keeps the option of the first call, also if that call had no parent, as in a program that
    calls a command directly.
    """
    command._help_option = None
    if isinstance(command, click.Group):
        for child in command.commands.values():
            _reset_help_option(child)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; ``--help`` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Import a command; if its extra is not installed, print the extra and exit."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            click.echo(
                f"firedex: {cmd_name} needs the module {error.name!r}, which is not installed.\n"
                f"Install it with: pip install 'firedex[{entry.extra}]'",
                err=True,
            )
            sys.exit(MISSING_EXTRA)
        _reset_help_option(command)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in sorted(COMMANDS)])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="firedex")
def firedex() -> None:
    """Plan, predict and enforce which MQTT events pass an overloaded network.

    SCENARIO is a YAML file (docs/reference/scenario-file.md) or a built-in scenario such as
    builtin:high-rise.
    Every option can also be set by an environment variable: FIREDEX_PREDICT_MODEL sets the
    option --model of predict.
    """


def main() -> None:
    """Run the command line."""
    try:
        firedex(auto_envvar_prefix="FIREDEX")
    except OSError as error:
        sys.exit(f"firedex: {error}")

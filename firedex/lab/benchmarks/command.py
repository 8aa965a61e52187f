"""``firedex bench``."""

import sys

import click
from rich.console import Console

from firedex.cli.options import json_option
from firedex.cli.output import as_json_text
from firedex.lab.benchmarks import benchmark_names, run_benchmark

__all__ = ["bench"]

LIMIT_EXCEEDED = 1
"""Exit code if a ratio exceeds its limit."""


@click.command(epilog="Example: firedex bench predict --json")
@click.argument("name", type=click.Choice(benchmark_names()), required=False)
@click.option("--all", is_flag=True, help="Run every benchmark.")
@json_option
def bench(
    name: str | None,
    all: bool,  # noqa: A002  # the name of the option
    json: bool,
) -> None:
    """Run a benchmark and print both sides of each ratio, its limit, and the machine.

    Run it on an otherwise idle machine. The exit code is 1 if a ratio exceeds its limit.
    """
    if all == (name is not None):
        raise click.UsageError(f"give one of {', '.join(benchmark_names())}, or --all")
    results = []
    for selected in benchmark_names() if name is None else [name]:
        with Console(stderr=True).status("...") as status:
            results.append(run_benchmark(selected, status.update))
        if not json:
            click.echo(results[-1].as_text())
    if json:
        plain = [result.as_plain() for result in results]
        click.echo(as_json_text(plain if all else plain[0]))
    exceeded = [result for result in results if not result.within_limit]
    sys.exit(LIMIT_EXCEEDED if exceeded else 0)

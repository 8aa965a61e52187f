"""``firedex reproduce``: the paper's figures, anew."""

import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from firedex.cli.output import as_json_text, console, fail
from firedex.cli.tables import new_table
from firedex.reproduction import (
    FIGURES,
    FULL,
    QUICK,
    Figure,
    reproduce,
    write_figure,
    write_report,
)

__all__ = ["reproduce_command"]


@click.command(
    "reproduce",
    short_help="Reproduce the paper's figures.",
    epilog="Example: firedex reproduce fig7 fig8 --quick --out figures",
)
@click.argument("figures", nargs=-1, type=click.Choice(["all", *FIGURES]), required=True)
@click.option("--quick", is_flag=True, help="Fewer and shorter simulations: orderings, no figures.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Where data (CSV), plots (PNG, SVG) and the report (Markdown, HTML) go.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
)
@click.option("--json", is_flag=True, help="Print JSON for machines.")
def reproduce_command(
    figures: tuple[str, ...], quick: bool, out: Path, workers: int, json: bool
) -> None:
    """Reproduce figures of the paper by model and simulation, and say which claims hold.

    On Table 2, in both readings of its bandwidth. All of them take about ten minutes on two cores,
    one with --quick.
    """
    names = list(FIGURES) if "all" in figures else list(dict.fromkeys(figures))
    effort = QUICK if quick else FULL
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out: {error.strerror}: {out}")
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("simulating", total=None)
        made = reproduce(
            names,
            effort,
            workers=workers,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    written = [path for figure in made for path in write_figure(figure, out)]
    written += write_report(made, effort, out)
    if json:
        claims = [
            {
                "figure": figure.name,
                "paper": claim.paper,
                "measured": claim.measured,
                "verdict": claim.verdict,
                "why": claim.why,
            }
            for figure in made
            for claim in figure.claims
        ]
        click.echo(as_json_text({"claims": claims, "files": [str(path) for path in written]}))
    else:
        _show(made, out)


def _show(figures: list[Figure], out: Path) -> None:
    terminal = console()
    for figure in figures:
        table = new_table(f"{figure.name}: {figure.title}")
        for heading in ("the paper says", "measured", "verdict"):
            table.add_column(heading, overflow="fold")
        for claim in figure.claims:
            table.add_row(claim.paper, claim.measured, claim.verdict)
        terminal.print(table)
    terminal.print(f"data, plots and the report are in {out}", highlight=False)

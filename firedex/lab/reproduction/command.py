"""``firedex reproduce``."""

import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from firedex.cli.output import as_json_text, console, fail, new_table
from firedex.lab.reproduction import (
    FIGURES,
    FULL,
    QUICK,
    Figure,
    reproduce,
    write_figure,
    write_report,
)
from firedex.lab.reproduction.federation import (
    FederationResult,
    ReproductionSettings,
    reproduce_federation,
)
from firedex.lab.reproduction.federation_report import as_plain, report_tables, write_federation
from firedex.system.processes import ProgramMissing
from firedex_emulation.site_networks.catalog import SITE_NETWORKS

__all__ = ["reproduce_command"]

FEDERATION = "federation"


@click.command(
    "reproduce",
    epilog="Example: firedex reproduce fig7 fig8 --quick --out figures",
)
@click.argument(
    "figures", nargs=-1, type=click.Choice(["all", *FIGURES, FEDERATION]), required=True
)
@click.option(
    "--quick",
    is_flag=True,
    help="Run fewer and shorter simulations, which give less precise values. For federation, "
    "run one round with six sites.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Folder for data (CSV; JSON for federation), plots (PNG, SVG) and the report "
    "(Markdown, HTML).",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Number of simulation processes that run in parallel; not used for federation.",
)
@click.option(
    "--sites",
    type=click.Choice([str(number) for number in SITE_NETWORKS]),
    multiple=True,
    help="For federation: number of sites of the network; repeat the option for several networks.  "
    "[default: 6, 15 and 25]",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    help="For federation: number of rounds of each case and kind of failure.  [default: 3]",
)
@click.option(
    "--failed",
    type=click.IntRange(min=1),
    help="For federation: number of sites that fail in each round, instead of the cases of the "
    "thesis.",
)
@click.option("--json", is_flag=True, help="Print JSON.")
def reproduce_command(
    figures: tuple[str, ...],
    quick: bool,
    out: Path,
    workers: int,
    sites: tuple[str, ...],
    rounds: int | None,
    failed: int | None,
    json: bool,
) -> None:
    """Reproduce figures of the FireDeX paper, or the failures of a thesis on MQTT federation.

    fig5 … fig10, or all of them with all: compute the figures by model and simulation, and report
    which claims of the paper hold.
    The scenario is the paper's Table 2, in both interpretations of its bandwidth. All figures take
    about ten minutes on two cores, or one minute with --quick.

    federation: a Mosquitto and a federator at each of 6, 15, 25 or 50 sites on loopback, without
    root. Federators are killed or stopped under traffic, and networks are divided and merged; the
    times are reported beside those of the thesis. This takes about ten minutes on two idle cores,
    or half a minute with --quick. The argument all does not include federation.
    """
    names = [name for name in dict.fromkeys(figures) if name in FIGURES]
    if "all" in figures:
        names = list(FIGURES)
    settings = None
    if FEDERATION in figures:
        settings = _federation_settings(sites, rounds, failed, quick=quick)
    elif sites or rounds is not None or failed is not None:
        raise click.UsageError("--sites, --rounds and --failed are for federation only")
    effort = QUICK if quick else FULL
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out: {error.strerror}: {out}")
    written: list[Path] = []
    made: list[Figure] = []
    if names:
        with _progress_bar() as bar:
            task = bar.add_task("simulating", total=None)
            made = reproduce(
                names,
                effort,
                workers=workers,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )
        written += [path for figure in made for path in write_figure(figure, out)]
        written += write_report(made, effort, out)
    measured = None
    if settings is not None:
        measured = _measure_federation(settings)
        written += write_federation(measured, out)
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
        document: dict[str, object] = {"claims": claims, "files": [str(path) for path in written]}
        if measured is not None:
            document["federation"] = as_plain(measured)
        click.echo(as_json_text(document))
    else:
        _show(made, measured, out)


def _progress_bar() -> Progress:
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _federation_settings(
    sites: tuple[str, ...], rounds: int | None, failed: int | None, *, quick: bool
) -> ReproductionSettings:
    networks = tuple(sorted({int(number) for number in sites})) or ((6,) if quick else (6, 15, 25))
    for number in networks:
        if failed is not None and failed > number - 2:
            raise click.UsageError(f"--failed: of {number} sites at most {number - 2} can fail")
    return ReproductionSettings(sites=networks, rounds=rounds or (1 if quick else 3), failed=failed)


def _measure_federation(settings: ReproductionSettings) -> FederationResult:
    with _progress_bar() as bar:
        task = bar.add_task("starting", total=settings.steps)
        try:
            return reproduce_federation(
                settings,
                lambda what, done, total: bar.update(
                    task, description=what, completed=done, total=total
                ),
            )
        except (ProgramMissing, RuntimeError, ValueError) as error:
            fail(str(error))


def _show(figures: list[Figure], measured: FederationResult | None, out: Path) -> None:
    terminal = console()
    for found in report_tables(measured) if measured is not None else ():
        shown = new_table(found.title)
        for heading in found.header:
            shown.add_column(heading, overflow="fold")
        for row in found.rows:
            shown.add_row(*row)
        terminal.print(shown)
    for figure in figures:
        table = new_table(f"{figure.name}: {figure.title}")
        for heading in ("claim of the paper", "measured", "verdict"):
            table.add_column(heading, overflow="fold")
        for claim in figure.claims:
            table.add_row(claim.paper, claim.measured, claim.verdict)
        terminal.print(table)
    terminal.print(f"wrote data, plots and the report to {out}", highlight=False)

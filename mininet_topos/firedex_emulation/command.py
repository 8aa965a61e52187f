"""``firedex emulate``."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.cli.output import console
from firedex.scenario_file import ScenarioFileError
from firedex_emulation.emulated_network import TOPOLOGIES
from firedex_emulation.emulation import emulate_ways
from firedex_emulation.errors import EmulationError
from firedex_emulation.measurement import WayMeasurement
from firedex_emulation.one_run import WAYS
from firedex_emulation.run_journal import clean_up

__all__ = ["emulate"]

FILTER_COLUMNS = 16
NOTICEABLE_STALL_SECONDS = 0.1
INTERRUPTED = 130
TITLES = {"none": "Without FireDeX", "firedex": "With FireDeX"}


@click.command(epilog="Example: firedex emulate builtin:critical-event --duration 10")
@click.argument("scenario", default="builtin:critical-event", metavar="[SCENARIO]")
@click.option(
    "--compare", default=",".join(WAYS), show_default=True, help="Ways to run it, by comma."
)
@click.option(
    "--duration",
    type=click.FloatRange(1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds of traffic each way.",
)
@click.option(
    "--framework",
    type=click.Choice(["ryu", "os-ken"]),
    help="For the controller; by default Ryu if it is installed, else os-ken.",
)
@click.option("--seed", default=1, show_default=True, help="Of the traffic.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the delivery records (Parquet) in this folder.",
)
@click.option(
    "--topology",
    type=click.Choice(TOPOLOGIES),
    help="How to build its network; by default the first of these that carries it.",
)
@click.option(
    "--clean",
    is_flag=True,
    help="Only remove what runs that died have left behind, and say what it was.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def emulate(
    scenario: str,
    compare: str,
    duration: float,
    framework: str | None,
    seed: int,
    out: Path | None,
    topology: str | None,
    clean: bool,
    as_json: bool,
) -> None:
    """Run a scenario on real switches, with and without FireDeX, and measure what is delivered.

    Mininet and Open vSwitch in a sandbox of their own: nothing of it is left when it ends. Needs
    root. SCENARIO's switches and links become switches and links; the subscribers of a switch share
    its bandwidth. In this version events go over TCP.
    """
    if clean:
        _clean(as_json)
        return
    ways = compare.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        raise click.BadParameter(
            f"{unknown[0]!r}; there are {', '.join(WAYS)}", param_hint="--compare"
        )
    if out is not None:
        _make_folder(out)
    chosen = framework or ("ryu" if find_spec("ryu") else "os-ken")
    source = scenario if scenario.startswith("builtin:") else os.path.abspath(scenario)  # noqa: PTH100
    try:
        with _orderly_end(), Console(stderr=True).status("…") as status:
            measured = emulate_ways(
                source,
                ways,
                framework=chosen,
                seconds=duration,
                seed=seed,
                out=out,
                report=status.update,
                topology=topology,
                tell=lambda said: click.echo(f"firedex: {said}", err=True),
            )
    except KeyboardInterrupt:
        click.echo("firedex: interrupted; nothing of the emulation is left", err=True)
        sys.exit(INTERRUPTED)
    except (EmulationError, ScenarioFileError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps([way.as_plain() for way in measured], indent=2))
        return
    _show(measured, out)


def _make_folder(out: Path) -> None:
    if Path("/run") in [*out.resolve().parents, out.resolve()]:
        raise click.BadParameter("the sandbox has a /run of its own", param_hint="--out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--out") from error


def _show(measured: Sequence[WayMeasurement], out: Path | None) -> None:
    terminal = console()
    for way in measured:
        terminal.print(_table(way))
        terminal.print(
            f"host time, measured on the idle network and part of the prediction: "
            f"{_delay(way.host_seconds)}"
        )
        for note in way.notes:
            terminal.print(f"[yellow]{escape(note)}[/yellow]")
        if way.stalled_seconds > NOTICEABLE_STALL_SECONDS:
            terminal.print(
                f"[yellow]the machine itself stood still for {_delay(way.stalled_seconds)} of it: "
                "delays are too long by that[/yellow]"
            )
    if out is not None:
        terminal.print(f"delivery records: {escape(str(out))}")


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Being told to end is an exit like others: what the run has changed is set back on the way."""

    def leave(number: int, _frame: Any) -> NoReturn:
        sys.exit(128 + number)

    former = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _clean(as_json: bool) -> None:
    try:
        removed = clean_up()
    except PermissionError as error:
        click.echo(f"firedex: cleaning up needs root ({error})", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps({"removed": removed}, indent=2))
        return
    for what in removed or ["nothing to clean up: no run has left anything behind"]:
        click.echo(what)


def _table(way: WayMeasurement) -> Table:
    table = Table(title=TITLES[way.way], title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    longest = max((len(row.filter) for row in way.filters), default=0)
    table.add_column("filter", overflow="fold", min_width=min(longest, FILTER_COLUMNS))
    for heading in ("class", "sent", "delivered", "planned", "median", "mean", "predicted"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in way.filters:
        table.add_row(
            escape(row.filter),
            str(row.priority),
            str(row.sent),
            f"{row.success_measured:.1%}",
            f"{row.success_predicted:.1%}",
            _delay(row.delay_p50_seconds),
            _delay(row.delay_mean_seconds),
            _delay(row.delay_predicted_seconds),
        )
    return table


def _delay(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

"""``firedex emulate``."""

import json
import math
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from firedex.scenario_file import ScenarioFileError, read_scenario
from firedex.service_access import ServiceAccessError
from firedex.wire import Transport
from firedex_emulation.emulation_orders import EMBEDDED_LABEL, EmulationOrders
from firedex_emulation.errors import CannotEmulate, EmulationError
from firedex_emulation.measurement import WayMeasurement
from firedex_emulation.network_plan import TOPOLOGIES
from firedex_emulation.report import write_report
from firedex_emulation.run_journal import clean_up
from firedex_emulation.sandbox import check_requirements
from firedex_emulation.tables import show
from firedex_emulation.ways import WAYS, ways_of

__all__ = ["emulate"]

INTERRUPTED = 130


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
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the traffic."
)
@click.option(
    "--transport",
    type=click.Choice(["udp", "tcp"]),
    help="MQTT-SN over UDP or MQTT over TCP to all subscribers; by default as the scenario says.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the report and the delivery records (Parquet) in this folder.",
)
@click.option(
    "--topology",
    type=click.Choice(TOPOLOGIES),
    help="How to build its network; by default the first of these that carries it.",
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Without root and switches: parts on loopback, and a link in user space.",
)
@click.option(
    "--embedded-if-needed",
    is_flag=True,
    help="The same, where real switches cannot be had; says why.",
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
    transport: Transport | None,
    out: Path | None,
    topology: str | None,
    embedded: bool,
    embedded_if_needed: bool,
    clean: bool,
    as_json: bool,
) -> None:
    """Run a scenario on real switches, in several ways, and measure what is delivered.

    Mininet and Open vSwitch in a sandbox of their own: nothing of it is left when it ends. Needs
    root, but for --embedded. The ways: none (one class, no drop rates), priority (classes, no drop
    rates), firedex. The scenario's timeline happens on the way; the report says how predictions
    held.
    """
    if clean:
        _clean(as_json)
        return
    if math.isnan(duration):  # FloatRange lets it pass
        raise click.BadParameter("give a number of seconds", param_hint="--duration")
    try:
        ways = ways_of(compare)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--compare") from error
    if out is not None:
        _make_folder(out)
    try:
        with _orderly_end(), Console(stderr=True).status("…") as status:
            orders = EmulationOrders(
                scenario=read_scenario(scenario),
                ways=ways,
                framework=framework or ("ryu" if find_spec("ryu") else "os-ken"),
                seconds=duration,
                seed=seed,
                folder=out,
                topology=topology,
                transport=transport,
                embedded=embedded or (embedded_if_needed and _has_no_switches()),
            )
            measured = _run(orders, status.update)
            written = write_report(orders, measured, out) if out is not None else []
    except KeyboardInterrupt:
        click.echo("firedex: interrupted; nothing of the emulation is left", err=True)
        sys.exit(INTERRUPTED)
    except (EmulationError, ScenarioFileError, ServiceAccessError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps([way.as_plain() for way in measured], indent=2))
        return
    show(measured, written)


def _run(orders: EmulationOrders, report: Callable[[str], None]) -> list[WayMeasurement]:
    """On what was asked for; only that is imported, since Mininet may not be there."""
    if orders.embedded:
        from firedex_emulation.embedded.embedded_ways import run_embedded

        _tell(EMBEDDED_LABEL)
        return run_embedded(orders, report)
    _check_mininet()
    from firedex_emulation.emulation import emulate_ways

    return emulate_ways(orders, report=report, tell=_tell)


def _check_mininet() -> None:
    if find_spec("mininet") is None:
        raise CannotEmulate("not installed: Mininet's Python package (pip install mininet)")


def _has_no_switches() -> bool:
    try:
        check_requirements()
        _check_mininet()
    except CannotEmulate as error:
        _tell(str(error))
        return True
    return False


def _tell(said: str) -> None:
    click.echo(f"firedex: {said}", err=True)


def _make_folder(out: Path) -> None:
    if Path("/run") in [*out.resolve().parents, out.resolve()]:
        raise click.BadParameter("the sandbox has a /run of its own", param_hint="--out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--out") from error


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

"""The command ``firedex emulate``."""

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

from firedex.scenario import ScenarioFileError, read_scenario
from firedex.transport.http import HttpError
from firedex.wire import Transport
from firedex_emulation.errors import EmulationError, RequirementsMissing
from firedex_emulation.measurement.comparison import ModeMeasurement
from firedex_emulation.report.pages import write_report
from firedex_emulation.report.tables import print_tables
from firedex_emulation.testbed.emulation_settings import EMBEDDED_LABEL, EmulationSettings
from firedex_emulation.testbed.modes import MODES, parse_modes
from firedex_emulation.testbed.run_journal import clean_up
from firedex_emulation.testbed.sandbox import check_requirements
from firedex_emulation.topologies.network_plan import TOPOLOGIES

__all__ = ["emulate"]

INTERRUPTED_EXIT_CODE = 130


@click.command(epilog="Example: firedex emulate builtin:critical-event --duration 10")
@click.argument("scenario", default="builtin:critical-event", metavar="[SCENARIO]")
@click.option(
    "--compare",
    default=",".join(MODES),
    show_default=True,
    help="Modes to run and compare, separated by commas.",
)
@click.option(
    "--duration",
    type=click.FloatRange(1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds of traffic in each mode.",
)
@click.option(
    "--framework",
    type=click.Choice(["ryu", "os-ken"]),
    help="OpenFlow framework of the controller. The default is Ryu if installed, else os-ken.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Seed of the random traffic.",
)
@click.option(
    "--transport",
    type=click.Choice(["udp", "tcp"]),
    help="Transport to all subscribers: MQTT-SN over UDP, or MQTT over TCP. The default is the "
    "transport of the scenario.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the report and the delivery records (Parquet).",
)
@click.option(
    "--topology",
    type=click.Choice(TOPOLOGIES),
    help="Topology of the emulated network. The default is the first one that can carry the "
    "scenario.",
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Run without root and without switches: all processes on loopback, connected by a link in "
    "user space.",
)
@click.option(
    "--embedded-if-needed",
    is_flag=True,
    help="Run as with --embedded if real switches are not available, and print the reason.",
)
@click.option(
    "--clean",
    is_flag=True,
    help="Remove and list the processes and folders that killed runs left behind, and exit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    """Run a scenario on emulated switches in several modes and measure what is delivered.

    Mininet and Open vSwitch run in a private sandbox, which is removed at the end of the run. Root
    is required unless --embedded is given.

    The modes are: none (one class, no drop rates), priority (classes, no drop rates), and firedex
    (classes and drop rates). The events of the scenario's timeline happen during each run. The
    report compares the measurements with the predictions.
    """
    if clean:
        _clean(as_json)
        return
    if math.isnan(duration):  # FloatRange accepts NaN
        raise click.BadParameter("NaN is not a number of seconds", param_hint="--duration")
    try:
        modes = parse_modes(compare)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--compare") from error
    if out is not None:
        _make_report_folder(out)
    try:
        with _exit_on_signals(), Console(stderr=True).status("Starting") as status:
            settings = EmulationSettings(
                scenario=read_scenario(scenario),
                modes=modes,
                framework=framework or ("ryu" if find_spec("ryu") else "os-ken"),
                seconds=duration,
                seed=seed,
                folder=out,
                topology=topology,
                transport=transport,
                embedded=embedded or (embedded_if_needed and _has_no_switches()),
            )
            measurements = _run(settings, status.update)
            files = write_report(settings, measurements, out) if out is not None else []
    except KeyboardInterrupt:
        click.echo("firedex: interrupted; the emulation was removed from this machine", err=True)
        sys.exit(INTERRUPTED_EXIT_CODE)
    except (EmulationError, HttpError, ScenarioFileError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps([mode.as_plain() for mode in measurements], indent=2))
        return
    print_tables(measurements, files)


def _run(settings: EmulationSettings, report: Callable[[str], None]) -> list[ModeMeasurement]:
    """Run on the requested testbed and import only that one: Mininet may not be installed."""
    if settings.embedded:
        from firedex_emulation.embedded.loopback_testbed import run_embedded

        _print_message(EMBEDDED_LABEL)
        return run_embedded(settings, report)
    _check_mininet()
    from firedex_emulation.testbed.switch_testbed import run_on_switches

    return run_on_switches(settings, report=report, on_message=_print_message)


def _check_mininet() -> None:
    if find_spec("mininet") is None:
        raise RequirementsMissing(
            "Mininet's Python package is not installed; run: pip install 'firedex[emulation]'"
        )


def _has_no_switches() -> bool:
    try:
        check_requirements()
        _check_mininet()
    except RequirementsMissing as error:
        _print_message(str(error))
        return True
    return False


def _print_message(message: str) -> None:
    click.echo(f"firedex: {message}", err=True)


def _make_report_folder(out: Path) -> None:
    if Path("/run") in [*out.resolve().parents, out.resolve()]:
        raise click.BadParameter(
            "a folder below /run is not visible in the sandbox; choose another one",
            param_hint="--out",
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--out") from error


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit on SIGTERM and SIGHUP through ``sys.exit``, so that all clean-up code runs."""

    def exit_on_signal(number: int, _frame: Any) -> NoReturn:
        sys.exit(128 + number)

    previous_handlers = {
        number: signal.signal(number, exit_on_signal) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _clean(as_json: bool) -> None:
    try:
        removed = clean_up()
    except PermissionError as error:
        click.echo(f"firedex: --clean must be run as root ({error})", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps({"removed": removed}, indent=2))
        return
    for line in removed or ["nothing to clean up"]:
        click.echo(line)

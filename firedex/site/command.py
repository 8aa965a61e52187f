"""The command ``firedex up``, and its output: a live table, lines, or JSON."""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from firedex.cli.output import INPUT_ERROR, console, fail
from firedex.scenario import InvalidFile, UnreadableFile
from firedex.site.parts import Part, Probe, SitePaths, site_parts
from firedex.site.site_file import Site, read_site
from firedex.site.supervisor import AddressInUse, PartNotStarted, PartState, State, Supervisor
from firedex.system.processes import ChildProcess, ProgramMissing, accepts_connections, find_program
from firedex.transport.http import HttpClient, HttpError, HttpTarget
from firedex.wire.addresses import parse_host_port

__all__ = ["JsonLines", "PlainLines", "StateView", "terminal_table", "up"]

STEP_SECONDS = 0.1
PROBE_SECONDS = 1.0
PART_NOT_STARTED = 1
"""Exit code if a part did not start."""


COLOURS = {State.UP: "green", State.UNREACHABLE: "yellow", State.FAILED: "red"}


class StateView(Protocol):
    """Output of state changes."""

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:
        """Show the new state ``changed``; ``all_parts`` includes it."""


class PlainLines:
    """Print one line for each change of state."""

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:  # noqa: ARG002
        """Print the new state."""
        more = [changed.address, *(["external"] if changed.external else [])]
        more += [f"process {changed.pid}"] if changed.pid is not None else []
        detail = f": {changed.detail}" if changed.detail else ""
        click.echo(f"{changed.name}: {changed.state} ({', '.join(more)}){detail}")


class JsonLines:
    """Print one JSON object for each change of state."""

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:  # noqa: ARG002
        """Print the new state."""
        click.echo(json.dumps(asdict(changed)))


class _LiveTable:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, changed: PartState, all_parts: Sequence[PartState]) -> None:  # noqa: ARG002
        self._live.update(_table(all_parts), refresh=True)


@contextmanager
def terminal_table(terminal: Console) -> Iterator[StateView]:
    """Show a table of all parts and update it at every change."""
    # The table is refreshed at every change, not by a thread: a child ends with the thread that
    # started it.
    with Live(console=terminal, auto_refresh=False) as live:
        yield _LiveTable(live)


def _table(parts: Sequence[PartState]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("part", "state", "address", "process", "restarts"):
        table.add_column(heading, overflow="fold")
    for part in parts:
        text = escape(part.state + (f": {part.detail}" if part.detail else ""))
        colour = COLOURS.get(part.state)
        table.add_row(
            part.name,
            f"[{colour}]{text}[/{colour}]" if colour else text,
            escape(part.address),
            "external" if part.external else str(part.pid or ""),
            str(part.restarts or ""),
        )
    return table


@click.command(
    short_help="Run all parts of a site.",
    epilog="Example: firedex up examples/site.yaml",
)
@click.argument("site", type=click.Path(path_type=Path), metavar="SITE.yaml")
@click.option("--check", is_flag=True, help="Check the site file and exit.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON for each change of state."
)
def up(site: Path, check: bool, as_json: bool) -> None:
    """Start broker, controller, service and gateway of a site and keep them running.

    A part that fails is restarted. Ctrl-C or SIGTERM stops all parts in reverse order. No part
    survives this command, even if it is killed. For parts that run on other machines, the site file
    contains only the address.
    """
    try:
        description = read_site(site)
    except InvalidFile as error:
        _report_problems(error, as_json and check)
    except UnreadableFile as error:
        fail(str(error))
    if check:
        click.echo(json.dumps({"problems": []}) if as_json else f"{site}: no problems")
        return
    try:
        paths = _make_folders(site, description)
        parts = site_parts(description, paths)
        _write_files_and_check_addresses(parts)
    except (OSError, ProgramMissing, AddressInUse) as error:
        fail(str(error))
    try:
        with _stop_signals() as stop, _view(as_json) as view:
            _supervise(parts, paths.logs, view, stop)
    except PartNotStarted as error:
        log = paths.logs / f"{error.part}.log"
        click.echo(f"firedex: {error}\n(complete log: {log})", err=True)
        sys.exit(PART_NOT_STARTED)


def _report_problems(error: InvalidFile, as_json: bool) -> None:
    if as_json:
        problems = [
            {"line": each.line, "path": list(each.path), "message": each.message}
            for each in error.problems
        ]
        click.echo(json.dumps({"problems": problems}))
        sys.exit(INPUT_ERROR)
    fail(str(error))


def _make_folders(file: Path, site: Site) -> SitePaths:
    folder = file.resolve().parent
    state = folder / (site.state or f"{file.stem}.state")
    logs = folder / site.logs if site.logs else state / "logs"
    for new_folder in (state, logs):
        new_folder.mkdir(parents=True, exist_ok=True)
    find_program("setpriv", "util-linux")
    runs_here = site.broker.at is None
    mosquitto = find_program("mosquitto", "mosquitto") if runs_here else ""
    return SitePaths(folder=folder, state=state, logs=logs, mosquitto=mosquitto)


def _write_files_and_check_addresses(parts: tuple[Part, ...]) -> None:
    """Write the files of the parts, and check that their addresses are free."""
    for part in parts:
        for path, text in part.files.items():
            path.write_text(text, "utf-8")
        for address in part.listens:
            if accepts_connections(*parse_host_port(address), PROBE_SECONDS):
                raise AddressInUse(part.name, address)


def _supervise(parts: tuple[Part, ...], logs: Path, view: StateView, stop: threading.Event) -> None:
    def launch(part: Part) -> ChildProcess:
        return ChildProcess(part.command, logs / f"{part.name}.log", part.environment)

    def show(state: PartState) -> None:
        view.show(state, supervisor.states())

    supervisor = Supervisor(parts, launch=launch, check=_is_working, on_change=show)
    try:
        while not stop.is_set():
            supervisor.step(time.monotonic())
            stop.wait(STEP_SECONDS)
    finally:
        supervisor.stop()


def _is_working(probe: Probe) -> bool:
    if probe.path is None:
        return accepts_connections(probe.host, probe.port, PROBE_SECONDS)
    target = HttpTarget(url=f"http://{probe.host}:{probe.port}", timeout_seconds=PROBE_SECONDS)
    with HttpClient(target) as client:
        try:
            client.request("GET", probe.path)
        except HttpError:
            return False
    return True


def _view(as_json: bool) -> AbstractContextManager[StateView]:
    if as_json:
        return nullcontext(JsonLines())
    return terminal_table(console()) if sys.stdout.isatty() else nullcontext(PlainLines())


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Return an event that SIGINT, SIGTERM and SIGHUP set."""
    stop_requested = threading.Event()

    def request_stop(_number: int, _frame: Any) -> None:
        stop_requested.set()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, request_stop) for number in signals}
    try:
        yield stop_requested
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

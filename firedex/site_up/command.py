"""``firedex up``."""

import http.client
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from firedex.child_process import ChildProcess, ProgramMissing, answers, find_program
from firedex.cli.output import MISTAKE_IN_INPUT, console, fail
from firedex.site_up.errors import AddressTaken, PartNotStarted
from firedex.site_up.parts import Part, Place, Probe, parts_of
from firedex.site_up.site_file import Site, read_site
from firedex.site_up.state_view import JsonLines, PlainLines, StateView, terminal_table
from firedex.site_up.supervisor import PartState, Supervisor
from firedex.wire.addresses import parse_host_port
from firedex.yaml_file import InvalidFile, UnreadableFile

__all__ = ["up"]

STEP_SECONDS = 0.1
PROBE_SECONDS = 1.0
PART_NOT_STARTED = 1
"""Exit code when a part did not come up."""


@click.command(
    short_help="Run all parts of a site.",
    epilog="Example: firedex up examples/site.yaml",
)
@click.argument("site", type=click.Path(path_type=Path), metavar="SITE.yaml")
@click.option("--check", is_flag=True, help="Only look for mistakes in the file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line for each change.")
def up(site: Path, check: bool, as_json: bool) -> None:
    """Start broker, controller, service and gateway of a site, keep them running, stop them.

    A part that dies is started again. Ctrl-C or SIGTERM stops everything, in reverse order; however
    this command ends, none of its parts outlives it. What runs elsewhere is given by address.
    """
    try:
        described = read_site(site)
    except InvalidFile as error:
        _refuse(error, as_json and check)
    except UnreadableFile as error:
        fail(str(error))
    if check:
        click.echo(json.dumps({"problems": []}) if as_json else f"{site}: no problems")
        return
    try:
        place = _place(site, described)
        parts = parts_of(described, place)
        _prepare(parts)
    except (OSError, ProgramMissing, AddressTaken) as error:
        fail(str(error))
    try:
        with _told_to_end() as ended, _view(as_json) as view:
            _keep_up(parts, place.logs, view, ended)
    except PartNotStarted as error:
        where = place.logs / f"{error.part}.log"
        click.echo(f"firedex: {error}\n(all it said: {where})", err=True)
        sys.exit(PART_NOT_STARTED)


def _refuse(error: InvalidFile, as_json: bool) -> None:
    if as_json:
        problems = [
            {"line": each.line, "path": list(each.path), "message": each.message}
            for each in error.problems
        ]
        click.echo(json.dumps({"problems": problems}))
        sys.exit(MISTAKE_IN_INPUT)
    fail(str(error))


def _place(file: Path, site: Site) -> Place:
    folder = file.resolve().parent
    state = folder / (site.state or f"{file.stem}.state")
    logs = folder / site.logs if site.logs else state / "logs"
    for made in (state, logs):
        made.mkdir(parents=True, exist_ok=True)
    find_program("setpriv", "util-linux")
    here = site.broker.at is None
    mosquitto = find_program("mosquitto", "mosquitto") if here else ""
    return Place(folder=folder, state=state, logs=logs, mosquitto=mosquitto)


def _prepare(parts: tuple[Part, ...]) -> None:
    """Write what parts read, and see that nobody listens where they will."""
    for part in parts:
        for path, text in part.files.items():
            path.write_text(text, "utf-8")
        for address in part.listens:
            if answers(*parse_host_port(address), PROBE_SECONDS):
                raise AddressTaken(part.name, address)


def _keep_up(parts: tuple[Part, ...], logs: Path, view: StateView, ended: threading.Event) -> None:
    def launch(part: Part) -> ChildProcess:
        return ChildProcess(part.command, logs / f"{part.name}.log", part.environment)

    def changed(state: PartState) -> None:
        view.show(state, supervisor.states())

    supervisor = Supervisor(parts, launch=launch, works=_works, changed=changed)
    try:
        while not ended.is_set():
            supervisor.step(time.monotonic())
            ended.wait(STEP_SECONDS)
    finally:
        supervisor.stop()


def _works(probe: Probe) -> bool:
    if probe.path is None:
        return answers(probe.host, probe.port, PROBE_SECONDS)
    connection = http.client.HTTPConnection(probe.host, probe.port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", probe.path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _view(as_json: bool) -> AbstractContextManager[StateView]:
    if as_json:
        return nullcontext(JsonLines())
    return terminal_table(console()) if sys.stdout.isatty() else nullcontext(PlainLines())


@contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """Ctrl-C and the like set the event; parts are then stopped in order, undisturbed."""
    ended = threading.Event()

    def end(_number: int, _frame: Any) -> None:
        ended.set()

    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, end) for number in kinds}
    try:
        yield ended
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

"""``firedex configurations``: what was planned, when and why; and a copy of each for validation."""

import json as json_text
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.service.service_caller import ServiceCaller, service_options
from firedex.wire import Configuration
from firedex.wire.service_api import ConfigurationRecord

__all__ = ["configurations"]

PAGE = 100
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(
    short_help="List or save what was planned.",
    epilog="Example: firedex configurations --save predictions",
)
@click.option("--last", type=click.IntRange(1), help="So many alone; without it, all.")
@click.option(
    "--save",
    type=FOLDER,
    help="Keep each as a file in this folder, as `firedex spark validate-delays` reads them.",
)
@service_options
def configurations(
    last: int | None, save: Path | None, service: str, token: str | None, json: bool
) -> None:
    """List every configuration that was planned, newest first, and why."""
    caller = ServiceCaller(service, token)
    found = list(_records(caller, last))
    if save is not None:
        saved = [record for record in found if _saved(caller, record, save)]
        click.echo(f"{len(saved)} of {len(found)} configurations are new in {save}", err=True)
    if json:
        click.echo(json_text.dumps(found, indent=2))
    elif save is None:
        _print(found)


def _records(caller: ServiceCaller, last: int | None) -> Iterator[dict[str, Any]]:
    before, told = "", 0
    while last is None or told < last:
        limit = PAGE if last is None else min(PAGE, last - told)
        path = f"/v1/configurations?limit={limit}{before}"
        page = caller.ask("GET", path, of=tuple[ConfigurationRecord, ...])
        yield from page
        told += len(page)
        if len(page) < limit:
            return
        before = f"&before={page[-1]['version']}"


def _saved(caller: ServiceCaller, record: dict[str, Any], folder: Path) -> bool:
    """Write it whole, unless it is there or was never in force."""
    created = datetime.fromisoformat(record["created_at"]).astimezone(UTC)
    # versions begin anew with every site and every database
    file = folder / f"configuration-{record['version']}-{created:%Y%m%dT%H%M%S%f}.json"
    if file.exists() or record["in_force_at"] is None:
        return False
    path = f"/v1/configurations/{record['version']}"
    text = json_text.dumps(caller.ask("GET", path, of=Configuration))
    unfinished = file.with_suffix(".unfinished")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, "utf-8")
        unfinished.replace(file)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    return True


def _print(found: list[dict[str, Any]]) -> None:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("version", "in force", "state", "reason"):
        table.add_column(heading, overflow="fold")
    for record in found:
        when = record["in_force_at"] or "never"
        said = f"{record['reason']} {record['error'] or ''}".strip()
        table.add_row(str(record["version"]), when, record["state"], escape(said))
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)

"""The command ``firedex configurations``: list configurations, or save them for validation."""

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

from firedex.service.commands.api_client import ApiClient, service_options
from firedex.system.files import write_atomically
from firedex.wire import Configuration
from firedex.wire.service_api import ConfigurationRecord

__all__ = ["configurations"]

PAGE = 100
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(
    short_help="List or save configurations.",
    epilog="Example: firedex configurations --save predictions",
)
@click.option(
    "--last",
    type=click.IntRange(1),
    help="Number of configurations to list, starting with the newest. Default: all.",
)
@click.option(
    "--save",
    type=FOLDER,
    help="Save each configuration as a file in this folder, for `firedex spark validate-delays`.",
)
@service_options
def configurations(
    last: int | None, save: Path | None, service: str, token: str | None, json: bool
) -> None:
    """List all configurations, newest first, each with its reason."""
    client = ApiClient(service, token)
    found = list(_records(client, last))
    if save is not None:
        saved = [record for record in found if _save(client, record, save)]
        click.echo(f"saved {len(saved)} of {len(found)} configurations to {save}", err=True)
    if json:
        click.echo(json_text.dumps(found, indent=2))
    elif save is None:
        _print(found)


def _records(client: ApiClient, last: int | None) -> Iterator[dict[str, Any]]:
    before, count = "", 0
    while last is None or count < last:
        limit = PAGE if last is None else min(PAGE, last - count)
        path = f"/v1/configurations?limit={limit}{before}"
        page = client.request("GET", path, kind=tuple[ConfigurationRecord, ...])
        yield from page
        count += len(page)
        if len(page) < limit:
            return
        before = f"&before={page[-1]['version']}"


def _save(client: ApiClient, record: dict[str, Any], folder: Path) -> bool:
    """Write a configuration to a file, unless the file exists or it was never active."""
    created = datetime.fromisoformat(record["created_at"]).astimezone(UTC)
    # Versions start again with each database, so the file name has the time as well.
    file = folder / f"configuration-{record['version']}-{created:%Y%m%dT%H%M%S%f}.json"
    if file.exists() or record["activated_at"] is None:
        return False
    path = f"/v1/configurations/{record['version']}"
    text = json_text.dumps(client.request("GET", path, kind=Configuration))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    return True


def _print(found: list[dict[str, Any]]) -> None:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("version", "active since", "state", "reason"):
        table.add_column(heading, overflow="fold")
    for record in found:
        when = record["activated_at"] or "never"
        reason = f"{record['reason']} {record['error'] or ''}".strip()
        table.add_row(str(record["version"]), when, record["state"], escape(reason))
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)

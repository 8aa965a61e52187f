"""The commands ``firedex status``, ``subscriptions``, ``what-if`` and ``incident``."""

import json as json_text
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firedex.service.commands.api_client import ApiClient, service_options
from firedex.wire import Configuration, Prediction
from firedex.wire.incident import Incident
from firedex.wire.service_api import ServiceStatus, WhatIfResult

__all__ = ["incident", "status", "subscriptions", "what_if"]

RATES_CHANGED = (
    " (with the present rates; these differ from the rates of the active configuration, or changes "
    "are pending)"
)

WAIT = "wait_seconds=20"


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _print_json(data: object) -> None:
    click.echo(json_text.dumps(data, indent=2))


@click.command(
    short_help="Show the status of the service.",
    epilog="Example: firedex status --service http://127.0.0.1:8088",
)
@service_options
def status(service: str, token: str | None, json: bool) -> None:
    """Show the active configuration, pending changes and errors.

    The exit code is 1 if the latest configuration could not be applied to the network.
    """
    found = ApiClient(service, token).request("GET", "/v1/status", kind=ServiceStatus)
    if json:
        _print_json(found)
    else:
        _print_status(found)
    if found["trouble"]:
        raise SystemExit(1)


def _print_status(found: dict[str, Any]) -> None:
    click.echo(
        f"{found['name']}: {found['publishers']} publishers, {found['subscribers']} subscribers "
        f"with {found['subscriptions']} subscriptions, {found['event_streams']} event streams"
    )
    if found["active_version"]:
        rate = found["achieved_utility_rate"]
        utility = "" if rate is None else f", {rate:.1%} of the utility"
        click.echo(
            f"active: configuration {found['active_version']}, since "
            f"{found['active_since']}{utility}, {found['deadlines_missed']} deadlines missed"
        )
    else:
        click.echo("active: no configuration yet")
    click.echo(f"pending: {found['pending_changes']} of {found['last_change']} changes")
    event = found["incident"]
    if event and not event["closed_at"]:
        click.echo(f"incident: {event['title']}, {event['phase']} since {event['phase_since']}")
    trouble = found["trouble"]
    if trouble:
        click.echo(
            f"ERROR since {trouble['since']}, {trouble['attempts']} attempts, next attempt in "
            f"{trouble['next_attempt_seconds']:.1f} s: {trouble['error']}"
        )


@click.command(
    short_help="Show the predictions of subscriptions.",
    epilog="Example: firedex subscriptions --subscriber engine1",
)
@click.option("--subscriber", help="Show the subscriptions of this subscriber only.")
@service_options
def subscriptions(subscriber: str | None, service: str, token: str | None, json: bool) -> None:
    """Show each subscription with its class, its drop rate and its predicted delays."""
    client = ApiClient(service, token)
    if subscriber:
        path = f"/v1/subscribers/{quote(subscriber, safe='')}/configuration"
        prediction = client.request("GET", path, kind=Configuration)["prediction"]
    else:
        prediction = client.request("GET", "/v1/predictions", kind=Prediction)
    rows = prediction["subscriptions"] if prediction else []
    if json:
        _print_json(rows)
    else:
        _console().print(_rows(rows))


def _rows(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("subscription", overflow="fold")
    for heading in ("flow", "class", "drop", "delivered", "mean", "p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(f"{row['subscriber']} {row['filter']}"),
            str(row["flow"]),
            str(row["priority"]),
            f"{row['drop_rate']:.1%}",
            f"{row['success_rate']:.1%}",
            _delay(row["delay_mean_seconds"]),
            _delay(row["delay_p95_seconds"]),
        )
    return table


def _delay(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


@click.command(
    "what-if",
    short_help="Plan a change without applying it.",
    epilog="Example: firedex what-if --phase overhaul --without engine1",
)
@click.argument(
    "change", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--phase", help="Plan as if the incident were in this phase.")
@click.option(
    "--without",
    multiple=True,
    metavar="SUBSCRIBER",
    help="Plan as if this subscriber were not registered. May be given several times.",
)
@service_options
def what_if(
    change: Path | None,
    phase: str | None,
    without: tuple[str, ...],
    service: str,
    token: str | None,
    json: bool,
) -> None:
    """Plan a hypothetical change, and show the differences. Nothing is applied.

    CHANGE is a YAML or JSON file with the body of POST /v1/what-if. Its keys are subscribers,
    publishers, without_subscribers, without_publishers, phase and network.
    """
    body = {} if change is None else _read_change(change)
    if phase:
        body["phase"] = phase
    if without:
        body["without_subscribers"] = [*body.get("without_subscribers", []), *without]
    found = ApiClient(service, token).request("POST", "/v1/what-if", body, kind=WhatIfResult)
    if json:
        _print_json(found)
        return
    prediction, moves = found["prediction"], found["difference"]["subscriptions"]
    present = found["present"]
    click.echo(
        f"with the change: {prediction['achieved_utility_rate']:.1%} of the utility, "
        f"{prediction['deadlines_missed']} deadlines missed; {len(moves)} subscriptions change"
    )
    if present is not None:
        click.echo(
            f"without the change: {present['achieved_utility_rate']:.1%} of the utility, "
            f"{present['deadlines_missed']} deadlines missed"
            + ("" if found["present_is_active"] else RATES_CHANGED)
        )
    table = Table(box=SIMPLE_HEAD)
    table.add_column("subscription", overflow="fold")
    for heading in ("class now", "then", "drop now", "then"):
        table.add_column(heading, justify="right", no_wrap=True)
    for move in moves:
        table.add_row(
            escape(f"{move['subscriber']} {move['filter']}"),
            _number(move["priority_before"]),
            _number(move["priority_after"]),
            _percent(move["drop_rate_before"]),
            _percent(move["drop_rate_after"]),
        )
    _console().print(table)


def _read_change(file: Path) -> dict[str, Any]:
    """Return the content of a YAML file as JSON values; dates become text."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        plain = json_text.loads(json_text.dumps(found, default=str))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="CHANGE") from error
    if not isinstance(plain, dict):
        raise click.BadParameter(
            f"{file}: must be a mapping, such as 'phase: overhaul'", param_hint="CHANGE"
        )
    if not isinstance(plain.get("without_subscribers", []), list):
        raise click.BadParameter(
            f"{file}: without_subscribers: must be a list", param_hint="CHANGE"
        )
    return plain


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


@click.group(
    short_help="Open, show, change or close the incident.",
    epilog="Example: firedex incident phase suppression",
)
def incident() -> None:
    """Open, show, change or close the incident."""


def _report_change(response: dict[str, Any], json: bool, what: str) -> None:
    if json:
        _print_json(response)
    elif "version" in response:
        click.echo(f"{what}; active with configuration {response['version']}")
    else:
        click.echo(f"{what}; stored, but not active yet (change {response.get('change')})")


@incident.command("open", epilog='Example: firedex incident open "Tower fire" --phase size-up')
@click.argument("title")
@click.option("--phase", default="size-up", show_default=True, help="First phase of the incident.")
@service_options
def open_(title: str, phase: str, service: str, token: str | None, json: bool) -> None:
    """Open an incident."""
    body = {"title": title, "phase": phase}
    response = ApiClient(service, token).request("POST", f"/v1/incident?{WAIT}", body)
    _report_change(response, json, f"the incident {title!r} is open, in the phase {phase}")


@incident.command("phase", epilog="Example: firedex incident phase suppression")
@click.argument("phase")
@service_options
def phase_(phase: str, service: str, token: str | None, json: bool) -> None:
    """Change the phase of the incident.

    The utility profile of the phase applies from then on.
    """
    body = {"phase": phase}
    response = ApiClient(service, token).request("PUT", f"/v1/incident/phase?{WAIT}", body)
    _report_change(response, json, f"the incident is in the phase {phase}")


@incident.command("close", epilog="Example: firedex incident close")
@service_options
def close(service: str, token: str | None, json: bool) -> None:
    """Close the incident."""
    response = ApiClient(service, token).request("DELETE", f"/v1/incident?{WAIT}")
    _report_change(response, json, "the incident is closed")


@incident.command("show", epilog="Example: firedex incident show --json")
@service_options
def show(service: str, token: str | None, json: bool) -> None:
    """Show the open incident, or the last one."""
    found = ApiClient(service, token).request("GET", "/v1/incident", kind=Incident)
    if json:
        _print_json(found)
    else:
        state = "closed" if found["closed_at"] else f"in the phase {found['phase']}"
        click.echo(f"{found['title']}: {state}, opened {found['opened_at']}")

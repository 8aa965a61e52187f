"""``firedex status``, ``subscriptions``, ``what-if``, ``incident``: the service for people."""

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

from firedex.service.service_caller import ServiceCaller, service_options
from firedex.wire import Configuration, Prediction
from firedex.wire.incident import Incident
from firedex.wire.service_api import ServiceStatus, WhatIfAnswer

__all__ = ["incident", "status", "subscriptions", "what_if"]

MOVED = " (as rates are now: they have moved since the plan in force, or changes are to come)"

WAIT = "wait_seconds=20"


def _console() -> Console:
    made = Console()
    return made if made.is_terminal else Console(width=160)


def _show(data: object) -> None:
    click.echo(json_text.dumps(data, indent=2))


@click.command(
    short_help="Show what the service is doing.",
    epilog="Example: firedex status --service http://127.0.0.1:8088",
)
@service_options
def status(service: str, token: str | None, json: bool) -> None:
    """Show what is in force, what is pending, and what is wrong; exit code 1 if anything is."""
    found = ServiceCaller(service, token).ask("GET", "/v1/status", of=ServiceStatus)
    if json:
        _show(found)
    else:
        _print_status(found)
    if found["trouble"]:
        raise SystemExit(1)


def _print_status(found: dict[str, Any]) -> None:
    click.echo(
        f"{found['name']}: {found['publishers']} publishers, {found['subscribers']} subscribers "
        f"with {found['subscriptions']} subscriptions, {found['event_streams']} event streams"
    )
    if found["in_force_version"]:
        rate = found["achieved_utility_rate"]
        worth = "" if rate is None else f", {rate:.1%} of the utility"
        click.echo(
            f"in force: configuration {found['in_force_version']}, since "
            f"{found['in_force_since']}{worth}, {found['deadlines_missed']} deadlines missed"
        )
    else:
        click.echo("in force: nothing yet")
    click.echo(f"pending: {found['pending_changes']} of {found['last_change']} changes")
    event = found["incident"]
    if event and not event["closed_at"]:
        click.echo(f"incident: {event['title']}, {event['phase']} since {event['phase_since']}")
    trouble = found["trouble"]
    if trouble:
        click.echo(
            f"TROUBLE since {trouble['since']}, {trouble['attempts']} attempts, next in "
            f"{trouble['next_attempt_seconds']:.1f} s: {trouble['error']}"
        )


@click.command(
    short_help="Show what subscriptions get.",
    epilog="Example: firedex subscriptions --subscriber engine1",
)
@click.option("--subscriber", help="Only this one's.")
@service_options
def subscriptions(subscriber: str | None, service: str, token: str | None, json: bool) -> None:
    """Show every subscription with its class, its drop rate and what is predicted of it."""
    caller = ServiceCaller(service, token)
    if subscriber:
        path = f"/v1/subscribers/{quote(subscriber, safe='')}/configuration"
        prediction = caller.ask("GET", path, of=Configuration)["prediction"]
    else:
        prediction = caller.ask("GET", "/v1/predictions", of=Prediction)
    rows = prediction["subscriptions"] if prediction else []
    if json:
        _show(rows)
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
    short_help="Plan a change without making it.",
    epilog="Example: firedex what-if --phase overhaul --without engine1",
)
@click.argument(
    "change", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--phase", help="As if the incident were in this phase.")
@click.option("--without", multiple=True, metavar="SUBSCRIBER", help="As if it were gone.")
@service_options
def what_if(
    change: Path | None,
    phase: str | None,
    without: tuple[str, ...],
    service: str,
    token: str | None,
    json: bool,
) -> None:
    """Plan a hypothetical change, and show what would be different; nothing is applied.

    CHANGE is a YAML or JSON file, as POST /v1/what-if takes it: subscribers, publishers,
    without_subscribers, without_publishers, phase, network.
    """
    asked = {} if change is None else _read_change(change)
    if phase:
        asked["phase"] = phase
    if without:
        asked["without_subscribers"] = [*asked.get("without_subscribers", []), *without]
    found = ServiceCaller(service, token).ask("POST", "/v1/what-if", asked, of=WhatIfAnswer)
    if json:
        _show(found)
        return
    prediction, moves = found["prediction"], found["difference"]["subscriptions"]
    present = found["present"]
    click.echo(
        f"it would achieve {prediction['achieved_utility_rate']:.1%} of the utility, with "
        f"{prediction['deadlines_missed']} deadlines missed; {len(moves)} subscriptions change"
    )
    if present is not None:
        click.echo(
            f"without it: {present['achieved_utility_rate']:.1%}, with "
            f"{present['deadlines_missed']} deadlines missed"
            + ("" if found["present_is_in_force"] else MOVED)
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
            _part(move["drop_rate_before"]),
            _part(move["drop_rate_after"]),
        )
    _console().print(table)


def _read_change(file: Path) -> dict[str, Any]:
    """What stands in a file, as JSON can say it; YAML's dates are text there."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        plain = json_text.loads(json_text.dumps(found, default=str))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="CHANGE") from error
    if not isinstance(plain, dict):
        raise click.BadParameter(
            f"{file}: must have names and values, such as 'phase: overhaul'", param_hint="CHANGE"
        )
    if not isinstance(plain.get("without_subscribers", []), list):
        raise click.BadParameter(
            f"{file}: without_subscribers: must be a list", param_hint="CHANGE"
        )
    return plain


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _part(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


@click.group(
    short_help="Open, change or close the incident.",
    epilog="Example: firedex incident phase suppression",
)
def incident() -> None:
    """Open an incident, take it into another phase, close it."""


def _changed(answer: dict[str, Any], json: bool, said: str) -> None:
    if json:
        _show(answer)
    elif "version" in answer:
        click.echo(f"{said}; in force with configuration {answer['version']}")
    else:
        click.echo(f"{said}; not in force yet (change {answer.get('change')})")


@incident.command("open", epilog='Example: firedex incident open "Tower fire" --phase size-up')
@click.argument("title")
@click.option("--phase", default="size-up", show_default=True, help="Its first phase.")
@service_options
def open_(title: str, phase: str, service: str, token: str | None, json: bool) -> None:
    """Open an incident."""
    body = {"title": title, "phase": phase}
    answer = ServiceCaller(service, token).ask("POST", f"/v1/incident?{WAIT}", body)
    _changed(answer, json, f"{title} is open, in {phase}")


@incident.command("phase", epilog="Example: firedex incident phase suppression")
@click.argument("phase")
@service_options
def phase_(phase: str, service: str, token: str | None, json: bool) -> None:
    """Take the incident into another phase; its utility profile counts from then on."""
    body = {"phase": phase}
    answer = ServiceCaller(service, token).ask("PUT", f"/v1/incident/phase?{WAIT}", body)
    _changed(answer, json, f"in {phase}")


@incident.command("close", epilog="Example: firedex incident close")
@service_options
def close(service: str, token: str | None, json: bool) -> None:
    """Close the incident."""
    answer = ServiceCaller(service, token).ask("DELETE", f"/v1/incident?{WAIT}")
    _changed(answer, json, "the incident is closed")


@incident.command("show", epilog="Example: firedex incident show --json")
@service_options
def show(service: str, token: str | None, json: bool) -> None:
    """Show the incident that is going on, or the last one."""
    found = ServiceCaller(service, token).ask("GET", "/v1/incident", of=Incident)
    if json:
        _show(found)
    else:
        state = "closed" if found["closed_at"] else f"in {found['phase']}"
        click.echo(f"{found['title']}: {state}, opened {found['opened_at']}")

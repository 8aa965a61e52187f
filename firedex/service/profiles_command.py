"""``firedex profiles``: utility profiles of phases, in and out of a running service."""

import json as json_text
from pathlib import Path

import click

from firedex.service.service_caller import ServiceCaller, service_options
from firedex.wire import InvalidValue, from_json, to_plain
from firedex.wire.incident import PhaseProfile

__all__ = ["profiles"]


@click.group(
    short_help="What phases of an incident make of utilities.",
    epilog="Example: firedex profiles load weights/profiles.json",
)
def profiles() -> None:
    """What phases of an incident make of utilities: show it, or load what was learnt."""


@profiles.command("show", epilog="Example: firedex profiles show --json")
@service_options
def show(service: str, token: str | None, json: bool) -> None:
    """Show the profiles of all phases."""
    found = ServiceCaller(service, token).ask("GET", "/v1/profiles", of=tuple[PhaseProfile, ...])
    if json:
        click.echo(json_text.dumps(found, indent=2))
        return
    for profile in found:
        click.echo(f"{profile['phase']}: {len(profile['rules'])} rules")


@profiles.command("load", epilog="Example: firedex profiles load weights/profiles.json")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@service_options
def load(file: Path, service: str, token: str | None, json: bool) -> None:
    """Load profiles, as `firedex spark fit-utility-weights` writes them and `show --json` prints.

    Each phase in FILE is replaced whole; other phases stay. All of it is checked before anything
    is sent.
    """
    try:
        loaded = from_json(tuple[PhaseProfile, ...], file.read_text("utf-8"))
    except (InvalidValue, OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    caller = ServiceCaller(service, token)
    for profile in loaded:
        rules = {"rules": [to_plain(rule) for rule in profile.rules]}
        caller.ask("PUT", f"/v1/profiles/{profile.phase}", rules)
    said = {profile.phase: len(profile.rules) for profile in loaded}
    if json:
        click.echo(json_text.dumps(said))
    else:
        for phase, rules_count in said.items():
            click.echo(f"{phase}: {rules_count} rules")

"""The command ``firedex profiles``: show and load the utility profiles of phases."""

import json as json_text
from pathlib import Path

import click

from firedex.service.commands.api_client import ApiClient, service_options
from firedex.service.planner.utility_policy import difference_of
from firedex.wire import InvalidValue, from_json, from_plain, to_plain
from firedex.wire.incident import PhaseProfile, ProfileRule, UtilityProfile

__all__ = ["profiles"]

MAX_SHOWN = 40


@click.group(
    short_help="Show or load the utility profiles of phases.",
    epilog="Example: firedex profiles load weights/profiles.json",
)
def profiles() -> None:
    """Show or load the utility profiles of the phases of an incident."""


@profiles.command("show", epilog="Example: firedex profiles show --json")
@service_options
def show(service: str, token: str | None, json: bool) -> None:
    """Show the utility profiles of all phases."""
    found = ApiClient(service, token).request("GET", "/v1/profiles", kind=tuple[PhaseProfile, ...])
    if json:
        click.echo(json_text.dumps(found, indent=2))
        return
    for profile in found:
        click.echo(f"{profile['phase']}: {len(profile['rules'])} rules")


@profiles.command("load", epilog="Example: firedex profiles load weights/profiles.json --dry-run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change, without changing anything.")
@service_options
def load(file: Path, dry_run: bool, service: str, token: str | None, json: bool) -> None:
    """Load utility profiles from FILE.

    FILE is written by `firedex spark fit-utility-weights` or by `firedex profiles show --json`. The
    profile of each phase in FILE is replaced; other phases are not changed. The whole file is
    checked before anything is sent.
    """
    loaded = _read(file)
    client = ApiClient(service, token)
    if dry_run:
        _show_changes(client, loaded, json)
        return
    done: list[str] = []
    for profile in loaded:
        rules = {"rules": [to_plain(rule) for rule in profile.rules]}
        try:
            client.request("PUT", f"/v1/profiles/{profile.phase}", rules)
        except click.ClickException as error:
            so_far = f"loaded so far: {', '.join(done)}" if done else "nothing was loaded"
            raise click.ClickException(f"{profile.phase}: {error.message}; {so_far}") from error
        done.append(profile.phase)
    counts = {profile.phase: len(profile.rules) for profile in loaded}
    if json:
        click.echo(json_text.dumps(counts))
    else:
        for phase, rules_count in counts.items():
            click.echo(f"{phase}: {rules_count} rules")


def _read(file: Path) -> tuple[PhaseProfile, ...]:
    """Return the profiles of a file; end the command if one is invalid."""
    try:
        loaded = from_json(tuple[PhaseProfile, ...], file.read_text("utf-8"))
        for profile in loaded:
            from_plain(UtilityProfile, {"rules": [to_plain(rule) for rule in profile.rules]})
    except (InvalidValue, OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    phases = [profile.phase for profile in loaded]
    doubled = sorted({phase for phase in phases if phases.count(phase) > 1})
    if doubled:
        raise click.ClickException(f"{file}: more than one profile for {', '.join(doubled)}")
    if not loaded:
        raise click.ClickException(f"{file}: the file has no profiles")
    return loaded


def _show_changes(client: ApiClient, loaded: tuple[PhaseProfile, ...], json: bool) -> None:
    found = client.request("GET", "/v1/profiles", kind=tuple[PhaseProfile, ...])
    present = {p.phase: p for p in from_plain(tuple[PhaseProfile, ...], found, tolerant=True)}
    differences = {
        profile.phase: difference_of(
            present[profile.phase].rules if profile.phase in present else (), profile.rules
        )
        for profile in loaded
    }
    if json:
        plain = {
            phase: {
                "new": len(difference.new),
                "changed": len(difference.changed),
                "gone": len(difference.removed),
                "same": difference.unchanged,
                "reordered": difference.reordered,
            }
            for phase, difference in differences.items()
        }
        click.echo(json_text.dumps(plain))
        return
    for phase, difference in differences.items():
        click.echo(f"{phase}: {difference}")
        lines = [f"  + {_rule_text(rule)}" for rule in difference.new]
        lines += [
            f"  ~ {_rule_text(now)}, was {_effect_text(was)}" for was, now in difference.changed
        ]
        lines += [f"  - {_rule_text(rule)}" for rule in difference.removed]
        for line in lines[:MAX_SHOWN]:
            click.echo(line)
        if len(lines) > MAX_SHOWN:
            click.echo(f"  … and {len(lines) - MAX_SHOWN} more")
    click.echo("nothing was changed (--dry-run)")


def _rule_text(rule: ProfileRule) -> str:
    return f"{rule.role} {rule.filter}: {_effect_text(rule)}"


def _effect_text(rule: ProfileRule) -> str:
    if rule.utility is None:
        return f"times {rule.factor:g}"
    return f"{rule.utility.kind} utility of weight {rule.utility.weight:g}"

"""``firedex profiles``: utility profiles of phases, in and out of a running service."""

import json as json_text
from pathlib import Path

import click

from firedex.service.profile_differences import difference_of
from firedex.service.service_caller import ServiceCaller, service_options
from firedex.wire import InvalidValue, from_json, from_plain, to_plain
from firedex.wire.incident import PhaseProfile, ProfileRule, UtilityProfile

__all__ = ["profiles"]

MOST_SHOWN = 40


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


@profiles.command("load", epilog="Example: firedex profiles load weights/profiles.json --dry-run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@service_options
def load(file: Path, dry_run: bool, service: str, token: str | None, json: bool) -> None:
    """Load profiles, as `firedex spark fit-utility-weights` writes them and `show --json` prints.

    Each phase in FILE is replaced whole; other phases stay. All of it is checked before anything
    is sent.
    """
    loaded = _read(file)
    caller = ServiceCaller(service, token)
    if dry_run:
        _show_changes(caller, loaded, json)
        return
    done: list[str] = []
    for profile in loaded:
        rules = {"rules": [to_plain(rule) for rule in profile.rules]}
        try:
            caller.ask("PUT", f"/v1/profiles/{profile.phase}", rules)
        except click.ClickException as error:
            so_far = f"loaded so far: {', '.join(done)}" if done else "nothing was loaded"
            raise click.ClickException(f"{profile.phase}: {error.message}; {so_far}") from error
        done.append(profile.phase)
    said = {profile.phase: len(profile.rules) for profile in loaded}
    if json:
        click.echo(json_text.dumps(said))
    else:
        for phase, rules_count in said.items():
            click.echo(f"{phase}: {rules_count} rules")


def _read(file: Path) -> tuple[PhaseProfile, ...]:
    """The profiles of a file, as the service takes them."""
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
        raise click.ClickException(f"{file}: there are no profiles in it")
    return loaded


def _show_changes(caller: ServiceCaller, loaded: tuple[PhaseProfile, ...], json: bool) -> None:
    found = caller.ask("GET", "/v1/profiles", of=tuple[PhaseProfile, ...])
    present = {p.phase: p for p in from_plain(tuple[PhaseProfile, ...], found, tolerant=True)}
    said = {
        profile.phase: difference_of(
            present[profile.phase].rules if profile.phase in present else (), profile.rules
        )
        for profile in loaded
    }
    if json:
        plain = {
            phase: {
                "new": len(one.new),
                "changed": len(one.changed),
                "gone": len(one.gone),
                "same": one.same,
                "reordered": one.reordered,
            }
            for phase, one in said.items()
        }
        click.echo(json_text.dumps(plain))
        return
    for phase, one in said.items():
        click.echo(f"{phase}: {one}")
        lines = [f"  + {_shown(rule)}" for rule in one.new]
        lines += [f"  ~ {_shown(now)}, was {_worth(was)}" for was, now in one.changed]
        lines += [f"  - {_shown(rule)}" for rule in one.gone]
        for line in lines[:MOST_SHOWN]:
            click.echo(line)
        if len(lines) > MOST_SHOWN:
            click.echo(f"  … and {len(lines) - MOST_SHOWN} more")
    click.echo("nothing was changed (--dry-run)")


def _shown(rule: ProfileRule) -> str:
    return f"{rule.role} {rule.filter}: {_worth(rule)}"


def _worth(rule: ProfileRule) -> str:
    if rule.utility is None:
        return f"times {rule.factor:g}"
    return f"{rule.utility.kind} utility of weight {rule.utility.weight:g}"

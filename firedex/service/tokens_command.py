"""``firedex tokens``: on the state itself, since whoever can write that can do anything."""

import json as json_text
from dataclasses import asdict

import click

from firedex.service.database import Database
from firedex.service.errors import Refused, StateError
from firedex.service.tokens import ROLES, Role, Tokens

__all__ = ["tokens"]

state_option = click.option(
    "--state",
    envvar="FIREDEX_SERVE_STATE",
    default="firedex.sqlite",
    show_default=True,
    help="The service's: a file, or postgresql://USER@HOST/DATABASE.",
)


def _tokens(state: str) -> Tokens:
    try:
        return Tokens(Database(state))
    except StateError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error


@click.group(
    short_help="Make and revoke the service's tokens.",
    epilog="Example: firedex tokens create chief --role command",
)
def tokens() -> None:
    """Make, list and revoke the tokens by which the service knows who asks."""


@tokens.command(epilog="Example: firedex tokens create engine1 --role subscriber --for engine1")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do.")
@click.option("--for", "party", help="The one subscriber or publisher that it stands for.")
@click.option("--crew-role", help="The role, with its budget, that the subscriber registers under.")
@state_option
def create(name: str, role: Role, party: str | None, crew_role: str | None, state: str) -> None:
    """Make a token; it is printed now and never again."""
    if role == "subscriber" and crew_role is None:
        crew_role = "crew"
    try:
        click.echo(_tokens(state).create(name, role, party, crew_role))
    except Refused as error:
        raise click.ClickException(str(error)) from error


@tokens.command("list", epilog="Example: firedex tokens list --json")
@click.option("--json", is_flag=True, help="Print JSON for machines.")
@state_option
def list_(json: bool, state: str) -> None:
    """List all tokens; the tokens themselves are nowhere."""
    found = _tokens(state).listed()
    if json:
        click.echo(json_text.dumps([asdict(row) for row in found], indent=2))
        return
    for row in found:
        whose = f" for {row.party}" if row.party else ""
        click.echo(f"{row.name}: {row.role}{whose}{' (revoked)' if row.revoked else ''}")


@tokens.command(epilog="Example: firedex tokens revoke engine1")
@click.argument("name")
@state_option
def revoke(name: str, state: str) -> None:
    """Make a token invalid from now on."""
    try:
        _tokens(state).revoke(name)
    except Refused as error:
        raise click.ClickException(str(error)) from error

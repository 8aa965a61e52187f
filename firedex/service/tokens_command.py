"""``firedex tokens``: on the state itself, since whoever can write that can do anything."""

import getpass
import json as json_text
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def _tokens(state: str, *, must_exist: bool = True) -> Iterator[Tokens]:
    try:
        database = Database(state, must_exist=must_exist)
    except StateError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error
    try:
        yield Tokens(database, actor=f"{_user()} at the command line")
    except Refused as error:
        raise click.ClickException(str(error)) from error
    finally:
        database.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


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
    with _tokens(state, must_exist=False) as kept:
        click.echo(kept.create(name, role, party, crew_role))


@tokens.command("list", epilog="Example: firedex tokens list --json")
@click.option("--json", is_flag=True, help="Print JSON for machines.")
@state_option
def list_(json: bool, state: str) -> None:
    """List all tokens; the tokens themselves are nowhere."""
    with _tokens(state) as kept:
        found = kept.listed()
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
    with _tokens(state) as kept:
        kept.revoke(name)

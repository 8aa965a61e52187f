"""The command ``firedex tokens``. It uses the database itself, so it needs no token."""

import getpass
import json as json_text
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from firedex.service.errors import RequestError, StateError
from firedex.service.state.database import Database
from firedex.service.state.tokens import ROLES, Role, Tokens

__all__ = ["tokens"]

state_option = click.option(
    "--state",
    envvar="FIREDEX_SERVE_STATE",
    default="firedex.sqlite",
    show_default=True,
    help="Database of the service: a file, or postgresql://USER@HOST/DATABASE.",
)


@contextmanager
def _tokens(state: str, *, must_exist: bool = True) -> Iterator[Tokens]:
    try:
        database = Database(state, must_exist=must_exist)
    except StateError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error
    try:
        yield Tokens(database, actor=f"{_user()} at the command line")
    except RequestError as error:
        raise click.ClickException(str(error)) from error
    finally:
        database.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown user"


@click.group(
    short_help="Create, list and revoke API tokens.",
    epilog="Example: firedex tokens create chief --role command",
)
def tokens() -> None:
    """Create, list and revoke the tokens that callers of the service need."""


@tokens.command(epilog="Example: firedex tokens create engine1 --role subscriber --for engine1")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="Role of the token. It decides what the token permits.",
)
@click.option("--for", "client", help="Subscriber or publisher that the token is for.")
@click.option(
    "--crew-role",
    help="Crew role that the subscriber must register with; it selects the budget. Default: crew.",
)
@click.option(
    "--owner",
    help="Person or organisation that holds the token. All clients of an owner share one budget. "
    "Default: the name of the token.",
)
@state_option
def create(
    name: str,
    role: Role,
    client: str | None,
    crew_role: str | None,
    owner: str | None,
    state: str,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    if role == "subscriber" and crew_role is None:
        crew_role = "crew"
    with _tokens(state, must_exist=False) as store:
        click.echo(store.create(name, role, client, crew_role, owner))


@tokens.command("list", epilog="Example: firedex tokens list --json")
@click.option("--json", is_flag=True, help="Print JSON.")
@state_option
def list_(json: bool, state: str) -> None:
    """List all tokens: names and roles. The secrets are not stored."""
    with _tokens(state) as store:
        found = store.all()
    if json:
        click.echo(json_text.dumps([asdict(row) for row in found], indent=2))
        return
    for row in found:
        holder = f" for {row.client}" if row.client else ""
        owner = "" if row.owner == row.name else f", owned by {row.owner}"
        revoked = " (revoked)" if row.revoked else ""
        click.echo(f"{row.name}: {row.role}{holder}{owner}{revoked}")


@tokens.command(epilog="Example: firedex tokens revoke engine1")
@click.argument("name")
@state_option
def revoke(name: str, state: str) -> None:
    """Revoke a token."""
    with _tokens(state) as store:
        store.revoke(name)

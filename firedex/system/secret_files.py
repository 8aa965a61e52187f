"""Secrets from files and the environment, so that they are not in the list of processes."""

import functools
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["password_options", "read_secret", "token_options"]

MAX_SECRET_BYTES = 65_536
OTHERS_MASK = stat.S_IRWXO
Command = TypeVar("Command", bound=Callable[..., Any])


def read_secret(path: Path) -> str:
    """Return the only line of a file; raise ValueError if it is empty, too long or unreadable."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        secret = data.decode().strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: the secret is not text") from error
    if not secret or len(data) > MAX_SECRET_BYTES or "\n" in secret:
        raise ValueError(f"{path}: the file must contain the secret in one line, and nothing else")
    if path.stat().st_mode & OTHERS_MASK:
        click.echo(
            f"firedex: warning: other users may access {path}; run: chmod 600 {path}", err=True
        )
    return secret


def _secret_options(
    name: str, option: str, help_text: str, file_help: str
) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--OPTION`` and ``--OPTION-file``, and passes one secret."""
    file_name = f"{name}_file"

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_secret(*arguments: Any, **options: Any) -> Any:
            path = options.pop(file_name)
            if path is not None:
                if options[name]:
                    raise click.UsageError(f"give either {option} or {option}-file, not both")
                try:
                    options[name] = read_secret(path)
                except ValueError as error:
                    raise click.UsageError(f"{option}-file: {error}") from error
            return command(*arguments, **options)

        file_option = click.option(
            f"{option}-file",
            file_name,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help=file_help,
        )
        return click.option(option, name, help=help_text)(file_option(with_secret))  # type: ignore[return-value]

    return decorate


token_options = _secret_options(
    "token",
    "--token",
    "API token for the configuration service. Other users can read it in the list of processes; "
    "use --token-file or the environment variable instead.",
    "File with the API token for the configuration service.",
)


def password_options(prefix: str, server: str) -> Callable[[Command], Command]:
    """Return a decorator with ``--PREFIX-password-file`` and its value in the environment."""
    return _secret_options(
        f"{prefix}_password".replace("-", "_"),
        f"--{prefix}-password",
        f"Password for {server}. Other users can read it in the list of processes; use "
        f"--{prefix}-password-file or the environment variable instead.",
        f"File with the password for {server}.",
    )

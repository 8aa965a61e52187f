"""Requests to a service from the command line, and the options that all such commands have."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from firedex.system.options import HTTP_OR_HTTPS_URL
from firedex.transport.http import ErrorResponse, HttpClient, HttpError, HttpTarget
from firedex.wire import InvalidValue, from_json

__all__ = ["ApiClient", "service_options"]

TIMEOUT_SECONDS = 60.0
MAX_ERROR_LENGTH = 200
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ApiClient:
    """A service at ``url``, used with ``token``. Every failure ends the command with a message."""

    url: str
    token: str | None

    def request(
        self, method: str, path: str, body: object = None, *, kind: Any = dict[str, Any]
    ) -> Any:
        """Send a request; return the JSON of a response of the type ``kind``."""
        encoded = None if body is None else json.dumps(body)
        try:
            target = HttpTarget(url=self.url, token=self.token, timeout_seconds=TIMEOUT_SECONDS)
            with HttpClient(target) as client:
                response = client.request(method, path, encoded)
        except ErrorResponse as error:
            raise click.ClickException(f"{error.status}: {error}") from error
        except (HttpError, ValueError) as error:
            raise click.ClickException(str(error)) from error
        try:
            from_json(kind, response.body, tolerant=True)
        except InvalidValue as error:
            reason = str(error).splitlines()[0][:MAX_ERROR_LENGTH]
            raise click.ClickException(
                f"{self.url} is not a FireDeX service: unexpected response: {reason}"
            ) from error
        return json.loads(response.body)


def service_options(command: F) -> F:
    """Add the options ``--service``, ``--token`` and ``--json`` to a command."""
    command = click.option("--json", is_flag=True, help="Print JSON.")(command)
    command = click.option(
        "--token",
        envvar="FIREDEX_TOKEN",
        help="Token for the service (FIREDEX_TOKEN); not needed with `firedex serve --open`.",
    )(command)
    return click.option(
        "--service",
        envvar="FIREDEX_SERVICE",
        default="http://127.0.0.1:8088",
        show_default=True,
        type=HTTP_OR_HTTPS_URL,
        help="URL of the service (FIREDEX_SERVICE).",
    )(command)

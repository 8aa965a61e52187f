"""Asking a service from the command line: one request, and what is wrong in words."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from firedex.command_options import HTTP_OR_HTTPS_URL
from firedex.wire import InvalidValue, from_json

__all__ = ["ServiceCaller", "service_options"]

PATIENCE_SECONDS = 60.0
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """A service at ``url``, asked with ``token``."""

    url: str
    token: str | None

    def ask(self, method: str, path: str, body: object = None, *, of: Any = dict[str, Any]) -> Any:
        """The JSON of an answer that is one ``of``; whatever else it is ends the command with the
        reason.
        """
        answer = self._ask(method, path, body)
        try:
            from_json(of, answer, tolerant=True)
        except InvalidValue as error:
            said = str(error).splitlines()[0][:200]
            raise click.ClickException(f"{self.url} answers unlike the service: {said}") from error
        return json.loads(answer)

    def _ask(self, method: str, path: str, body: object) -> bytes:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(  # noqa: S310  # http and https, by the option's type
                self.url.rstrip("/") + path, data, headers, method=method
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
                said: bytes = answer.read()
                return said
        except urllib.error.HTTPError as error:
            raise click.ClickException(_reason(error)) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise click.ClickException(f"{self.url} does not answer: {error}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read())["error"]
    except (ValueError, LookupError, TypeError):
        said = error.reason
    return f"{error.code}: {said}"


def service_options(command: F) -> F:
    """``--service``, ``--token`` and ``--json``, as every command for people has them."""
    command = click.option("--json", is_flag=True, help="Print JSON for machines.")(command)
    command = click.option(
        "--token", envvar="FIREDEX_TOKEN", help="Who asks (FIREDEX_TOKEN); none with serve --open."
    )(command)
    return click.option(
        "--service",
        envvar="FIREDEX_SERVICE",
        default="http://127.0.0.1:8088",
        show_default=True,
        type=HTTP_OR_HTTPS_URL,
        help="Where the service is (FIREDEX_SERVICE).",
    )(command)

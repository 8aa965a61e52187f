"""Option types that the commands of several parts share."""

from typing import Any

import click

from firedex.wire.addresses import parse_host_port, parse_http_url

__all__ = ["HOST_PORT", "HTTP_OR_HTTPS_URL", "HTTP_URL"]


class _HostPort(click.ParamType):  # type: ignore[type-arg]
    name = "HOST:PORT"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return value if isinstance(value, tuple) else parse_host_port(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _HttpUrl(click.ParamType):  # type: ignore[type-arg]
    name = "URL"

    def __init__(self, *schemes: str) -> None:
        self._schemes = schemes

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            parse_http_url(value, self._schemes)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


HOST_PORT = _HostPort()
HTTP_URL = _HttpUrl("http")
HTTP_OR_HTTPS_URL = _HttpUrl("http", "https")

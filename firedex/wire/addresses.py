"""Parsing of network addresses: HOST:PORT, and URLs of FireDeX services."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

__all__ = ["HostPort", "HttpUrl", "is_loopback", "parse_host_port", "parse_http_url"]

MAX_PORT = 65_535
DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_host_port(text: str) -> tuple[str, int]:
    """Return the host and port of ``HOST:PORT``; raise ValueError if the text is not valid."""
    host, _, port = text.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8088 (ports 1 to 65535)")
    return host, int(port)


def parse_http_url(url: str, schemes: Sequence[str] = ("http",)) -> tuple[str, int]:
    """Return host and port of a URL with one of ``schemes``; raise ValueError if it is invalid."""
    message = f"{url!r} is not a URL of the form {' or '.join(schemes)}://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(message) from error
    if parts.scheme not in schemes or not host or port == 0 or not _is_plain(url):
        raise ValueError(message)
    return host, port or DEFAULT_PORTS[parts.scheme]


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_host_port(text: str) -> str:
    parse_host_port(text)
    return text


def _check_http_url(text: str) -> str:
    parse_http_url(text, ("http", "https"))
    return text


HostPort = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_check_host_port)]
HttpUrl = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_check_http_url)]

"""Addresses that people and configurations give: HOST:PORT, and URLs of our own parts."""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["http_address", "is_loopback", "parse_host_port"]

LARGEST_PORT = 65_535
DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_host_port(text: str) -> tuple[str, int]:
    """``HOST:PORT`` as a pair; ValueError says what would be right."""
    host, _, port = text.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) <= LARGEST_PORT:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8088 (ports 1 to 65535)")
    return host, int(port)


def http_address(url: str, schemes: Sequence[str] = ("http",)) -> tuple[str, int]:
    """Host and port of a URL of one of the ``schemes``; ValueError says what would be right."""
    wrong = f"{url!r} is not a URL of the form {' or '.join(schemes)}://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(wrong) from error
    if parts.scheme not in schemes or not host or port == 0 or not _is_plain(url):
        raise ValueError(wrong)
    return host, port or DEFAULT_PORTS[parts.scheme]


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

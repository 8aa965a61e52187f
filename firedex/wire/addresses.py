"""Addresses that people and configurations give: HOST:PORT, and URLs of our own parts."""

from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["http_address", "is_loopback", "parse_host_port"]

LARGEST_PORT = 65_535


def parse_host_port(text: str) -> tuple[str, int]:
    """``HOST:PORT`` as a pair; ValueError says what would be right."""
    host, _, port = text.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) <= LARGEST_PORT:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8088 (ports 1 to 65535)")
    return host, int(port)


def http_address(url: str) -> tuple[str, int]:
    """Host and port of a plain ``http://`` URL; ValueError says what would be right."""
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise ValueError(f"{url!r} is not a URL of the form http://HOST:PORT")
    return parts.hostname, port


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The running hosts of a network of sites; what processes on them need, in either form."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from firedex_emulation.errors import UnsupportedTopology
from firedex_emulation.site_networks.network import SiteNetwork
from firedex_emulation.topologies.link_probes import socket_in_namespace_of

__all__ = ["SiteHosts"]

CONNECT_SECONDS = 20.0


class SiteHosts(ABC):
    """One host for each site, in a network namespace of its own with its own loopback."""

    def __init__(self, network: SiteNetwork) -> None:
        self.network = network

    @abstractmethod
    def pid(self, site: str) -> int:
        """Return the id of a process in the namespace of a site."""

    @abstractmethod
    def _set_link(self, number: int, *, up: bool) -> None:
        """Cut or restore the link with this index in the network."""

    @abstractmethod
    def stop(self) -> None:
        """Remove the hosts and links."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def command(self, site: str, words: Sequence[str]) -> list[str]:
        """Return a command line that runs a program on the host of a site."""
        return ["nsenter", f"--net=/proc/{self.pid(site)}/ns/net", "--", *words]

    def connect(self, site: str, port: int) -> socket.socket:
        """Return a TCP connection on the host of a site to a port of its own loopback."""
        opened = socket_in_namespace_of(self.pid(site), socket.AF_INET, socket.SOCK_STREAM, 0)
        try:
            opened.settimeout(CONNECT_SECONDS)
            opened.connect(("127.0.0.1", port))
        except BaseException:
            opened.close()
            raise
        return opened

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Cut the link between two sites, so that no frame passes, or restore it."""
        for number, link in enumerate(self.network.links):
            if link.ends == {one, other}:
                self._set_link(number, up=up)
                return
        raise UnsupportedTopology(self.network.name, f"no link between {one!r} and {other!r}")

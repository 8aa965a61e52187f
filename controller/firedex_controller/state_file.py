"""The state file of the controller: the desired network, and the last known links and hosts.

With this file, a restarted controller does not change switches that are already correct.
"""

import json
import logging
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from time import monotonic

from firedex.system.files import write_atomically
from firedex.wire import DesiredNetwork, WireError, from_plain, to_plain
from firedex_controller.topology import Host, PortRef

__all__ = ["SavedState", "StateFile", "read_state", "write_state"]

log = logging.getLogger("firedex.controller")

SAVE_INTERVAL_SECONDS = 0.2
"""Changes of the topology are saved at most this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """The content of the state file."""

    network: DesiredNetwork | None = None
    hosts: tuple[Host, ...] = ()
    links: frozenset[frozenset[PortRef]] = field(default_factory=frozenset)
    cut_links: frozenset[frozenset[PortRef]] = field(default_factory=frozenset)

    def restrict_to_switches(self, switches: Container[str]) -> "SavedState":
        """Return the state without switches that have been renamed or removed since."""

        def known(link: frozenset[PortRef]) -> bool:
            return all(end.switch in switches for end in link)

        return replace(
            self,
            hosts=tuple(host for host in self.hosts if host.port.switch in switches),
            links=frozenset(filter(known, self.links)),
            cut_links=frozenset(filter(known, self.cut_links)),
        )


class StateFile:
    """Save the state whenever it has changed; without a path, nothing is saved."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._saved = SavedState() if path is None else read_state(path)
        self._saved_at = 0.0

    @property
    def content(self) -> SavedState:
        """The state as it was last read or saved."""
        return self._saved

    def save(self, state: SavedState) -> None:
        """Write the state if it has changed; raise OSError if that fails."""
        if self._path is not None and state != self._saved:
            self._saved_at = monotonic()
            write_state(self._path, state)
            self._saved = state

    def save_if_due(self, state: SavedState) -> None:
        """Write the state if it has changed and the last write was long enough ago."""
        if monotonic() - self._saved_at < SAVE_INTERVAL_SECONDS:
            return
        try:
            self.save(state)
        except OSError as error:
            log.warning("cannot write the state file: %s", error)


def write_state(path: Path, state: SavedState) -> None:
    """Replace the file; the new content is on disk on return."""
    plain = {
        "network": None if state.network is None else to_plain(state.network),
        "hosts": [
            {
                "hardware_address": host.hardware_address,
                "address": None if host.address is None else str(host.address),
                "port": [host.port.switch, host.port.number],
            }
            for host in state.hosts
        ],
        "links": _plain(state.links),
        "cut_links": _plain(state.cut_links),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(plain))


def read_state(path: Path) -> SavedState:
    """Read the file; return an empty state if it does not exist or, with a warning, is invalid."""
    try:
        plain = json.loads(path.read_text())
        return SavedState(
            network=from_plain(DesiredNetwork, plain["network"]) if plain["network"] else None,
            hosts=tuple(
                Host(
                    hardware_address=host["hardware_address"],
                    address=IPv4Address(host["address"]) if host["address"] else None,
                    port=PortRef(*host["port"]),
                )
                for host in plain["hosts"]
            ),
            links=_links(plain["links"]),
            cut_links=_links(plain["cut_links"]),
        )
    except FileNotFoundError:
        return SavedState()
    except (OSError, ValueError, LookupError, TypeError, RecursionError, WireError) as error:
        log.warning("the state file %s is ignored: %s", path, error)
        return SavedState()


def _plain(links: Iterable[frozenset[PortRef]]) -> list[list[list[str | int]]]:
    return [[[end.switch, end.number] for end in sorted(link)] for link in links]


def _links(plain: Iterable[Iterable[tuple[str, int]]]) -> frozenset[frozenset[PortRef]]:
    links = frozenset(frozenset(PortRef(*end) for end in link) for link in plain)
    for link in links:
        one, other = link
        if not all(isinstance(e.switch, str) and isinstance(e.number, int) for e in (one, other)):
            raise ValueError(f"{link} is not a link")
    return links

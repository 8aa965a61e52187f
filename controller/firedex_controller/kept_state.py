"""What the controller keeps on disk: the desired network, and where links and hosts were.

A controller that starts again with it changes nothing that was right. The file is replaced whole.
"""

import json
import logging
import os
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path

from firedex.wire import DesiredNetwork, WireError, from_plain, to_plain
from firedex_controller.topology import Host, PortRef

__all__ = ["KeptState", "read_kept_state", "write_kept_state"]

log = logging.getLogger("firedex.controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """All of it."""

    network: DesiredNetwork | None = None
    hosts: tuple[Host, ...] = ()
    links: frozenset[frozenset[PortRef]] = field(default_factory=frozenset)
    cut_links: frozenset[frozenset[PortRef]] = field(default_factory=frozenset)

    def of_switches(self, switches: Container[str]) -> "KeptState":
        """What is about these switches alone: others may have been renamed, or removed."""

        def there(link: frozenset[PortRef]) -> bool:
            return all(end.switch in switches for end in link)

        return replace(
            self,
            hosts=tuple(host for host in self.hosts if host.place.switch in switches),
            links=frozenset(filter(there, self.links)),
            cut_links=frozenset(filter(there, self.cut_links)),
        )


def write_kept_state(path: Path, state: KeptState) -> None:
    """Replace the file; it is on disk when this returns."""
    plain = {
        "network": None if state.network is None else to_plain(state.network),
        "hosts": [
            {
                "hardware_address": host.hardware_address,
                "address": None if host.address is None else str(host.address),
                "place": [host.place.switch, host.place.number],
            }
            for host in state.hosts
        ],
        "links": _plain(state.links),
        "cut_links": _plain(state.cut_links),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w") as file:
        json.dump(plain, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_kept_state(path: Path) -> KeptState:
    """What was kept; nothing, with a word about it, where that cannot be read."""
    try:
        plain = json.loads(path.read_text())
        return KeptState(
            network=from_plain(DesiredNetwork, plain["network"]) if plain["network"] else None,
            hosts=tuple(
                Host(
                    hardware_address=host["hardware_address"],
                    address=IPv4Address(host["address"]) if host["address"] else None,
                    place=PortRef(*host["place"]),
                )
                for host in plain["hosts"]
            ),
            links=_links(plain["links"]),
            cut_links=_links(plain.get("cut_links", ())),
        )
    except FileNotFoundError:
        return KeptState()
    except (OSError, ValueError, LookupError, TypeError, RecursionError, WireError) as error:
        log.warning("%s is not used: %s", path, error)
        return KeptState()


def _plain(links: Iterable[frozenset[PortRef]]) -> list[list[list[str | int]]]:
    return [[[end.switch, end.number] for end in sorted(link)] for link in links]


def _links(plain: Iterable[Iterable[tuple[str, int]]]) -> frozenset[frozenset[PortRef]]:
    links = frozenset(frozenset(PortRef(*end) for end in link) for link in plain)
    for link in links:
        one, other = link
        if not all(isinstance(e.switch, str) and isinstance(e.number, int) for e in (one, other)):
            raise ValueError(f"{link} is no link")
    return links

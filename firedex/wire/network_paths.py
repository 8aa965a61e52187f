"""The way between the broker and a switch: the fewest links, the same every time."""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from firedex.wire.network import Network

__all__ = ["path_problem", "port_bandwidths", "switches_on_path"]

Links = Sequence[tuple[str, str]]


def switches_on_path(links: Links, broker_switch: str | None, switch: str) -> tuple[str, ...]:
    """The switches from the broker to ``switch``, both included.

    Where the broker's switch is not given, it is the one from which the links of this part of the
    network lead away. A switch without links has the broker right behind it.
    """
    tree = _tree(tuple(links), broker_switch)
    return tree.get(switch, (switch,))


def path_problem(links: Links, broker_switch: str | None, switch: str) -> str | None:
    """Why there is no way between the broker and ``switch``, or None."""
    if not links and broker_switch is None:
        return None
    linked = {end for link in links for end in link}
    if broker_switch is None:
        if switch not in linked or switch in _tree(tuple(links), None):
            return None
        return (
            f"where is the broker? The links around {switch!r} form a loop without a beginning: "
            "give network.broker.switch"
        )
    if switch == broker_switch or switch in _tree(tuple(links), broker_switch):
        return None
    return f"no links lead from the broker's switch {broker_switch!r} to {switch!r}"


@lru_cache(maxsize=64)
def _tree(
    links: tuple[tuple[str, str], ...], broker_switch: str | None
) -> dict[str, tuple[str, ...]]:
    """Shortest paths from the broker's switch, or from every switch that no link leads to."""
    neighbours: dict[str, list[str]] = {}
    for origin, target in links:
        neighbours.setdefault(origin, []).append(target)
        neighbours.setdefault(target, [])
        if broker_switch is not None:
            neighbours[target].append(origin)
    entered = {target for _, target in links}
    roots = [broker_switch] if broker_switch is not None else sorted(set(neighbours) - entered)
    paths: dict[str, tuple[str, ...]] = {root: (root,) for root in roots}
    waiting = deque(roots)
    while waiting:
        here = waiting.popleft()
        for there in neighbours.get(here, ()):
            if there not in paths:
                paths[there] = (*paths[here], there)
                waiting.append(there)
    return paths


def port_bandwidths(network: Network) -> dict[tuple[str, str | None], float]:
    """Of every outbound port: its link's, where that states one, else its switch's.

    A port is a switch and the switch that it leads to; none: its own hosts.
    """
    of_switch = {s.id: s.bandwidth_bits_per_second for s in network.switches}
    bandwidths: dict[tuple[str, str | None], float] = {
        (name, None): rate for name, rate in of_switch.items()
    }
    for link in network.links:
        for here, there in ((link.from_, link.to), (link.to, link.from_)):
            rate = link.bandwidth_bits_per_second or of_switch[here]
            bandwidths.setdefault((here, there), rate)
    return bandwidths

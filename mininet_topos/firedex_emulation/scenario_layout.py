"""From a scenario to a plan of its network. Pure; which shapes are allowed, the topologies say.

A scenario's switch becomes a switch, a link a link. Behind every switch with subscribers, and every
managed one, is an access switch: the link to it is the bandwidth that those subscribers share. The
edge host is at the broker's switch, publishers are at their own.
"""

from collections.abc import Iterable

from firedex.wire import Scenario, Switch
from firedex.wire.network_paths import switches_on_path
from firedex_emulation.errors import TopologyRefused
from firedex_emulation.network_plan import (
    NetworkPlan,
    PlannedLink,
    PlannedSwitch,
    datapath_id,
    edge_host,
    publisher_host,
    subscriber_host,
    trunk,
)

__all__ = ["broker_switch", "lay_out", "linked_pairs", "managed_switches", "switches_on_loops"]

Pair = tuple[str, str]


def managed_switches(scenario: Scenario) -> list[str]:
    """The ids of the managed switches, in the scenario's order."""
    return [switch.id for switch in scenario.network.switches if switch.managed]


def linked_pairs(scenario: Scenario) -> list[Pair]:
    """Which switches are linked, each pair once, as first written."""
    found: dict[frozenset[str], Pair] = {}
    for link in scenario.network.links:
        found.setdefault(frozenset((link.from_, link.to)), (link.from_, link.to))
    return [pair for pair in found.values() if pair[0] != pair[1]]


def switches_on_loops(pairs: Iterable[Pair]) -> set[str]:
    """What is left when dead ends are taken away again and again (and ways between two loops)."""
    left = list(pairs)
    while True:
        ends = [end for pair in left for end in pair]
        kept = [pair for pair in left if all(ends.count(end) > 1 for end in pair)]
        if len(kept) == len(left):
            return set(ends)
        left = kept


def broker_switch(scenario: Scenario, topology: str) -> str:
    """Where the edge host is: as given, or where the links lead away from, or the only managed."""
    given = scenario.network.broker.switch
    if given is not None:
        return given
    links = [(link.from_, link.to) for link in scenario.network.links]
    subscribed = dict.fromkeys(subscriber.switch for subscriber in scenario.subscribers)
    roots = {switches_on_path(links, None, switch)[0] for switch in subscribed}
    if len(roots) == 1:
        return roots.pop()
    raise TopologyRefused(
        topology,
        "where is the broker? Its ways begin at "
        f"{', '.join(sorted(roots)) or 'no switch'}: give network.broker.switch",
    )


def lay_out(scenario: Scenario, topology: str) -> NetworkPlan:
    """The plan of a scenario's network; TopologyRefused says why it cannot be emulated."""
    if not scenario.publishers or not scenario.subscribers:
        raise TopologyRefused(topology, "publishers and subscribers are needed")
    broker = broker_switch(scenario, topology)
    used = _used(scenario, broker)
    _check(scenario, topology, broker, used)
    switches = [
        PlannedSwitch(
            name=f"s{number}",
            switch=switch.id,
            managed=switch.managed,
            datapath_id=datapath_id(number),
        )
        for number, switch in enumerate(used, start=1)
    ]
    by_id = {planned.switch: planned for planned in switches}
    edge = edge_host(broker)
    publishers = [publisher_host(n, p.id, p.switch) for n, p in enumerate(scenario.publishers)]
    subscribers = [subscriber_host(n, s.id, s.switch) for n, s in enumerate(scenario.subscribers)]
    links = [
        PlannedLink(one=host.name, other=by_id[host.switch].name) for host in (edge, *publishers)
    ]
    links += _between_switches(scenario, broker, used, {s.id: by_id[s.id].name for s in used})
    access = []
    for number, switch in enumerate(used, start=1):
        behind = [host for host in subscribers if host.switch == switch.id]
        if behind or switch.managed:
            planned, its_links = trunk(
                by_id[switch.id],
                f"a{number}",
                number,
                behind,
                bandwidth_bits_per_second=switch.bandwidth_bits_per_second,
                delay_seconds=switch.propagation_seconds,
            )
            access.append(planned)
            links += its_links
    return NetworkPlan(
        topology=topology,
        switches=(*switches, *access),
        hosts=(edge, *publishers, *subscribers),
        links=tuple(links),
    )


def _used(scenario: Scenario, broker: str) -> list[Switch]:
    """The switches that somebody is at, or that are linked."""
    names = {broker, *(end for pair in linked_pairs(scenario) for end in pair)}
    names |= _taken(scenario)
    return [switch for switch in scenario.network.switches if switch.id in names]


def _taken(scenario: Scenario) -> set[str]:
    """The switches that somebody is at."""
    publishers = {publisher.switch for publisher in scenario.publishers}
    return publishers | {subscriber.switch for subscriber in scenario.subscribers}


def _between_switches(
    scenario: Scenario, broker: str, used: Iterable[Switch], names: dict[str, str]
) -> list[PlannedLink]:
    switches = {switch.id: switch for switch in used}
    stated: dict[Pair, float] = {}
    for link in scenario.network.links:
        if link.bandwidth_bits_per_second is not None:
            stated.setdefault((link.from_, link.to), link.bandwidth_bits_per_second)
            stated.setdefault((link.to, link.from_), link.bandwidth_bits_per_second)
    pairs = linked_pairs(scenario)
    linked = {end for pair in pairs for end in pair}
    planned = [
        PlannedLink(
            one=names[one],
            other=names[other],
            bandwidth_bits_per_second=stated.get(
                (one, other), switches[one].bandwidth_bits_per_second
            ),
            bandwidth_back_bits_per_second=stated.get(
                (other, one), switches[other].bandwidth_bits_per_second
            ),
            delay_seconds=switches[one].propagation_seconds,
            delay_back_seconds=switches[other].propagation_seconds,
        )
        for one, other in pairs
    ]
    # A publishers' switch without links has the broker right behind it.
    for switch in switches.values():
        if switch.id not in linked and switch.id != broker:
            planned.append(
                PlannedLink(
                    one=names[switch.id],
                    other=names[broker],
                    bandwidth_bits_per_second=switch.bandwidth_bits_per_second,
                    delay_seconds=switch.propagation_seconds,
                    delay_back_seconds=switch.propagation_seconds,
                )
            )
    return planned


def _check(scenario: Scenario, topology: str, broker: str, used: Iterable[Switch]) -> None:
    pairs = linked_pairs(scenario)
    linked = {end for pair in pairs for end in pair}
    by_id = {switch.id: switch for switch in used}
    for switch in by_id.values():
        if switch.error_rate > 0:
            raise TopologyRefused(
                topology, f"{switch.id!r} has an error rate; packet errors are not emulated"
            )
    looping = switches_on_loops(pairs)
    if storms := sorted(name for name in looping if not by_id[name].managed):
        raise TopologyRefused(
            topology, f"{storms[0]!r} is on a loop and not managed: frames would circle for ever"
        )
    links = [*pairs, *((one, broker) for one in by_id if one not in linked and one != broker)]
    reached = _reached(links, broker)
    if cut_off := sorted(_taken(scenario) - reached):
        raise TopologyRefused(topology, f"no links lead from {broker!r} to {cut_off[0]!r}")


def _reached(pairs: list[Pair], start: str) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for one, other in pairs:
            if here in (one, other):
                there = other if here == one else one
                if there not in reached:
                    reached.add(there)
                    waiting.append(there)
    return reached

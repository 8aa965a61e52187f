"""The network plan of a scenario, and its propagation delays. Pure.

Each switch and link of the scenario becomes one of the emulation. Every managed switch, and every
switch with subscribers, has an access switch behind it; these subscribers share the bandwidth of
the link to it. The edge host is attached to the switch of the broker, a publisher to its own
switch. The topology modules decide which scenarios they accept.
"""

from collections.abc import Iterable

from firedex.wire import Scenario, Switch
from firedex.wire.network import switches_on_path
from firedex_emulation.errors import UnsupportedTopology
from firedex_emulation.topologies.network_plan import (
    NetworkPlan,
    PlannedLink,
    PlannedSwitch,
    datapath_id,
    edge_host,
    plan_trunk,
    publisher_host,
    subscriber_host,
)

__all__ = [
    "broker_switch",
    "linked_pairs",
    "managed_switches",
    "plan_from_scenario",
    "propagation_from_publishers",
    "propagation_to_subscribers",
    "switches_on_loops",
]

Pair = tuple[str, str]


def managed_switches(scenario: Scenario) -> list[str]:
    """Return the ids of the managed switches, in the order of the scenario."""
    return [switch.id for switch in scenario.network.switches if switch.managed]


def linked_pairs(scenario: Scenario) -> list[Pair]:
    """Return each pair of linked switches once, as first written."""
    found: dict[frozenset[str], Pair] = {}
    for link in scenario.network.links:
        found.setdefault(frozenset((link.from_, link.to)), (link.from_, link.to))
    return [pair for pair in found.values() if pair[0] != pair[1]]


def switches_on_loops(pairs: Iterable[Pair]) -> set[str]:
    """Return the switches that remain when dead ends are removed repeatedly.

    These are the switches on loops and on paths between two loops.
    """
    left = list(pairs)
    while True:
        ends = [end for pair in left for end in pair]
        remaining = [pair for pair in left if all(ends.count(end) > 1 for end in pair)]
        if len(remaining) == len(left):
            return set(ends)
        left = remaining


def broker_switch(scenario: Scenario, topology: str) -> str:
    """Return the switch of the edge host: as given, or the root of all paths."""
    given = scenario.network.broker.switch
    if given is not None:
        return given
    links = [(link.from_, link.to) for link in scenario.network.links]
    subscribed = dict.fromkeys(subscriber.switch for subscriber in scenario.subscribers)
    roots = {switches_on_path(links, None, switch)[0] for switch in subscribed}
    if len(roots) == 1:
        return roots.pop()
    raise UnsupportedTopology(
        topology,
        "the switch of the broker is ambiguous (candidates: "
        f"{', '.join(sorted(roots)) or 'none'}); set network.broker.switch",
    )


def plan_from_scenario(scenario: Scenario, topology: str) -> NetworkPlan:
    """Return the network plan of a scenario; UnsupportedTopology if it cannot be emulated."""
    if not scenario.publishers or not scenario.subscribers:
        raise UnsupportedTopology(
            topology, "the scenario needs at least one publisher and one subscriber"
        )
    broker = broker_switch(scenario, topology)
    used = _used_switches(scenario, broker)
    _check_scenario(scenario, topology, broker, used)
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
    links += _links_between_switches(scenario, broker, used, {s.id: by_id[s.id].name for s in used})
    access = []
    for number, switch in enumerate(used, start=1):
        behind = [host for host in subscribers if host.switch == switch.id]
        if behind or switch.managed:
            planned, trunk_links = plan_trunk(
                by_id[switch.id],
                f"a{number}",
                number,
                behind,
                bandwidth_bits_per_second=switch.bandwidth_bits_per_second,
                delay_seconds=switch.propagation_seconds,
            )
            access.append(planned)
            links += trunk_links
    return NetworkPlan(
        topology=topology,
        switches=(*switches, *access),
        hosts=(edge, *publishers, *subscribers),
        links=tuple(links),
    )


def _used_switches(scenario: Scenario, broker: str) -> list[Switch]:
    """Return the switches that have hosts or links."""
    names = {broker, *(end for pair in linked_pairs(scenario) for end in pair)}
    names |= _switches_with_hosts(scenario)
    return [switch for switch in scenario.network.switches if switch.id in names]


def _switches_with_hosts(scenario: Scenario) -> set[str]:
    """Return the switches with publishers or subscribers."""
    publishers = {publisher.switch for publisher in scenario.publishers}
    return publishers | {subscriber.switch for subscriber in scenario.subscribers}


def _links_between_switches(
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
    # A publishers' switch without links is connected to the broker's switch.
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


def _check_scenario(scenario: Scenario, topology: str, broker: str, used: Iterable[Switch]) -> None:
    pairs = linked_pairs(scenario)
    linked = {end for pair in pairs for end in pair}
    by_id = {switch.id: switch for switch in used}
    for switch in by_id.values():
        if switch.error_rate > 0:
            raise UnsupportedTopology(
                topology,
                f"switch {switch.id!r} has an error rate; emulation does not support that",
            )
    on_loops = switches_on_loops(pairs)
    if unmanaged_on_loop := sorted(name for name in on_loops if not by_id[name].managed):
        raise UnsupportedTopology(
            topology,
            f"the unmanaged switch {unmanaged_on_loop[0]!r} is on a loop; frames would circulate",
        )
    links = [*pairs, *((one, broker) for one in by_id if one not in linked and one != broker)]
    reached = _reachable_switches(links, broker)
    if unreachable := sorted(_switches_with_hosts(scenario) - reached):
        raise UnsupportedTopology(
            topology, f"no path from the broker's switch {broker!r} to {unreachable[0]!r}"
        )


def _reachable_switches(pairs: list[Pair], start: str) -> set[str]:
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


def propagation_to_subscribers(scenario: Scenario) -> dict[str, float]:
    """Return the propagation delay from the broker to each subscriber, in seconds."""
    return {
        subscriber.id: _total_propagation(scenario, _path_to(scenario, subscriber.switch))
        for subscriber in scenario.subscribers
    }


def propagation_from_publishers(scenario: Scenario) -> dict[str, float]:
    """Return the propagation delay from each publisher to the broker, in seconds.

    The broker's switch adds none, because the edge host is attached to it. (The model counts the
    propagation of that switch here as well; the emulation does not.)
    """
    broker = broker_switch(scenario, "any")
    return {
        publisher.id: _total_propagation(
            scenario,
            tuple(name for name in _path_to(scenario, publisher.switch) if name != broker),
        )
        for publisher in scenario.publishers
    }


def _path_to(scenario: Scenario, switch: str) -> tuple[str, ...]:
    links = [(link.from_, link.to) for link in scenario.network.links]
    return switches_on_path(links, scenario.network.broker.switch, switch)


def _total_propagation(scenario: Scenario, path: tuple[str, ...]) -> float:
    of_switch = {s.id: s.propagation_seconds for s in scenario.network.switches}
    return sum(of_switch[name] for name in path)

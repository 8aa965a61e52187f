"""The ways of running a scenario that are compared, and what is built for each. Pure."""

from dataclasses import replace
from typing import get_args

from firedex.service.desired_network import BUFFER_PACKETS, guaranteed_bits_per_second
from firedex.wire import Buffer, Scenario, Switch, Transport
from firedex.wire.timeline import KillablePart
from firedex_controller.agent import burst_bytes
from firedex_emulation.errors import EmulationError

__all__ = ["TITLES", "WAYS", "as_built", "as_run", "ways_of"]

WAYS = ("none", "priority", "firedex")
TITLES = {
    "none": "Without FireDeX",
    "priority": "Priorities only",
    "firedex": "With FireDeX",
}


def ways_of(text: str) -> tuple[str, ...]:
    """The ways named in ``text``, by comma; ValueError names one that there is not."""
    ways = tuple(dict.fromkeys(way.strip() for way in text.split(",")))
    if unknown := [way for way in ways if way not in WAYS]:
        raise ValueError(f"{unknown[0]!r}; there are {', '.join(WAYS)}")
    return ways


def as_run(
    scenario: Scenario, way: str, transport: Transport | None = None, *, plain_links: bool = False
) -> Scenario:
    """The scenario in one of its ways, with what an emulation's events and links are like.

    ``none`` has one flow, one class and no drop rates; ``priority`` has everything but drop rates.
    ``plain_links`` have neither a burst nor guaranteed rates, which are HTB's.
    """
    planning = scenario.planning
    if way == "none":
        planning = replace(
            planning,
            flows_per_subscriber=1,
            priorities=1,
            priority_policy="none",
            drop_policy="none",
        )
    elif way == "priority":
        planning = replace(planning, drop_policy="none")
    if transport is not None:
        scenario = replace(
            scenario,
            transport=transport,
            publishers=tuple(replace(each, transport=None) for each in scenario.publishers),
            subscribers=tuple(replace(each, transport=None) for each in scenario.subscribers),
        )
    _check_names(scenario)
    if scenario.assignment is not None:
        raise EmulationError(
            "the scenario has an 'assignment'; emulations are planned by the service: leave it out"
        )
    built = as_built(replace(scenario, planning=planning, stamped_events=True))
    return _without_htb(built) if plain_links else built


def as_built(scenario: Scenario) -> Scenario:
    """The scenario with managed switches' queues as they are set up where it leaves that open."""
    network = scenario.network
    classes = scenario.planning.priorities
    switches = tuple(_switch(each, classes) if each.managed else each for each in network.switches)
    return replace(scenario, network=replace(network, switches=switches))


def _without_htb(scenario: Scenario) -> Scenario:
    switches = tuple(
        replace(switch, burst_bytes=0.0, guaranteed_bits_per_second=0.0)
        for switch in scenario.network.switches
    )
    return replace(scenario, network=replace(scenario.network, switches=switches))


def _switch(switch: Switch, classes: int) -> Switch:
    bandwidth = switch.bandwidth_bits_per_second
    count = min(classes, switch.priorities)
    return replace(
        switch,
        buffer=switch.buffer or Buffer(kind="per-class-head-drop", packets=BUFFER_PACKETS),
        burst_bytes=switch.burst_bytes or float(burst_bytes(bandwidth)),
        guaranteed_bits_per_second=switch.guaranteed_bits_per_second
        or guaranteed_bits_per_second(bandwidth, count),
    )


def _check_names(scenario: Scenario) -> None:
    """Parties and parts are processes side by side: each has a name of its own."""
    taken = set(get_args(KillablePart))
    names = [each.id for each in scenario.publishers] + [each.id for each in scenario.subscribers]
    for name in names:
        if name in taken:
            raise EmulationError(
                f"{name!r} names a publisher or subscriber and something else of the site; "
                "an emulation needs names that differ"
            )
        taken.add(name)

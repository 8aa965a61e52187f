"""The modes in which a scenario is run and compared, and the scenario for each mode. Pure."""

from dataclasses import replace
from typing import get_args

from firedex.service.planner.desired_network import BUFFER_PACKETS, guaranteed_bits_per_second
from firedex.wire import Buffer, Scenario, Switch, Transport
from firedex.wire.scenario import KillablePart
from firedex_controller.agent import burst_bytes
from firedex_emulation.errors import EmulationError

__all__ = ["MODES", "MODE_TITLES", "parse_modes", "scenario_for_mode", "with_queue_settings"]

MODES = ("none", "priority", "firedex")
MODE_TITLES = {
    "none": "Without FireDeX",
    "priority": "Priorities only",
    "firedex": "With FireDeX",
}


def parse_modes(text: str) -> tuple[str, ...]:
    """Return the modes in ``text``, separated by commas; ValueError names an unknown one."""
    modes = tuple(dict.fromkeys(mode.strip() for mode in text.split(",")))
    if unknown := [mode for mode in modes if mode not in MODES]:
        raise ValueError(f"unknown mode {unknown[0]!r}; the modes are {', '.join(MODES)}")
    return modes


def scenario_for_mode(
    scenario: Scenario, mode: str, transport: Transport | None = None, *, plain_links: bool = False
) -> Scenario:
    """Return the scenario for one mode, with stamped events and the queues of the emulation.

    ``none`` has one flow, one class and no drop rates; ``priority`` has classes but no drop rates.
    With ``plain_links`` links have no burst and no guaranteed rates, which only HTB has.
    """
    planning = scenario.planning
    if mode == "none":
        planning = replace(
            planning,
            flows_per_subscriber=1,
            priorities=1,
            priority_policy="none",
            drop_policy="none",
        )
    elif mode == "priority":
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
            "the scenario has an 'assignment', but the configuration service plans emulations; "
            "remove 'assignment' from the scenario"
        )
    built = with_queue_settings(replace(scenario, planning=planning, stamped_events=True))
    return _without_htb(built) if plain_links else built


def with_queue_settings(scenario: Scenario) -> Scenario:
    """Return the scenario with the emulation's queue settings where it does not give them."""
    network = scenario.network
    classes = scenario.planning.priorities
    switches = tuple(
        _with_queue(each, classes) if each.managed else each for each in network.switches
    )
    return replace(scenario, network=replace(network, switches=switches))


def _without_htb(scenario: Scenario) -> Scenario:
    switches = tuple(
        replace(switch, burst_bytes=0.0, guaranteed_bits_per_second=0.0)
        for switch in scenario.network.switches
    )
    return replace(scenario, network=replace(scenario.network, switches=switches))


def _with_queue(switch: Switch, classes: int) -> Switch:
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
    """Check that all names differ: hosts and parts share one folder of logs and files."""
    taken = set(get_args(KillablePart))
    names = [each.id for each in scenario.publishers] + [each.id for each in scenario.subscribers]
    for name in names:
        if name in taken:
            raise EmulationError(
                f"the name {name!r} is used twice, or is the name of a part of the site; "
                "publishers, subscribers and parts need different names"
            )
        taken.add(name)

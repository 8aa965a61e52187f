"""Whether a desired network contradicts itself. Pure."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from firedex.wire import DesiredNetwork, DesiredSwitch
from firedex_controller.classification import flow_matches
from firedex_controller.errors import InvalidNetwork

__all__ = ["check_network"]

Seen = TypeVar("Seen", bound=Hashable)
LARGEST_VERSION = 2**48 - 1
"""What fits beside the tag of a cookie."""


def check_network(network: DesiredNetwork) -> None:
    """Raise InvalidNetwork naming what is there twice, or leads nowhere."""
    if network.configuration_version > LARGEST_VERSION:
        raise InvalidNetwork(f"configuration_version: at most {LARGEST_VERSION}")
    twice = _first_twice(part.switch for part in network.switches)
    if twice is not None:
        raise InvalidNetwork(f"switches: {twice!r} is there twice")
    for part in network.switches:
        _check_switch(part)


def _check_switch(part: DesiredSwitch) -> None:
    towards = _first_twice((port.towards,) for port in part.ports)
    if towards is not None:
        where = f"{towards[0]!r}" if towards[0] else "hosts"
        raise InvalidNetwork(f"{part.switch}: ports: two lead to {where}")
    flow = _first_twice((rule.subscriber, rule.flow) for rule in part.flows)
    if flow is not None:
        raise InvalidNetwork(f"{part.switch}: flows: flow {flow[1]} of {flow[0]} is there twice")
    owners: dict[Hashable, str] = {}
    for rule in part.flows:
        name = f"flow {rule.flow} of {rule.subscriber}"
        for match in flow_matches(rule):
            if match in owners:
                raise InvalidNetwork(
                    f"{part.switch}: flows: {owners[match]} and {name} have the same endpoints"
                )
            owners[match] = name
    offered = {queue.priority for port in part.ports for queue in port.classes}
    for rule in part.flows:
        if offered and rule.priority not in offered:
            raise InvalidNetwork(
                f"{part.switch}: flow {rule.flow} of {rule.subscriber} is in class "
                f"{rule.priority}, which no port of the switch has"
            )


def _first_twice(values: Iterable[Seen]) -> Seen | None:
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None

"""A campus: buildings with redundant links.

::

                   ┌──────────────── [hall1] ═══ trunk ═══ [access1] ── sub0, sub1, …
      edge ──── [core1] ───────┐       │ │
    (broker,       │  └──────┐ │       │ │  each hall is linked to both cores
     gateway,      │         │ │       │ │
     service)      │         └─┼──── [hall2] ═══ trunk ═══ [access2] ── …
                   │           │       │
      pub0 ──── [core2] ───────┴───────┴──── …

All of ``core1``, ``core2``, ``hall1`` … are managed. The cores are linked to each other and to each
hall, so every host stays reachable if any one link fails. There are loops, so no traffic flows
until a controller has chosen paths. The edge host and publishers are attached to ``core1``. Access
switches only forward; ``access1`` … belong to halls, ``access91`` and ``access92`` to the cores.
Hosts are ``edge``, ``pub0`` …, ``sub0`` … hall by hall. In the network of a scenario switches are
``s1``, ``s2``, … in the order of the scenario, and their access switches ``a1``, ``a2``, …
"""

from itertools import product

from mininet.topo import Topo

from firedex.wire import Scenario
from firedex_emulation.errors import UnsupportedTopology
from firedex_emulation.topologies.mininet_nodes import add_plan
from firedex_emulation.topologies.network_plan import (
    MAX_HOSTS,
    NetworkPlan,
    PlannedLink,
    PlannedSwitch,
    check_count,
    check_quantity,
    datapath_id,
    edge_host,
    plan_trunk,
    publisher_host,
    subscriber_host,
)
from firedex_emulation.topologies.scenario_layout import linked_pairs, plan_from_scenario

__all__ = ["NAME", "Campus", "plan_for", "topos"]

NAME = "campus"
CORES = ("core1", "core2")
ACCESS_OF_CORES = 91
MAX_HALLS = 40


class Campus(Topo):  # type: ignore[misc]  # Mininet ships no types
    """``Mininet(topo=Campus(halls=4, link_delay_seconds=0.002), controller=None)``."""

    def build(
        self,
        halls: int = 3,
        subscribers_per_hall: int = 2,
        publishers: int = 1,
        link_bits_per_second: float = 20e6,
        trunk_bits_per_second: float = 5e6,
        link_delay_seconds: float = 0.0,
        trunk_delay_seconds: float = 0.0,
    ) -> None:
        """Build the topology. Links connect cores and halls; delays apply in each direction."""
        check_count(NAME, "halls", halls, least=1, most=MAX_HALLS)
        most = MAX_HOSTS // halls
        check_count(NAME, "subscribers_per_hall", subscribers_per_hall, least=0, most=most)
        check_count(NAME, "publishers", publishers, least=0, most=MAX_HOSTS)
        check_quantity(NAME, "link_bits_per_second", link_bits_per_second, above=1e4, most=1e10)
        check_quantity(NAME, "trunk_bits_per_second", trunk_bits_per_second, above=1e4, most=1e10)
        check_quantity(NAME, "link_delay_seconds", link_delay_seconds, above=0, most=2)
        check_quantity(NAME, "trunk_delay_seconds", trunk_delay_seconds, above=0, most=2)
        hall_names = [f"hall{number}" for number in range(1, halls + 1)]
        switches = [
            PlannedSwitch(name=name, switch=name, managed=True, datapath_id=datapath_id(number))
            for number, name in enumerate((*CORES, *hall_names), start=1)
        ]
        near = [edge_host(CORES[0])]
        near += [publisher_host(number, f"pub{number}", CORES[0]) for number in range(publishers)]
        links = [PlannedLink(one=host.name, other=CORES[0]) for host in near]
        links += [
            PlannedLink(
                one=one,
                other=other,
                bandwidth_bits_per_second=link_bits_per_second,
                bandwidth_back_bits_per_second=link_bits_per_second,
                delay_seconds=link_delay_seconds,
                delay_back_seconds=link_delay_seconds,
            )
            for one, other in (CORES, *product(CORES, hall_names))
        ]
        access, far = [], []
        for place, switch in enumerate(switches):
            hall = place - len(CORES)
            first = hall * subscribers_per_hall
            behind = [
                subscriber_host(number, f"sub{number}", switch.name)
                for number in range(first, first + subscribers_per_hall)
                if hall >= 0
            ]
            number = hall + 1 if hall >= 0 else ACCESS_OF_CORES + place
            planned, trunk_links = plan_trunk(
                switch,
                f"access{number}",
                number,
                behind,
                bandwidth_bits_per_second=trunk_bits_per_second,
                delay_seconds=trunk_delay_seconds,
            )
            access.append(planned)
            links += trunk_links
            far += behind
        self.plan = NetworkPlan(
            topology=NAME,
            switches=(*switches, *access),
            hosts=(*near, *far),
            links=tuple(links),
        )
        add_plan(self, self.plan)


def plan_for(scenario: Scenario) -> NetworkPlan:
    """Return the plan of a scenario with linked managed switches; loops are allowed."""
    if not linked_pairs(scenario):
        raise UnsupportedTopology(NAME, f"{scenario.name!r} has no links between switches")
    return plan_from_scenario(scenario, NAME)


topos = {NAME: Campus}

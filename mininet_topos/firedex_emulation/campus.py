"""A campus: buildings with two ways to everywhere.

::

                   ┌──────────────── [hall1] ═══ trunk ═══ [access1] ── sub0, sub1, …
      edge ──── [core1] ───────┐       │ │
    (broker,       │  └──────┐ │       │ │  each hall is linked to both cores
     gateway,      │         │ │       │ │
     service)      │         └─┼──── [hall2] ═══ trunk ═══ [access2] ── …
                   │           │       │
      pub0 ──── [core2] ───────┴───────┴──── …

All of ``core1``, ``core2``, ``hall1`` … are managed. The cores are linked to each other and to each
hall: any one link may fail and everybody is still reached. There are loops, so nothing works until
a controller chooses ways. Edge and publishers are at ``core1``. Access switches only forward;
``access1`` … are the halls', ``access91`` and ``access92`` the cores'. Hosts are ``edge``, ``pub0``
…, ``sub0`` … hall by hall. Built for a scenario switches are ``s1``, ``s2``, … by their place
there, and their access switches ``a1``, …
"""

from itertools import product

from mininet.topo import Topo

from firedex.wire import Scenario
from firedex_emulation.errors import TopologyRefused
from firedex_emulation.network_plan import (
    MOST_HOSTS,
    NetworkPlan,
    PlannedLink,
    PlannedSwitch,
    check_count,
    check_quantity,
    datapath_id,
    edge_host,
    publisher_host,
    subscriber_host,
    trunk,
)
from firedex_emulation.scenario_layout import lay_out, linked_pairs
from firedex_emulation.switch_nodes import add_plan

__all__ = ["NAME", "Campus", "plan_for", "topos"]

NAME = "campus"
CORES = ("core1", "core2")
ACCESS_OF_CORES = 91
MOST_HALLS = 40


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
        """Links are those between cores and halls; delays are each way."""
        check_count(NAME, "halls", halls, least=1, most=MOST_HALLS)
        most = MOST_HOSTS // halls
        check_count(NAME, "subscribers_per_hall", subscribers_per_hall, least=0, most=most)
        check_count(NAME, "publishers", publishers, least=0, most=MOST_HOSTS)
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
            planned, its_links = trunk(
                switch,
                f"access{number}",
                number,
                behind,
                bandwidth_bits_per_second=trunk_bits_per_second,
                delay_seconds=trunk_delay_seconds,
            )
            access.append(planned)
            links += its_links
            far += behind
        self.plan = NetworkPlan(
            topology=NAME,
            switches=(*switches, *access),
            hosts=(*near, *far),
            links=tuple(links),
        )
        add_plan(self, self.plan)


def plan_for(scenario: Scenario) -> NetworkPlan:
    """The scenario on a campus: any managed switches with links, loops allowed."""
    if not linked_pairs(scenario):
        raise TopologyRefused(NAME, f"{scenario.name!r} has no links between switches")
    return lay_out(scenario, NAME)


topos = {NAME: Campus}

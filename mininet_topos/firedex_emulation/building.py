"""A building: floors around a backbone.

::

                                   ┌───── [floor1] ═══ trunk ═══ [access1] ── sub0, sub1, …
      edge ──────┐                 │
   (broker,      │                 │
    gateway,   [backbone] ── riser ┼───── [floor2] ═══ trunk ═══ [access2] ── …
    service)     │                 │
      pub0 ──────┘                 └───── …

``backbone`` and floors are managed: the backbone's ports to the floors and each floor's port to its
trunk have FireDeX's queues. Access switches only forward; the backbone has one too (``access0``),
for who is in the lobby. Hosts are ``edge``, ``pub0`` …, and ``sub0`` … floor by floor. Built for a
scenario switches are ``s1``, ``s2``, … by their place there, and their access switches ``a1``, …
"""

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
from firedex_emulation.scenario_layout import lay_out, linked_pairs, managed_switches
from firedex_emulation.switch_nodes import add_plan

__all__ = ["NAME", "Building", "plan_for", "topos"]

NAME = "building"


class Building(Topo):  # type: ignore[misc]  # Mininet ships no types
    """``Mininet(topo=Building(floors=5, riser_delay_seconds=0.001), controller=None)``."""

    def build(
        self,
        floors: int = 3,
        subscribers_per_floor: int = 2,
        publishers: int = 1,
        riser_bits_per_second: float = 20e6,
        trunk_bits_per_second: float = 5e6,
        riser_delay_seconds: float = 0.0,
        trunk_delay_seconds: float = 0.0,
    ) -> None:
        """Risers are the links between backbone and floors; delays are each way."""
        check_count(NAME, "floors", floors, least=1, most=40)
        most = MOST_HOSTS // floors
        check_count(NAME, "subscribers_per_floor", subscribers_per_floor, least=0, most=most)
        check_count(NAME, "publishers", publishers, least=0, most=MOST_HOSTS)
        check_quantity(NAME, "riser_bits_per_second", riser_bits_per_second, above=1e4, most=1e10)
        check_quantity(NAME, "trunk_bits_per_second", trunk_bits_per_second, above=1e4, most=1e10)
        check_quantity(NAME, "riser_delay_seconds", riser_delay_seconds, above=0, most=2)
        check_quantity(NAME, "trunk_delay_seconds", trunk_delay_seconds, above=0, most=2)
        names = ["backbone", *(f"floor{number}" for number in range(1, floors + 1))]
        switches = [
            PlannedSwitch(name=name, switch=name, managed=True, datapath_id=datapath_id(number))
            for number, name in enumerate(names, start=1)
        ]
        near = [edge_host("backbone")]
        near += [publisher_host(number, f"pub{number}", "backbone") for number in range(publishers)]
        links = [PlannedLink(one=host.name, other="backbone") for host in near]
        links += [
            PlannedLink(
                one="backbone",
                other=floor,
                bandwidth_bits_per_second=riser_bits_per_second,
                bandwidth_back_bits_per_second=riser_bits_per_second,
                delay_seconds=riser_delay_seconds,
                delay_back_seconds=riser_delay_seconds,
            )
            for floor in names[1:]
        ]
        access, far = [], []
        for number, switch in enumerate(switches):
            first = (number - 1) * subscribers_per_floor
            behind = [
                subscriber_host(place, f"sub{place}", switch.name)
                for place in range(first, first + subscribers_per_floor)
                if number > 0
            ]
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
    """The scenario in a building: managed switches, one of which is an end of every link."""
    managed = managed_switches(scenario)
    if len(managed) < 2:
        raise TopologyRefused(
            NAME,
            f"a backbone and floors are at least two managed switches; "
            f"{scenario.name!r} has {len(managed)}",
        )
    pairs = linked_pairs(scenario)
    if not any(all(centre in pair for pair in pairs) for centre in managed) or not pairs:
        raise TopologyRefused(
            NAME, "one managed switch, the backbone, has to be an end of every link"
        )
    return lay_out(scenario, NAME)


topos = {NAME: Building}

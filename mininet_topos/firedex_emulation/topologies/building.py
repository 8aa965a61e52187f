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
for subscribers in the lobby. Hosts are ``edge``, ``pub0`` …, and ``sub0`` … floor by floor. In the
network of a scenario switches are ``s1``, ``s2``, … in the order of the scenario, and their access
switches ``a1``, ``a2``, …
"""

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
from firedex_emulation.topologies.scenario_layout import (
    linked_pairs,
    managed_switches,
    plan_from_scenario,
)

__all__ = ["NAME", "Building", "plan_for", "topos"]

NAME = "building"


class Building(Topo):  # type: ignore[misc]  # Mininet ships no types
    """A Mininet topology: ``Mininet(topo=Building(floors=5, riser_delay_seconds=0.001), …)``."""

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
        """Build the topology. Risers link backbone and floors; delays apply in each direction."""
        check_count(NAME, "floors", floors, least=1, most=40)
        most = MAX_HOSTS // floors
        check_count(NAME, "subscribers_per_floor", subscribers_per_floor, least=0, most=most)
        check_count(NAME, "publishers", publishers, least=0, most=MAX_HOSTS)
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
    """Return the plan of a scenario in which one managed switch is an end of every link."""
    managed = managed_switches(scenario)
    if len(managed) < 2:
        raise UnsupportedTopology(
            NAME,
            f"this topology needs at least two managed switches (a backbone and floors); "
            f"{scenario.name!r} has {len(managed)}",
        )
    pairs = linked_pairs(scenario)
    if not any(all(centre in pair for pair in pairs) for centre in managed) or not pairs:
        raise UnsupportedTopology(
            NAME, "one managed switch, the backbone, must be an end of every link"
        )
    return plan_from_scenario(scenario, NAME)


topos = {NAME: Building}

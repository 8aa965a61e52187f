"""The big switch: subscribers behind one shared trunk.

::

      edge ──────┐                      ┌────── sub0
   (broker,      │                      │
    gateway,   [core] ═══ trunk ═══ [access] ── sub1
    service)     │    (queues here)     │
      pub0 ──────┘                      └────── …

``core`` is managed: its port to the trunk has FireDeX's queues. ``access`` only forwards. Hosts are
``edge``, ``pub0`` …, ``sub0`` …. In the network of a scenario the switches are ``s1``, ``s2``, …
in the order of the scenario, the access switch of ``s1`` is ``a1``, and unmanaged switches of
publishers are between them and the managed switch.
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
from firedex_emulation.topologies.scenario_layout import managed_switches, plan_from_scenario

__all__ = ["NAME", "BigSwitch", "plan_for", "topos"]

NAME = "big-switch"


class BigSwitch(Topo):  # type: ignore[misc]  # Mininet ships no types
    """A Mininet topology: ``Mininet(topo=BigSwitch(subscribers=8, delay_seconds=0.002), …)``."""

    def build(
        self,
        subscribers: int = 4,
        publishers: int = 1,
        trunk_bits_per_second: float = 5e6,
        delay_seconds: float = 0.0,
    ) -> None:
        """Build the topology; ``delay_seconds`` is the delay of the trunk in each direction."""
        check_count(NAME, "subscribers", subscribers, least=1, most=MAX_HOSTS)
        check_count(NAME, "publishers", publishers, least=0, most=MAX_HOSTS)
        check_quantity(NAME, "trunk_bits_per_second", trunk_bits_per_second, above=1e4, most=1e10)
        check_quantity(NAME, "delay_seconds", delay_seconds, above=0, most=2)
        core = PlannedSwitch(name="core", switch="core", managed=True, datapath_id=datapath_id(1))
        near = [edge_host("core")]
        near += [publisher_host(number, f"pub{number}", "core") for number in range(publishers)]
        far = [subscriber_host(number, f"sub{number}", "core") for number in range(subscribers)]
        access, trunk_links = plan_trunk(
            core,
            "access",
            1,
            far,
            bandwidth_bits_per_second=trunk_bits_per_second,
            delay_seconds=delay_seconds,
        )
        self.plan = NetworkPlan(
            topology=NAME,
            switches=(core, access),
            hosts=(*near, *far),
            links=(*(PlannedLink(one=host.name, other="core") for host in near), *trunk_links),
        )
        add_plan(self, self.plan)


def plan_for(scenario: Scenario) -> NetworkPlan:
    """Return the plan of a scenario with one managed switch that has all subscribers."""
    managed = managed_switches(scenario)
    if len(managed) != 1:
        raise UnsupportedTopology(
            NAME,
            f"this topology needs exactly one managed switch; {scenario.name!r} has {len(managed)}",
        )
    elsewhere = [s.id for s in scenario.subscribers if s.switch != managed[0]]
    if elsewhere:
        raise UnsupportedTopology(
            NAME,
            f"subscriber {elsewhere[0]!r} is not attached to the managed switch {managed[0]!r}",
        )
    return plan_from_scenario(scenario, NAME)


topos = {NAME: BigSwitch}

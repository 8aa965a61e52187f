"""The big switch: subscribers behind one shared trunk.

::

      edge ──────┐                      ┌────── sub0
   (broker,      │                      │
    gateway,   [core] ═══ trunk ═══ [access] ── sub1
    service)     │    (queues here)     │
      pub0 ──────┘                      └────── …

``core`` is managed: its port to the trunk has FireDeX's queues. ``access`` only forwards. Hosts are
``edge``, ``pub0`` …, ``sub0`` …. Built for a scenario the managed switch is ``s1`` or so, by its
place there, publishers' unmanaged switches stand between them and it; its access switch is ``a1``.
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
from firedex_emulation.scenario_layout import lay_out, managed_switches
from firedex_emulation.switch_nodes import add_plan

__all__ = ["NAME", "BigSwitch", "plan_for", "topos"]

NAME = "big-switch"


class BigSwitch(Topo):  # type: ignore[misc]  # Mininet ships no types
    """``Mininet(topo=BigSwitch(subscribers=8, delay_seconds=0.002), controller=None)``."""

    def build(
        self,
        subscribers: int = 4,
        publishers: int = 1,
        trunk_bits_per_second: float = 5e6,
        delay_seconds: float = 0.0,
    ) -> None:
        """``delay_seconds`` is of the trunk, each way."""
        check_count(NAME, "subscribers", subscribers, least=1, most=MOST_HOSTS)
        check_count(NAME, "publishers", publishers, least=0, most=MOST_HOSTS)
        check_quantity(NAME, "trunk_bits_per_second", trunk_bits_per_second, above=1e4, most=1e10)
        check_quantity(NAME, "delay_seconds", delay_seconds, above=0, most=2)
        core = PlannedSwitch(name="core", switch="core", managed=True, datapath_id=datapath_id(1))
        near = [edge_host("core")]
        near += [publisher_host(number, f"pub{number}", "core") for number in range(publishers)]
        far = [subscriber_host(number, f"sub{number}", "core") for number in range(subscribers)]
        access, its_links = trunk(
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
            links=(*(PlannedLink(one=host.name, other="core") for host in near), *its_links),
        )
        add_plan(self, self.plan)


def plan_for(scenario: Scenario) -> NetworkPlan:
    """The scenario on a big switch: one managed switch, and all subscribers behind it."""
    managed = managed_switches(scenario)
    if len(managed) != 1:
        raise TopologyRefused(
            NAME,
            f"one managed switch is needed for the trunk; {scenario.name!r} has {len(managed)}",
        )
    elsewhere = [s.id for s in scenario.subscribers if s.switch != managed[0]]
    if elsewhere:
        raise TopologyRefused(
            NAME, f"all subscribers are behind the switch {managed[0]!r}; {elsewhere[0]!r} is not"
        )
    return lay_out(scenario, NAME)


topos = {NAME: BigSwitch}

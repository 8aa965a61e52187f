"""All topologies by name, and the choice of one for a scenario.

A new topology is a module beside this one with ``NAME``, a Mininet ``Topo`` class and
``plan_for(scenario)``. Add its name to ``TOPOLOGIES`` in ``network_plan`` and its planner here.
Topologies that connect several sites are in ``site_networks``.
"""

from firedex.wire import Scenario
from firedex_emulation.errors import UnsupportedTopology
from firedex_emulation.topologies import big_switch, building, campus
from firedex_emulation.topologies.network_plan import TOPOLOGIES, NetworkPlan

__all__ = ["PLANNERS", "plan_network"]

PLANNERS = {
    big_switch.NAME: big_switch.plan_for,
    building.NAME: building.plan_for,
    campus.NAME: campus.plan_for,
}


def plan_network(scenario: Scenario, topology: str | None = None) -> NetworkPlan:
    """Plan the scenario on ``topology``, or on the first topology that can carry it.

    Pure: nothing is built. UnsupportedTopology gives the reason if no topology fits.
    """
    if topology is not None:
        if topology not in PLANNERS:
            raise UnsupportedTopology(
                topology, f"unknown topology; choose one of {', '.join(TOPOLOGIES)}"
            )
        return PLANNERS[topology](scenario)
    reasons = []
    for name in TOPOLOGIES:
        try:
            return PLANNERS[name](scenario)
        except UnsupportedTopology as refused:
            reasons.append(f"{name}: {refused.reason}")
    raise UnsupportedTopology("any", "; ".join(reasons))

"""Simulation of the queueing network, stage by stage, because it has no feedback.

Owns random arrivals and the outcome of every packet. Must not use formulas of the model that it
checks; both share the columns of the scenario only.
"""

from firedex_models.simulation.batch import Batch
from firedex_models.simulation.replication import Arrivals, Workload
from firedex_models.simulation.run import SimulationSettings, simulate
from firedex_models.simulation.summary import Estimate, SimulationSummary, simulation_report

__all__ = [
    "Arrivals",
    "Batch",
    "Estimate",
    "SimulationSettings",
    "SimulationSummary",
    "Workload",
    "simulate",
    "simulation_report",
]

"""The queueing network, simulated: stage by stage, since nothing flows back.

Owns random arrivals and what becomes of every packet. Shares no formula with the model that it is
to check: only the scenario's columns.
"""

from firedex_models.simulation.batch import Batch
from firedex_models.simulation.replication import Arrivals, Workload
from firedex_models.simulation.report import report_of
from firedex_models.simulation.run import SimulationSettings, simulate
from firedex_models.simulation.summary import Estimate, SimulationSummary

__all__ = [
    "Arrivals",
    "Batch",
    "Estimate",
    "SimulationSettings",
    "SimulationSummary",
    "Workload",
    "report_of",
    "simulate",
]

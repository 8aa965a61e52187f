"""Reproduction of published evaluations.

- FireDeX (§5, Figs. 5-10), by model and by simulation: ``cases``, ``claims``, ``figures``,
  ``report``.
- The thesis on self-managed MQTT federation (§5), with real processes: ``thesis`` (its recorded
  times), ``federation``, ``federation_report``.
"""

from firedex.lab.reproduction.figure import FULL, QUICK, Claim, Effort, Figure, Panel, Series
from firedex.lab.reproduction.figures import FIGURES, reproduce
from firedex.lab.reproduction.report import write_figure, write_report

__all__ = [
    "FIGURES",
    "FULL",
    "QUICK",
    "Claim",
    "Effort",
    "Figure",
    "Panel",
    "Series",
    "reproduce",
    "write_figure",
    "write_report",
]

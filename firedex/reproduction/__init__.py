"""The paper's evaluation (§5, Figs. 5-10), by model and by simulation, beside what it says."""

from firedex.reproduction.effort import FULL, QUICK, Effort
from firedex.reproduction.figure import Claim, Figure, Panel, Series
from firedex.reproduction.figures import FIGURES, reproduce
from firedex.reproduction.report import write_figure, write_report

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

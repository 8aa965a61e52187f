"""The queueing model, utility functions and the simulation of a site: pure and vectorised.

Owns the mathematics. Must not know files, terminals, sockets, or planning.
"""

from firedex_models.errors import MissingAssignment, ModelError
from firedex_models.prediction import FifoModel, predict, predict_site
from firedex_models.prediction_table import PredictionTable
from firedex_models.utility import UtilityColumns, utility_of

__all__ = [
    "FifoModel",
    "MissingAssignment",
    "ModelError",
    "PredictionTable",
    "UtilityColumns",
    "predict",
    "predict_site",
    "utility_of",
]

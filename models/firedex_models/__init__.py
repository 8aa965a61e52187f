"""FireDeX's queueing model, its utility functions and its distributions: pure and vectorised.

Owns the mathematics. Must not know files, terminals, sockets, or how plans are made.
"""

from firedex_models.errors import ModelError, NotAssigned
from firedex_models.prediction import FifoModel, predict, predict_site
from firedex_models.prediction_table import PredictionTable
from firedex_models.utility import UtilityColumns, utility_of

__all__ = [
    "FifoModel",
    "ModelError",
    "NotAssigned",
    "PredictionTable",
    "UtilityColumns",
    "predict",
    "predict_site",
    "utility_of",
]

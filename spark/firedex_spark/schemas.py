"""The columns of all input files of the jobs.

Delivery records are written by clients and the simulator, predictions by the service and the
planner. Their columns are the fields of the types in ``firedex.wire``; tests check the writers.
Feedback has one row for each time that a person showed how much a topic is worth. ``kind`` defines
``value``: ``rating`` is 1 to 5; ``acknowledgement`` is 1, or 0 for an event that was shown and not
acknowledged; ``dwell`` is a time in seconds; ``choice`` is 1, for ``topic`` preferred to
``other_topic``.
"""

from dataclasses import fields
from typing import Literal

import pyarrow as pa

from firedex.transport.delivery_schema import SCHEMA as DELIVERY_SCHEMA
from firedex.wire import SubscriptionPrediction

__all__ = ["DELIVERY_SCHEMA", "FEEDBACK_SCHEMA", "PREDICTION_SCHEMA", "FeedbackKind"]

FeedbackKind = Literal["rating", "acknowledgement", "dwell", "choice"]
INTEGERS = {"flow", "priority"}
TEXTS = {"subscriber", "filter", "method", "reason"}
FLAGS = {"deadline_met"}


def _type(name: str) -> pa.DataType:
    if name in INTEGERS:
        return pa.int64()
    if name in TEXTS:
        return pa.string()
    return pa.bool_() if name in FLAGS else pa.float64()


PREDICTION_SCHEMA = pa.schema(
    [
        ("site", pa.string()),
        ("configuration_version", pa.int64()),
        *((f.name, _type(f.name)) for f in fields(SubscriptionPrediction)),
    ]
)
FEEDBACK_SCHEMA = pa.schema(
    [
        ("site", pa.string()),
        ("at_seconds", pa.float64()),
        ("rater", pa.string()),
        ("role", pa.string()),
        ("phase", pa.string()),
        ("topic", pa.string()),
        ("kind", pa.string()),
        ("value", pa.float64()),
        ("other_topic", pa.string()),
    ]
)

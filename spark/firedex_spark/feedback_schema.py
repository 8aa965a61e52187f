"""The columns of feedback: one flat row for each time somebody showed what a topic is worth.

``kind`` says what ``value`` is: ``rating`` 1 to 5; ``acknowledgement`` 1, or 0 for an event that
was left unacknowledged; ``dwell`` seconds spent on it; ``choice`` 1, for ``topic`` over
``other_topic``.
"""

from typing import Literal

import pyarrow as pa

__all__ = ["FEEDBACK_SCHEMA", "FeedbackKind"]

FeedbackKind = Literal["rating", "acknowledgement", "dwell", "choice"]

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

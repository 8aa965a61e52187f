"""Generated feedback with known worths: ratings, acknowledgements, dwell times, choices.

A rating is worth plus the bias of the rater plus noise, rounded to five points. Some raters use the
top two points only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firedex_spark.schemas import FEEDBACK_SCHEMA

__all__ = [
    "FeedbackParameters",
    "GeneratedFeedback",
    "draw_feedback",
    "write_generated_feedback",
]

Integers = NDArray[np.int64]
START_SECONDS = 1_767_225_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackParameters:
    """The parameters that feedback is drawn from; counts are for each role, phase and topic."""

    roles: tuple[str, ...] = ("command", "crew", "medic")
    phases: tuple[str, ...] = ("size-up", "overhaul")
    classes: tuple[str, ...] = ("smoke", "heat", "vitals", "doors", "water", "camera")
    topics_of_a_class: int = 5
    raters_of_a_role: int = 200
    ratings: int = 200
    acknowledgements: int = 0
    dwells: int = 0
    choices: int = 0
    role_spread: float = 0.3
    class_spread: float = 0.8
    topic_spread: float = 0.6
    bias: float = 1.0
    noise: float = 1.0
    top_raters: float = 0.3
    seed: int = 0

    @property
    def topics(self) -> list[str]:
        """Return all topics; the first level is the class."""
        return [
            f"{kind}/floor{number}"
            for kind in self.classes
            for number in range(self.topics_of_a_class)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFeedback:
    """A table of feedback, and the true worth by role, phase and topic."""

    table: pa.Table
    worth: dict[tuple[str, str, str], float] = field(repr=False)


def draw_feedback(truth: FeedbackParameters) -> GeneratedFeedback:
    """Draw feedback; the same seed gives the same table."""
    random = np.random.default_rng(truth.seed)
    tables: list[pa.Table] = []
    worth: dict[tuple[str, str, str], float] = {}
    for role in truth.roles:
        role_feedback = _Role(truth, role, random)
        worth |= role_feedback.named_worth()
        tables += role_feedback.tables()
    table = pa.concat_tables(tables)
    return GeneratedFeedback(
        table=table.take(pa.array(random.permutation(table.num_rows))), worth=worth
    )


def write_generated_feedback(truth: FeedbackParameters, folder: Path) -> GeneratedFeedback:
    """Write ``feedback.parquet`` into the folder."""
    feedback = draw_feedback(truth)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(feedback.table, folder / "feedback.parquet")
    return feedback


class _Role:
    def __init__(self, truth: FeedbackParameters, role: str, random: np.random.Generator) -> None:
        self._truth, self._role, self._random = truth, role, random
        phases, kinds = len(truth.phases), len(truth.classes)
        each = truth.topics_of_a_class
        middle = 3.0 + truth.role_spread * random.normal()
        of_class = truth.class_spread * random.normal(size=(phases, kinds, 1))
        of_topic = truth.topic_spread * random.normal(size=(phases, kinds, each))
        self._worth = np.maximum(middle + of_class + of_topic, 0.2).reshape(-1)
        self._bias = truth.bias * random.normal(size=truth.raters_of_a_role)
        self._top = random.random(truth.raters_of_a_role) < truth.top_raters

    def named_worth(self) -> dict[tuple[str, str, str], float]:
        cells = [(p, t) for p in self._truth.phases for t in self._truth.topics]
        return {
            (self._role, phase, topic): float(worth)
            for (phase, topic), worth in zip(cells, self._worth, strict=True)
        }

    def tables(self) -> Iterator[pa.Table]:
        """Yield the feedback of each requested kind."""
        cells = len(self._worth)
        if self._truth.ratings:
            yield self._ratings(np.repeat(np.arange(cells), self._truth.ratings))
        if self._truth.acknowledgements:
            cell = np.repeat(np.arange(cells), self._truth.acknowledgements)
            opinions = self._opinions(cell, self._rater(len(cell)))
            yield self._rows(
                "acknowledgement", cell, opinions[0], (opinions[1] > 2.5).astype(float)
            )
        if self._truth.dwells:
            cell = np.repeat(np.arange(cells), self._truth.dwells)
            rater, latent = self._opinions(cell, self._rater(len(cell)))
            yield self._rows("dwell", cell, rater, np.exp(0.5 * latent))
        if self._truth.choices:
            yield self._choices(np.repeat(np.arange(cells), self._truth.choices))

    def _rater(self, count: int) -> Integers:
        return self._random.integers(self._truth.raters_of_a_role, size=count)

    def _opinions(self, cell: Integers, rater: Integers) -> tuple[Integers, Any]:
        noise = self._truth.noise * self._random.normal(size=len(cell))
        return rater, self._worth[cell] + self._bias[rater] + noise

    def _ratings(self, cell: Integers) -> pa.Table:
        rater, latent = self._opinions(cell, self._rater(len(cell)))
        lowest = np.where(self._top[rater], 4, 1)
        return self._rows("rating", cell, rater, np.clip(np.floor(latent + 0.5), lowest, 5))

    def _choices(self, cell: Integers) -> pa.Table:
        """Return choices between two topics of one phase; the preferred topic comes first."""
        topics = len(self._truth.topics)
        shift = self._random.integers(1, topics, size=len(cell))
        other = cell // topics * topics + (cell % topics + shift) % topics
        rater = self._rater(len(cell))
        preferred = self._opinions(cell, rater)[1] > self._opinions(other, rater)[1]
        won, lost = np.where(preferred, cell, other), np.where(preferred, other, cell)
        return self._rows("choice", won, rater, np.ones(len(cell)), lost)

    def _rows(
        self, kind: str, cell: Integers, rater: Integers, value: Any, other: Integers | None = None
    ) -> pa.Table:
        truth, topics = self._truth, np.array(self._truth.topics, dtype=object)
        columns = {
            "site": np.full(len(cell), "site", dtype=object),
            "at_seconds": START_SECONDS + 3600.0 * self._random.random(len(cell)),
            "rater": np.array([f"{self._role}{r}" for r in range(truth.raters_of_a_role)])[rater],
            "role": np.full(len(cell), self._role, dtype=object),
            "phase": np.array(truth.phases, dtype=object)[cell // len(topics)],
            "topic": topics[cell % len(topics)],
            "kind": np.full(len(cell), kind, dtype=object),
            "value": np.asarray(value, dtype=float),
            "other_topic": None if other is None else topics[other % len(topics)],
        }
        arrays = [
            pa.nulls(len(cell), f.type)
            if columns[f.name] is None
            else pa.array(columns[f.name], f.type)
            for f in FEEDBACK_SCHEMA
        ]
        return pa.table(arrays, schema=FEEDBACK_SCHEMA)

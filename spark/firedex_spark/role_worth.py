"""All feedback of one role, as a fit: which cells there are, what is known of each. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from firedex_spark.behaviour_evidence import (
    Scores,
    acknowledgement_scores,
    choice_scores,
    dwell_scores,
    linked,
    repeated,
)
from firedex_spark.rating_model import Evidence, FittedWorth, RatingCounts, fit_worth

__all__ = ["STATISTICS", "LearntWorth", "TooMuchForAFit", "class_of_topic", "fit_role"]

STATISTICS = (
    "role",
    "phase",
    "topic",
    "other_topic",
    "kind",
    "site",
    "rater",
    "rating",
    "count",
    "total",
    "squares",
    "together",
)
"""The columns that feedback is summed up to. ``site``, ``rater`` and ``rating`` are of ratings only
(a rater is known by site and name), sums of acknowledgements and of the logarithms of dwell.
``together``: the sum, over raters, of the squares of how many are of each."""
DWELLS = ("count", "total", "squares", "together")
Z = 1.959963984540054
MOST_CELLS = 4_000
MOST_PAIRS = 40_000_000
"""A fit holds tables of cells by cells and of cells by raters: what a machine has room for."""


class TooMuchForAFit(Exception):
    """A role with more topics or raters than a fit can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntWorth:
    """The worth of a topic, or of a class of topics (``topic`` None), to a role in a phase.

    ``pulled``: which part of the way from its own ratings to its class it went.
    """

    role: str
    phase: str
    topic_class: str
    topic: str | None
    worth: float
    error: float
    ratings: int
    raters: int
    other_feedback: int
    pulled: float | None

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95 %."""
        return self.worth - Z * self.error, self.worth + Z * self.error


def class_of_topic(topic: str) -> str:
    """The first level of its name."""
    return topic.split("/", 1)[0]


def fit_role(role: str, statistics: pd.DataFrame) -> tuple[list[LearntWorth], FittedWorth]:
    """What each topic and class is worth to the role; rows as in ``STATISTICS``, in any order."""
    return _RoleFeedback(role, statistics).fit()


class _RoleFeedback:
    def __init__(self, role: str, statistics: pd.DataFrame) -> None:
        order = ["phase", "topic", "other_topic", "kind", "site", "rater", "rating"]
        blank = {"other_topic": "", "site": "", "rater": ""}
        self._rows = statistics.fillna(blank).sort_values(order)
        self._role = role
        chosen = self._rows[self._rows.kind == "choice"]
        seen = {*zip(self._rows.phase, self._rows.topic, strict=True)}
        seen |= {*zip(chosen.phase, chosen.other_topic, strict=True)}
        self._cells = sorted(seen)
        self._place = {cell: number for number, cell in enumerate(self._cells)}
        self._phases = sorted({phase for phase, _ in self._cells})
        self._classes = sorted({(phase, class_of_topic(topic)) for phase, topic in self._cells})
        place = {name: number for number, name in enumerate(self._classes)}
        self._class = np.array([place[p, class_of_topic(t)] for p, t in self._cells])

    def fit(self) -> tuple[list[LearntWorth], FittedWorth]:
        counts, raters = self._ratings()
        cells = len(self._cells)
        if cells > MOST_CELLS or cells * raters > MOST_PAIRS:
            raise TooMuchForAFit(
                f"{cells} topics and phases, rated by {raters}: a fit takes {MOST_CELLS} of them, "
                f"and {MOST_PAIRS // max(cells, 1)} raters of so many"
            )
        rated = np.bincount(counts.cell, counts.count, len(self._cells)) > 0
        first = fit_worth(counts, self._class, raters=raters)
        evidence = self._evidence(first, rated)
        final = first
        if evidence:
            final = fit_worth(counts, self._class, raters=raters, evidence=evidence)
        return [*self._topics(final, counts), *self._class_rows(final, counts)], final

    def _of(self, kind: str) -> pd.DataFrame:
        return self._rows[self._rows.kind == kind]

    def _cell(self, rows: pd.DataFrame, topic: str = "topic") -> NDArray[np.int64]:
        pairs = zip(rows.phase, rows[topic], strict=True)
        return np.array([self._place[pair] for pair in pairs], dtype=np.int64)

    def _ratings(self) -> tuple[RatingCounts, int]:
        rows = self._of("rating")
        rater = rows.groupby(["site", "rater"]).ngroup().to_numpy(dtype=np.int64)
        counts = RatingCounts(
            cell=self._cell(rows),
            rater=rater,
            rating=rows.rating.to_numpy(dtype=np.int64),
            count=rows["count"].to_numpy(dtype=np.int64),
        )
        return counts, int(rater.max(initial=-1)) + 1

    def _evidence(self, fit: FittedWorth, rated: NDArray[np.bool_]) -> list[Evidence]:
        alike = fit.rater_spread**2 / (fit.rater_spread**2 + fit.noise**2)
        scores = self._scores(alike)
        found = [linked(one, fit.worth, fit.own_error, rated) for one in scores]
        return [said for said in found if said is not None]

    def _scores(self, alike: float) -> list[Scores]:
        """``alike``: which part of the variance of what somebody does is of who they are."""
        made = []
        if len(rows := self._of("acknowledgement")):
            shown, acknowledged, together = _numbers(rows, "count", "total", "together")
            wider = repeated(shown, together, alike)
            made.append(acknowledgement_scores(self._cell(rows), shown, acknowledged, wider))
        if len(rows := self._of("dwell")):
            count, total, squares, together = _numbers(rows, *DWELLS)
            wider = repeated(count, together, alike)
            made.append(dwell_scores(self._cell(rows), count, total, squares, wider))
        if len(rows := self._of("choice")):
            phase = np.array([self._phases.index(p) for p, _ in self._cells])
            won, lost = self._cell(rows), self._cell(rows, "other_topic")
            made.append(choice_scores(won, lost, _numbers(rows, "count")[0], phase))
        return made

    def _topics(self, fit: FittedWorth, counts: RatingCounts) -> list[LearntWorth]:
        ratings = np.bincount(counts.cell, counts.count, len(self._cells))
        pairs = np.unique(np.stack([counts.cell, counts.rater]), axis=1)[0]
        raters = np.bincount(pairs, minlength=len(self._cells))
        other = self._rows[self._rows.kind != "rating"]
        others = np.bincount(self._cell(other), other["count"], len(self._cells))
        rows = []
        for number, (phase, topic) in enumerate(self._cells):
            rows.append(
                LearntWorth(
                    role=self._role,
                    phase=phase,
                    topic_class=class_of_topic(topic),
                    topic=topic,
                    worth=float(fit.worth[number]),
                    error=float(fit.error[number]),
                    ratings=int(ratings[number]),
                    raters=int(raters[number]),
                    other_feedback=int(others[number]),
                    pulled=float(fit.pulled[number]),
                )
            )
        return rows

    def _class_rows(self, fit: FittedWorth, counts: RatingCounts) -> list[LearntWorth]:
        ratings = np.bincount(self._class[counts.cell], counts.count, len(self._classes))
        return [
            LearntWorth(
                role=self._role,
                phase=phase,
                topic_class=name,
                topic=None,
                worth=float(fit.class_worth[number]),
                error=float(fit.new_topic_error[number]),
                ratings=int(ratings[number]),
                raters=0,
                other_feedback=0,
                pulled=None,
            )
            for number, (phase, name) in enumerate(self._classes)
        ]


def _numbers(rows: pd.DataFrame, *names: str) -> list[Any]:
    return [rows[name].to_numpy(dtype=np.float64) for name in names]

"""Learnt worths as the service's utility profiles, and what changed. Pure.

A rule for each topic of a role, then one for each class (``smoke/#``), which is what a new topic of
the class and a wildcard get: the first rule that covers a subscription decides. What was learnt of
people without a role (``anybody``) comes last, since it covers every role.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firedex.wire import LogUtility
from firedex.wire.incident import ANYBODY, PhaseProfile, ProfileRule
from firedex_spark.role_worth import LearntWorth

__all__ = ["ProfileChange", "changes_of", "profiles_of"]

MOST_RULES = 1000
LEAST_WEIGHT = 0.01
DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChange:
    """One rule, what it was and is, and on what grounds."""

    role: str
    phase: str
    filter: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None
    why: str


def filter_of(worth: LearntWorth) -> str:
    """The filter that a worth is for."""
    return worth.topic if worth.topic is not None else f"{worth.topic_class}/#"


def weight_of(worth: LearntWorth) -> float:
    """A weight is the worth on the scale of ratings, and never negative."""
    return round(max(worth.worth, LEAST_WEIGHT), DIGITS)


def profiles_of(worths: Sequence[LearntWorth]) -> tuple[PhaseProfile, ...]:
    """A profile for each phase.

    Where there are more topics than a profile holds rules, those nearest to their class go without
    one: the class's rule covers them.
    """
    phases = sorted({worth.phase for worth in worths})
    return tuple(_profile(phase, [w for w in worths if w.phase == phase]) for phase in phases)


def _profile(phase: str, worths: list[LearntWorth]) -> PhaseProfile:
    classes = [worth for worth in worths if worth.topic is None]
    of_class = {(worth.role, worth.topic_class): worth.worth for worth in classes}
    topics = [worth for worth in worths if worth.topic is not None]
    far = sorted(
        topics,
        key=lambda w: (-abs(w.worth - of_class[w.role, w.topic_class]), filter_of(w), w.role),
    )
    kept = far[: max(MOST_RULES - len(classes), 0)]
    # a topic at the top of its class's branch is covered by the class too
    kept = sorted(kept, key=lambda w: (w.role, filter_of(w))) + classes
    ordered = sorted(kept, key=lambda w: w.role == ANYBODY)
    return PhaseProfile(
        phase=phase,
        rules=tuple(
            ProfileRule(
                filter=filter_of(worth),
                role=worth.role,
                utility=LogUtility(weight=weight_of(worth)),
            )
            for worth in ordered[:MOST_RULES]
        ),
    )


def changes_of(
    worths: Sequence[LearntWorth], previous: Sequence[PhaseProfile]
) -> list[ProfileChange]:
    """Every weight beside what it was; and the rules that are no more."""
    before = {
        (rule.role, profile.phase, rule.filter): rule.utility.weight
        for profile in previous
        for rule in profile.rules
        if rule.utility is not None
    }
    made = []
    for worth in worths:
        key = (worth.role, worth.phase, filter_of(worth))
        made.append(
            ProfileChange(
                role=worth.role,
                phase=worth.phase,
                filter=filter_of(worth),
                before=before.pop(key, None),
                after=weight_of(worth),
                interval=worth.interval,
                why=_why(worth),
            )
        )
    for (role, phase, filter_), weight in sorted(before.items()):
        made.append(
            ProfileChange(
                role=role,
                phase=phase,
                filter=filter_,
                before=weight,
                after=None,
                interval=None,
                why="no feedback names it any more; its class's rule covers it, if there is one",
            )
        )
    return made


def _why(worth: LearntWorth) -> str:
    if worth.topic is None:
        return f"prior of the class: what a new topic gets, from {worth.ratings} ratings"
    grounds = [f"{worth.ratings} ratings by {worth.raters} raters"] if worth.ratings else []
    if worth.other_feedback:
        grounds.append(f"{worth.other_feedback} acknowledgements, dwells and choices")
    pulled = f"; {worth.pulled:.0%} of the way to its class" if worth.pulled else ""
    return " and ".join(grounds) + pulled

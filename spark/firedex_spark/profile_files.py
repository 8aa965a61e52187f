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

__all__ = ["ProfileChange", "WithoutARule", "changes_of", "profiles_of", "without_a_rule"]

MOST_RULES = 1000
LEAST_WEIGHT = 0.01
DIGITS = 4
NO_ROOM = "a profile has no room for it"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutARule:
    """Topics of a role in a phase that have no rule of their own, for want of room.

    ``by_class``: how many their class's rule covers; ``not_at_all``: those whose class has none.
    """

    phase: str
    role: str
    by_class: int
    not_at_all: int

    def __str__(self) -> str:
        more = f", and {self.not_at_all} no rule at all" if self.not_at_all else ""
        return (
            f"{self.role} in {self.phase}: {self.by_class} topics have the weight of their class"
            f"{more}; a profile holds {MOST_RULES} rules"
        )


def filter_of(worth: LearntWorth) -> str:
    """The filter that a worth is for."""
    return worth.topic if worth.topic is not None else f"{worth.topic_class}/#"


def weight_of(worth: LearntWorth) -> float:
    """A weight is the worth on the scale of ratings, and never negative."""
    return round(max(worth.worth, LEAST_WEIGHT), DIGITS)


def profiles_of(worths: Sequence[LearntWorth]) -> tuple[PhaseProfile, ...]:
    """A profile for each phase.

    Where there is more than a profile holds rules, topics that are nearest to their class go
    without one, whoever's they are: the class's rule covers them. If classes alone are too many,
    those with the fewest ratings go without.
    """
    return tuple(
        PhaseProfile(
            phase=phase,
            rules=tuple(
                ProfileRule(
                    filter=filter_of(worth),
                    role=worth.role,
                    utility=LogUtility(weight=weight_of(worth)),
                )
                for worth in kept
            ),
        )
        for phase, kept in _with_a_rule(worths).items()
    )


def _with_a_rule(worths: Sequence[LearntWorth]) -> dict[str, list[LearntWorth]]:
    """By phase, what has a rule, in the order of the rules."""
    by_phase: dict[str, list[LearntWorth]] = {}
    for worth in sorted(worths, key=lambda w: w.phase):
        by_phase.setdefault(worth.phase, []).append(worth)
    return {phase: _kept(of_phase) for phase, of_phase in by_phase.items()}


def _kept(worths: list[LearntWorth]) -> list[LearntWorth]:
    classes = [worth for worth in worths if worth.topic is None]
    of_class = {(worth.role, worth.topic_class): worth.worth for worth in classes}
    topics = [worth for worth in worths if worth.topic is not None]

    def nearness(worth: LearntWorth) -> tuple[float, int, str, str]:
        off = abs(worth.worth - of_class[worth.role, worth.topic_class])
        return -off, -worth.ratings, filter_of(worth), worth.role

    classes = sorted(classes, key=lambda w: (-w.ratings, filter_of(w), w.role))[:MOST_RULES]
    topics = sorted(topics, key=nearness)[: MOST_RULES - len(classes)]

    def place(worth: LearntWorth) -> tuple[bool, bool, str, str]:
        # a topic at the top of its class's branch is covered by the class too
        return worth.role == ANYBODY, worth.topic is None, worth.role, filter_of(worth)

    return sorted([*topics, *classes], key=place)


def without_a_rule(worths: Sequence[LearntWorth]) -> list[WithoutARule]:
    """What a profile had no room for, by phase and role."""
    kept = {_key(worth) for of_phase in _with_a_rule(worths).values() for worth in of_phase}
    missing = [worth for worth in worths if _key(worth) not in kept]
    bare = {(w.phase, w.role, w.topic_class) for w in missing if w.topic is None}
    found = []
    for phase, role in sorted({(w.phase, w.role) for w in missing}):
        topics = [w for w in missing if (w.phase, w.role) == (phase, role) and w.topic is not None]
        alone = sum((phase, role, w.topic_class) in bare for w in topics)
        found.append(
            WithoutARule(phase=phase, role=role, by_class=len(topics) - alone, not_at_all=alone)
        )
    return found


def _key(worth: LearntWorth) -> tuple[str, str, str]:
    return worth.role, worth.phase, filter_of(worth)


def changes_of(
    worths: Sequence[LearntWorth], previous: Sequence[PhaseProfile]
) -> list[ProfileChange]:
    """Every rule that is written beside what it was; and the rules that are no more."""
    before = {
        (rule.role, profile.phase, rule.filter): rule.utility.weight
        for profile in previous
        for rule in profile.rules
        if rule.utility is not None
    }
    kept = {_key(worth) for of_phase in _with_a_rule(worths).values() for worth in of_phase}
    made = [
        ProfileChange(
            role=worth.role,
            phase=worth.phase,
            filter=filter_of(worth),
            before=before.pop(_key(worth), None),
            after=weight_of(worth),
            interval=worth.interval,
            why=_why(worth),
        )
        for worth in worths
        if _key(worth) in kept
    ]
    known = {_key(worth) for worth in worths}
    for (role, phase, filter_), weight in sorted(before.items()):
        why = "no feedback names it any more" if (role, phase, filter_) not in known else NO_ROOM
        made.append(
            ProfileChange(
                role=role,
                phase=phase,
                filter=filter_,
                before=weight,
                after=None,
                interval=None,
                why=f"{why}; its class's rule covers it, if there is one",
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

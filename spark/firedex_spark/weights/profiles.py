"""Utility profiles for the service from learnt worths, and how they changed. Pure.

Each role has a rule for each topic, then one for each class (``smoke/#``), which applies to new
topics and wildcards: the first rule that covers a subscription decides. Rules learnt from people
without a role (``anybody``) come last, since they cover every role.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firedex.wire import LogUtility
from firedex.wire.incident import ANY_ROLE, PhaseProfile, ProfileRule
from firedex_spark.weights.role_fit import LearntWorth

__all__ = [
    "ProfileChange",
    "TopicsWithoutRule",
    "make_profiles",
    "profile_changes",
    "topics_without_rule",
]

MAX_RULES = 1000
MIN_WEIGHT = 0.01
DIGITS = 4
PROFILE_FULL = "the profile is full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChange:
    """One rule before and after, and the reason."""

    role: str
    phase: str
    filter: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsWithoutRule:
    """Topics of a role in a phase without a rule of their own, because a profile is full.

    ``by_class``: topics that the rule of their class covers; ``not_at_all``: those without one.
    """

    phase: str
    role: str
    by_class: int
    not_at_all: int

    def __str__(self) -> str:
        more = f", {self.not_at_all} have no rule" if self.not_at_all else ""
        return (
            f"{self.role} in {self.phase}: {self.by_class} topics use the rule of their class"
            f"{more}; a profile holds {MAX_RULES} rules"
        )


def rule_filter(worth: LearntWorth) -> str:
    """Return the filter of the rule for a worth."""
    return worth.topic if worth.topic is not None else f"{worth.topic_class}/#"


def rule_weight(worth: LearntWorth) -> float:
    """Return the weight for a worth: at least 0.01."""
    return round(max(worth.worth, MIN_WEIGHT), DIGITS)


def make_profiles(worths: Sequence[LearntWorth]) -> tuple[PhaseProfile, ...]:
    """Return a profile for each phase.

    If a profile is full, the topics nearest to their class get no rule, of whatever role: the rule
    of the class covers them. If there are too many classes, those with the fewest ratings get none.
    """
    return tuple(
        PhaseProfile(
            phase=phase,
            rules=tuple(
                ProfileRule(
                    filter=rule_filter(worth),
                    role=worth.role,
                    utility=LogUtility(weight=rule_weight(worth)),
                )
                for worth in with_rule
            ),
        )
        for phase, with_rule in _rules_by_phase(worths).items()
    )


def _rules_by_phase(worths: Sequence[LearntWorth]) -> dict[str, list[LearntWorth]]:
    """Return the worths that get a rule by phase, in the order of the rules."""
    by_phase: dict[str, list[LearntWorth]] = {}
    for worth in sorted(worths, key=lambda w: w.phase):
        by_phase.setdefault(worth.phase, []).append(worth)
    return {phase: _worths_with_rule(of_phase) for phase, of_phase in by_phase.items()}


def _worths_with_rule(worths: list[LearntWorth]) -> list[LearntWorth]:
    classes = [worth for worth in worths if worth.topic is None]
    of_class = {(worth.role, worth.topic_class): worth.worth for worth in classes}
    topics = [worth for worth in worths if worth.topic is not None]

    def nearness(worth: LearntWorth) -> tuple[float, int, str, str]:
        off = abs(worth.worth - of_class[worth.role, worth.topic_class])
        return -off, -worth.ratings, rule_filter(worth), worth.role

    classes = sorted(classes, key=lambda w: (-w.ratings, rule_filter(w), w.role))[:MAX_RULES]
    topics = sorted(topics, key=nearness)[: MAX_RULES - len(classes)]

    def rule_order(worth: LearntWorth) -> tuple[bool, bool, str, str]:
        # the rule of the class also covers a topic that has the name of the class
        return worth.role == ANY_ROLE, worth.topic is None, worth.role, rule_filter(worth)

    return sorted([*topics, *classes], key=rule_order)


def topics_without_rule(worths: Sequence[LearntWorth]) -> list[TopicsWithoutRule]:
    """Return the topics that have no rule, by phase and role."""
    with_rule = {_key(worth) for of_phase in _rules_by_phase(worths).values() for worth in of_phase}
    missing = [worth for worth in worths if _key(worth) not in with_rule]
    classes_without_rule = {(w.phase, w.role, w.topic_class) for w in missing if w.topic is None}
    found = []
    for phase, role in sorted({(w.phase, w.role) for w in missing}):
        topics = [w for w in missing if (w.phase, w.role) == (phase, role) and w.topic is not None]
        without_class_rule = sum(
            (phase, role, w.topic_class) in classes_without_rule for w in topics
        )
        found.append(
            TopicsWithoutRule(
                phase=phase,
                role=role,
                by_class=len(topics) - without_class_rule,
                not_at_all=without_class_rule,
            )
        )
    return found


def _key(worth: LearntWorth) -> tuple[str, str, str]:
    return worth.role, worth.phase, rule_filter(worth)


def profile_changes(
    worths: Sequence[LearntWorth], previous: Sequence[PhaseProfile]
) -> list[ProfileChange]:
    """Return every written rule with its earlier weight, and the removed rules."""
    before = {
        (rule.role, profile.phase, rule.filter): rule.utility.weight
        for profile in previous
        for rule in profile.rules
        if rule.utility is not None
    }
    with_rule = {_key(worth) for of_phase in _rules_by_phase(worths).values() for worth in of_phase}
    changes = [
        ProfileChange(
            role=worth.role,
            phase=worth.phase,
            filter=rule_filter(worth),
            before=before.pop(_key(worth), None),
            after=rule_weight(worth),
            interval=worth.interval,
            why=_reason(worth),
        )
        for worth in worths
        if _key(worth) in with_rule
    ]
    known = {_key(worth) for worth in worths}
    for (role, phase, filter_), weight in sorted(before.items()):
        why = "no feedback mentions it" if (role, phase, filter_) not in known else PROFILE_FULL
        changes.append(
            ProfileChange(
                role=role,
                phase=phase,
                filter=filter_,
                before=weight,
                after=None,
                interval=None,
                why=f"{why}; the rule of its class applies, if there is one",
            )
        )
    return changes


def _reason(worth: LearntWorth) -> str:
    if worth.topic is None:
        return f"weight of new topics of the class, from {worth.ratings} ratings"
    grounds = [f"{worth.ratings} ratings by {worth.raters} raters"] if worth.ratings else []
    if worth.other_feedback:
        grounds.append(f"{worth.other_feedback} acknowledgements, dwells and choices")
    shrinkage = f"; {worth.shrinkage:.0%} of the way to its class" if worth.shrinkage else ""
    return " and ".join(grounds) + shrinkage

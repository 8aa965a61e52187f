"""Utility profiles made from learnt worths."""

from typing import Any

import pytest

from firedex.planning import plan_scenario
from firedex.wire import LogUtility, Scenario, from_plain
from firedex_models import utility_of
from firedex_spark.weights.profiles import make_profiles, profile_changes, topics_without_rule
from firedex_spark.weights.role_fit import LearntWorth
from tests.spark.feedback_fits import ACCEPTANCE_TRUTH, by_cell

pytestmark = pytest.mark.slow


def test_new_topics_get_the_weight_of_their_class(feedback_and_worths: Any) -> None:
    worths = feedback_and_worths[1]
    profile = make_profiles(worths)[0]
    of_crew = [rule for rule in profile.rules if rule.role == "crew"]
    filters = [rule.filter for rule in of_crew]
    assert filters.index("smoke/floor0") < filters.index("smoke/#")
    weights = {rule.filter: rule.utility.weight for rule in of_crew if rule.utility is not None}
    assert len(weights) == len(of_crew)
    topics = [weight for name, weight in weights.items() if name.startswith("smoke/floor")]
    prior = weights["smoke/#"]
    assert min(topics) < prior < max(topics)
    changes = profile_changes(worths, make_profiles(worths))
    assert all(change.before == change.after for change in changes)
    removed = profile_changes(worths[1:], make_profiles(worths))
    assert [change.after for change in removed].count(None) == 1
    assert "200 ratings by" in changes[0].why


def test_profile_has_at_most_the_allowed_number_of_rules() -> None:
    worths = [
        LearntWorth(
            role="crew",
            phase="p",
            topic_class="smoke",
            topic=f"smoke/{number}" if number else None,
            worth=1.0 + number,
            error=0.1,
            ratings=1,
            raters=1,
            other_feedback=0,
            shrinkage=0.1,
        )
        for number in range(1500)
    ]
    rules = make_profiles(worths)[0].rules
    assert len(rules) == 1000
    assert rules[-1].filter == "smoke/#"
    assert "smoke/1499" in {rule.filter for rule in rules}
    assert "smoke/1" not in {rule.filter for rule in rules}


def make_worth(
    role: str, number: int, topic: int | None, worth: float, ratings: int
) -> LearntWorth:
    return LearntWorth(
        role=role,
        phase="p",
        topic_class=f"class{number}",
        topic=None if topic is None else f"class{number}/{topic}",
        worth=worth,
        error=0.1,
        ratings=ratings,
        raters=1,
        other_feedback=0,
        shrinkage=0.1,
    )


def test_changes_list_only_written_and_removed_rules() -> None:
    """Use four roles of 300 topics: all roles lose rules equally, and each is reported."""
    roles = ("a", "b", "c", "d")
    worths = [make_worth(role, 0, None, 1.0, 300) for role in roles]
    worths += [make_worth(role, 0, n, 1 + n / 100, 1) for role in roles for n in range(1, 301)]
    profiles = make_profiles(worths)
    rules = {(rule.role, rule.filter) for rule in profiles[0].rules}
    assert len(rules) == 1_000
    assert {(c.role, c.filter) for c in profile_changes(worths, [])} == rules
    again = profile_changes(worths, profiles)
    assert all(change.before == change.after for change in again)
    missing = topics_without_rule(worths)
    assert [(one.role, one.by_class, one.not_at_all) for one in missing] == [
        (role, 51, 0) for role in roles
    ]
    assert str(missing[0]).startswith("a in p: 51 topics use the rule of their class")
    small = make_profiles([make_worth("a", 0, None, 1.0, 1), make_worth("a", 0, 1, 1.1, 1)])
    removed = [change for change in profile_changes(worths, small) if change.after is None]
    assert [(change.filter, change.before) for change in removed] == [("class0/1", 1.1)]
    assert "the profile is full" in removed[0].why


def test_too_many_classes_drop_those_with_fewest_ratings() -> None:
    """Use three roles with 400 classes each."""
    worths = [
        make_worth(role, n, None, 3.0, n // 10) for role in ("a", "b", "z") for n in range(400)
    ]
    worths += [make_worth(role, n, 1, 3.5, 1) for role in ("a", "b", "z") for n in range(400)]
    rules = make_profiles(worths)[0].rules
    counts = [sum(rule.role == role for rule in rules) for role in ("a", "b", "z")]
    assert sum(counts) == 1_000
    assert max(counts) - min(counts) <= 1
    assert "class399/#" in {rule.filter for rule in rules}
    assert "class0/#" not in {rule.filter for rule in rules}
    missing = topics_without_rule(worths)
    assert sum(one.not_at_all for one in missing) == 200
    assert sum(one.by_class for one in missing) == 1_000


def test_rules_without_role_come_last() -> None:
    feedback = [
        LearntWorth(
            role=role,
            phase="p",
            topic_class="smoke",
            topic=topic,
            worth=3.0,
            error=0.1,
            ratings=1,
            raters=1,
            other_feedback=0,
            shrinkage=0.1,
        )
        for role in ("anybody", "crew")
        for topic in ("smoke/1", None)
    ]
    rules = make_profiles(feedback)[0].rules
    assert [(rule.role, rule.filter) for rule in rules] == [
        ("crew", "smoke/1"),
        ("crew", "smoke/#"),
        ("anybody", "smoke/1"),
        ("anybody", "smoke/#"),
    ]


def overloaded_scenario(weights: dict[str, dict[str, float]]) -> Scenario:
    """Return a site with a load of 200 %, in which each role subscribes to all topics."""
    topics = sorted(next(iter(weights.values())))
    return from_plain(
        Scenario,
        {
            "name": "overloaded",
            "topics": [{"name": t, "event_bytes": 60 + 40 * n % 300} for n, t in enumerate(topics)],
            "publishers": [
                {
                    "id": "p",
                    "switch": "lan",
                    "publications": [
                        {"topic": t, "rate_per_second": 1.0 + n % 7} for n, t in enumerate(topics)
                    ],
                }
            ],
            "subscribers": [
                {
                    "id": role,
                    "role": role,
                    "switch": "core",
                    "subscriptions": [
                        {"filter": t, "utility": {"kind": "log", "weight": worth[t]}}
                        for t in topics
                    ],
                }
                for role, worth in weights.items()
            ],
            "network": {
                "switches": [
                    {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
                    {"id": "core", "bandwidth_bits_per_second": 500_000.0},
                ],
                "broker": {"id": "edge"},
            },
        },
    )


def test_plans_with_learnt_weights_are_nearly_optimal(feedback_and_worths: Any) -> None:
    feedback, found = feedback_and_worths[0], by_cell(feedback_and_worths[1])
    phase = ACCEPTANCE_TRUTH.phases[0]
    true: dict[str, dict[str, float]] = {}
    fitted: dict[str, dict[str, float]] = {}
    for (role, when, topic), worth in feedback.worth.items():
        if when == phase:
            true.setdefault(role, {})[topic] = worth
            fitted.setdefault(role, {})[topic] = max(found[role, when, topic].worth, 0.01)
    worths = []
    for weights in (true, fitted):
        rows = plan_scenario(overloaded_scenario(weights)).table.to_prediction().subscriptions
        assert min(row.success_rate for row in rows) < 0.7
        worths.append(
            sum(
                utility_of(LogUtility(weight=true[row.subscriber][row.filter]), row.success_rate)
                for row in rows
            )
        )
    assert worths[1] >= 0.97 * worths[0]

"""Weights from feedback against the truth that it was drawn from, without Spark."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from feedback_fits import all_worths, by_cell, statistics_of
from numpy.typing import NDArray
from scipy.stats import binom, spearmanr

from firedex.planning import plan_scenario
from firedex.wire import LogUtility, Scenario, from_plain
from firedex_models import utility_of
from firedex_spark.generated_feedback import FeedbackTruth, GeneratedFeedback, draw_feedback
from firedex_spark.profile_files import changes_of, profiles_of, without_a_rule
from firedex_spark.rating_model import RatingCounts, fit_worth
from firedex_spark.role_worth import MOST_CELLS, LearntWorth, TooMuchForAFit, fit_role

BAR = FeedbackTruth(
    roles=("command", "crew", "medic", "police"), raters_of_a_role=300, ratings=200, seed=10
)
"""The bar's: five points, rater bias and noise of standard deviation 1, 30 % top-of-scale."""


@pytest.fixture(scope="module")
def at_200() -> tuple[GeneratedFeedback, list[LearntWorth]]:
    made = draw_feedback(BAR)
    return made, all_worths(made)


def test_worths_are_recovered_and_their_intervals_hold(at_200: Any) -> None:
    made, found = at_200[0], by_cell(at_200[1])
    true = np.array(list(made.worth.values()))
    worth = np.array([found[key].worth for key in made.worth])
    assert spearmanr(worth, true).statistic >= 0.95
    assert 0.90 <= coverage(made, found) <= 0.98


def coverage(made: GeneratedFeedback, found: dict[tuple[str, str, str], LearntWorth]) -> float:
    inside = [
        found[key].interval[0] <= truth <= found[key].interval[1]
        for key, truth in made.worth.items()
    ]
    return float(np.mean(inside))


@pytest.mark.long
def test_intervals_hold_on_average_and_in_most_draws() -> None:
    """One draw of raters shifts all cells of a role together: a single seed may be off."""
    drawn = (draw_feedback(replace(BAR, seed=seed)) for seed in range(10, 40))
    held = np.array([coverage(made, by_cell(all_worths(made))) for made in drawn])
    check_mean(held)
    # of draws, 88 % are within the bar: 20 of 30 or fewer would be once in five hundred tests
    assert ((held >= 0.90) & (held <= 0.98)).sum() >= binom.ppf(0.002, len(held), 0.88)


def check_mean(held: NDArray[np.float64]) -> None:
    """Intervals of 95 % hold in 95 % of the cells, as far as so many draws can tell."""
    error = float(held.std(ddof=1) / np.sqrt(len(held)))
    assert held.mean() >= 0.92 or held.mean() + 2 * error >= 0.95
    assert held.mean() - 2 * error <= 0.96


ALL_KINDS = replace(
    BAR, roles=("crew",), ratings=100, acknowledgements=500, dwells=500, choices=500
)


def test_how_topics_compare_is_as_certain_as_said_with_every_kind_of_feedback() -> None:
    """Apart from who happens to rate, which shifts all of a role's topics together."""
    held = []
    for seed in range(7_000, 7_008):
        made = draw_feedback(replace(ALL_KINDS, seed=seed))
        worths, fit = fit_role("crew", statistics_of(made))
        found = by_cell(worths)
        off = np.array([found[key].worth - made.worth[key] for key in sorted(made.worth)])
        held.append((np.abs(off - off.mean()) <= 1.96 * fit.own_error).mean())
    assert 0.92 <= np.mean(held) <= 0.98


@pytest.mark.long
@pytest.mark.parametrize(("ratings", "others"), [(20, 200), (100, 500), (200, 1_000)])
def test_intervals_hold_with_every_kind_of_feedback(ratings: int, others: int) -> None:
    """On average over draws; one draw of raters shifts all topics, within their errors or not."""
    truth = replace(
        ALL_KINDS, ratings=ratings, acknowledgements=others, dwells=others, choices=others
    )
    drawn = (draw_feedback(replace(truth, seed=seed)) for seed in range(7_100, 7_130))
    check_mean(np.array([coverage(made, by_cell(all_worths(made))) for made in drawn]))


def test_what_one_person_does_again_and_again_counts_for_less() -> None:
    made = draw_feedback(replace(ALL_KINDS, ratings=20, dwells=0, choices=0, seed=8))
    topic, kind = made.table["topic"].to_pylist(), made.table["kind"].to_pylist()
    names = [
        "somebody" if what == ("acknowledgement", "smoke/floor0") else name
        for what, name in zip(
            zip(kind, topic, strict=True), made.table["rater"].to_pylist(), strict=True
        )
    ]
    at = made.table.column_names.index("rater")
    one = made.table.set_column(at, made.table.schema.field(at), pa.array(names, pa.string()))
    of_many, of_one = (by_cell(all_worths(m)) for m in (made, replace(made, table=one)))
    for key, worth in of_many.items():
        wider = of_one[key].error / worth.error
        assert wider > 1.5 if key[2] == "smoke/floor0" else wider == pytest.approx(1.0, abs=0.1)


def test_a_kind_that_says_nothing_changes_nothing() -> None:
    """Acknowledgements by the toss of a coin: worths are those of the ratings alone."""
    made = draw_feedback(replace(ALL_KINDS, ratings=50, dwells=0, choices=0, seed=9))
    kind, value = made.table["kind"], made.table["value"]
    tossed = pa.array(np.random.default_rng(1).integers(0, 2, made.table.num_rows).astype(float))
    at = made.table.column_names.index("value")
    value = pc.if_else(pc.equal(kind, "acknowledgement"), tossed, value)
    coins = made.table.set_column(at, made.table.schema.field(at), value)
    alone = coins.filter(pc.equal(kind, "rating"))
    found, expected = (by_cell(all_worths(replace(made, table=table))) for table in (coins, alone))
    for key, worth in expected.items():
        assert found[key].worth == pytest.approx(worth.worth, abs=0.5 * worth.error)
        assert found[key].error >= 0.85 * worth.error


@pytest.mark.long
def test_who_happens_to_rate_shifts_a_role_no_more_than_its_error_says() -> None:
    """The mean error of a role is of its raters: all of them count, whatever of the scale they use.

    300 raters with biases of 1 leave 0.058; with the 70 % of one kind alone it would be 0.07.
    """
    shifts = []
    for seed in range(40, 46):
        made = draw_feedback(replace(BAR, seed=seed))
        found = by_cell(all_worths(made))
        for role in BAR.roles:
            keys = [key for key in made.worth if key[0] == role]
            shifts.append(np.mean([found[key].worth - made.worth[key] for key in keys]))
    assert np.sqrt(np.mean(np.square(shifts))) < 0.07


def test_a_worth_is_on_the_scale_behind_the_ratings() -> None:
    """Who rates 5 may mean any worth from 4.5 on: what all rate 5 is worth more than 5, at most."""
    counts = RatingCounts(
        cell=np.repeat(np.arange(3), 20),
        rater=np.tile(np.arange(20), 3),
        rating=np.repeat([1, 3, 5], 20),
        count=np.ones(60, dtype=np.int64),
    )
    worth = fit_worth(counts, [0, 0, 0], raters=20).worth
    assert worth[0] < 1.5 < worth[1] < 4.5 < worth[2]


def test_shrinkage_is_better_than_each_cell_for_itself_at_five_ratings() -> None:
    shrunk, alone, plain = [], [], []
    for seed in range(3):
        made = draw_feedback(replace(BAR, roles=("crew",), ratings=5, seed=seed))
        statistics = statistics_of(made)
        keys = sorted(made.worth)
        place = {key[1:]: number for number, key in enumerate(keys)}
        true = np.array([made.worth[key] for key in keys])
        cell = np.array(
            [place[p, t] for p, t in zip(statistics.phase, statistics.topic, strict=True)]
        )
        _, rater = np.unique(statistics.rater, return_inverse=True)
        counts = RatingCounts(
            cell=cell,
            rater=rater,
            rating=statistics.rating.to_numpy(),
            count=statistics["count"].to_numpy(),
        )
        kinds = sorted({(p, t.split("/")[0]) for _, p, t in keys})
        classes = [kinds.index((p, t.split("/")[0])) for _, p, t in keys]
        for shrink, into in ((True, shrunk), (False, alone)):
            fit = fit_worth(counts, classes, raters=int(rater.max()) + 1, shrink=shrink)
            into.append(((fit.worth - true) ** 2).mean())
        means = statistics.assign(sum=statistics.rating * statistics["count"])
        means = means.groupby(["phase", "topic"])[["sum", "count"]].sum()
        raw = np.array([means.loc[key[1:]]["sum"] / means.loc[key[1:]]["count"] for key in keys])
        plain.append(((raw - true) ** 2).mean())
    assert np.mean(shrunk) < 0.8 * np.mean(alone)
    assert np.mean(shrunk) < 0.8 * np.mean(plain)


def test_other_feedback_helps_where_ratings_are_few() -> None:
    few = FeedbackTruth(roles=("crew",), ratings=6, seed=3)
    more = replace(few, acknowledgements=150, dwells=150, choices=150)
    errors = []
    for truth in (few, more):
        made = draw_feedback(truth)
        found = by_cell(all_worths(made))
        off = [found[key].worth - worth for key, worth in made.worth.items()]
        errors.append(float(np.sqrt(np.mean(np.square(off)))))
    assert errors[1] < 0.85 * errors[0]


def test_without_any_rating_the_order_is_learnt_all_the_same() -> None:
    made = draw_feedback(FeedbackTruth(roles=("crew",), ratings=0, dwells=200, choices=200, seed=4))
    found = by_cell(all_worths(made))
    worth = [found[key].worth for key in made.worth]
    assert spearmanr(worth, list(made.worth.values())).statistic > 0.9


def test_the_order_of_statistics_changes_nothing() -> None:
    made = draw_feedback(FeedbackTruth(roles=("crew",), ratings=10, choices=10, seed=5))
    statistics = statistics_of(made)
    shuffled = statistics.sample(frac=1.0, random_state=1)
    assert fit_role("crew", statistics)[0] == fit_role("crew", shuffled)[0]


def test_raters_of_two_sites_are_not_one_for_having_the_same_name() -> None:
    """Ten sites of thirty people whose names are the same everywhere."""
    made = draw_feedback(replace(BAR, roles=("crew",), ratings=60, seed=7))
    number = [int(name.removeprefix("crew")) for name in made.table["rater"].to_pylist()]
    table = made.table
    for name, texts in (
        ("rater", [f"person{n % 30}" for n in number]),
        ("site", [f"site{n // 30}" for n in number]),
    ):
        at = table.column_names.index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(texts, pa.string()))
    alike, fit = fit_role("crew", statistics_of(replace(made, table=table)))
    apart, expected = fit_role("crew", statistics_of(made))
    assert fit.rater_spread == pytest.approx(expected.rater_spread, rel=1e-3)
    assert [w.raters for w in alike] == [w.raters for w in apart]
    assert [w.worth for w in alike] == pytest.approx([w.worth for w in apart], abs=1e-3)


def test_new_topics_get_their_classs_prior(at_200: Any) -> None:
    worths = at_200[1]
    profile = profiles_of(worths)[0]
    of_crew = [rule for rule in profile.rules if rule.role == "crew"]
    filters = [rule.filter for rule in of_crew]
    assert filters.index("smoke/floor0") < filters.index("smoke/#")
    topics = [r.utility.weight for r in of_crew if r.filter.startswith("smoke/floor")]
    prior = next(r.utility.weight for r in of_crew if r.filter == "smoke/#")
    assert min(topics) < prior < max(topics)
    changes = changes_of(worths, profiles_of(worths))
    assert all(change.before == change.after for change in changes)
    gone = changes_of(worths[1:], profiles_of(worths))
    assert [change.after for change in gone].count(None) == 1
    assert "200 ratings by" in changes[0].why


def test_a_profile_holds_no_more_rules_than_the_service_takes() -> None:
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
            pulled=0.1,
        )
        for number in range(1500)
    ]
    rules = profiles_of(worths)[0].rules
    assert len(rules) == 1000
    assert rules[-1].filter == "smoke/#"
    assert "smoke/1499" in {rule.filter for rule in rules}
    assert "smoke/1" not in {rule.filter for rule in rules}


def learnt(role: str, number: int, topic: int | None, worth: float, ratings: int) -> LearntWorth:
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
        pulled=0.1,
    )


def test_the_report_names_the_rules_that_are_written_and_no_others() -> None:
    """Four roles of 300 topics: no role is cut for its name, and each is told what it lacks."""
    roles = ("a", "b", "c", "d")
    worths = [learnt(role, 0, None, 1.0, 300) for role in roles]
    worths += [learnt(role, 0, n, 1 + n / 100, 1) for role in roles for n in range(1, 301)]
    profiles = profiles_of(worths)
    rules = {(rule.role, rule.filter) for rule in profiles[0].rules}
    assert len(rules) == 1_000
    assert {(c.role, c.filter) for c in changes_of(worths, [])} == rules
    again = changes_of(worths, profiles)
    assert all(change.before == change.after for change in again)
    missing = without_a_rule(worths)
    assert [(one.role, one.by_class, one.not_at_all) for one in missing] == [
        (role, 51, 0) for role in roles
    ]
    assert str(missing[0]).startswith("a in p: 51 topics have the weight of their class")
    small = profiles_of([learnt("a", 0, None, 1.0, 1), learnt("a", 0, 1, 1.1, 1)])
    gone = [change for change in changes_of(worths, small) if change.after is None]
    assert [(change.filter, change.before) for change in gone] == [("class0/1", 1.1)]
    assert "no room" in gone[0].why


def test_more_classes_than_rules_cost_every_role_alike() -> None:
    """And those go first that rest on the fewest ratings."""
    worths = [learnt(role, n, None, 3.0, n // 10) for role in ("a", "b", "z") for n in range(400)]
    worths += [learnt(role, n, 1, 3.5, 1) for role in ("a", "b", "z") for n in range(400)]
    rules = profiles_of(worths)[0].rules
    counts = [sum(rule.role == role for rule in rules) for role in ("a", "b", "z")]
    assert sum(counts) == 1_000
    assert max(counts) - min(counts) <= 1
    assert "class399/#" in {rule.filter for rule in rules}
    assert "class0/#" not in {rule.filter for rule in rules}
    missing = without_a_rule(worths)
    assert sum(one.not_at_all for one in missing) == 200
    assert sum(one.by_class for one in missing) == 1_000


def test_a_role_of_more_topics_than_a_fit_holds_is_refused_by_name() -> None:
    rows = pd.DataFrame(
        {
            "role": "crew",
            "phase": "p",
            "topic": [f"sensor/{n}" for n in range(MOST_CELLS + 1)],
            "other_topic": None,
            "kind": "dwell",
            "site": None,
            "rater": None,
            "rating": 0,
            "count": 1,
            "total": 1.0,
            "squares": 1.0,
            "together": 1.0,
        }
    )
    with pytest.raises(TooMuchForAFit, match=f"{MOST_CELLS + 1} topics and phases"):
        fit_role("crew", rows)


def test_what_was_learnt_of_people_without_a_role_comes_after_every_roles_own() -> None:
    made = [
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
            pulled=0.1,
        )
        for role in ("anybody", "crew")
        for topic in ("smoke/1", None)
    ]
    rules = profiles_of(made)[0].rules
    assert [(rule.role, rule.filter) for rule in rules] == [
        ("crew", "smoke/1"),
        ("crew", "smoke/#"),
        ("anybody", "smoke/1"),
        ("anybody", "smoke/#"),
    ]


def overloaded(weights: dict[str, dict[str, float]]) -> Scenario:
    """Twice as much as fits; everybody of a role wants every topic, by these weights."""
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


def test_plans_by_learnt_weights_are_worth_nearly_what_the_true_ones_give(at_200: Any) -> None:
    made, found = at_200[0], by_cell(at_200[1])
    phase = BAR.phases[0]
    true: dict[str, dict[str, float]] = {}
    fitted: dict[str, dict[str, float]] = {}
    for (role, when, topic), worth in made.worth.items():
        if when == phase:
            true.setdefault(role, {})[topic] = worth
            fitted.setdefault(role, {})[topic] = max(found[role, when, topic].worth, 0.01)
    worths = []
    for weights in (true, fitted):
        rows = plan_scenario(overloaded(weights)).table.to_prediction().subscriptions
        assert min(row.success_rate for row in rows) < 0.7
        worths.append(
            sum(
                utility_of(LogUtility(weight=true[row.subscriber][row.filter]), row.success_rate)
                for row in rows
            )
        )
    assert worths[1] >= 0.97 * worths[0]

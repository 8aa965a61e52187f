"""The index answers exactly as MQTT's matching rule does, one topic at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.wire.mqtt_names import check_filter, check_topic, matches
from firedex_models.topic_index import TopicIndex

LEVELS = ["", "a", "b", "aa", "$", "$a", "!"]
"""With '!' and '$', which sort before '/', so that sorting whole names would go wrong."""


def legal(name: str) -> bool:
    return name != ""


topics = st.lists(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join).filter(legal),
    unique=True,
    max_size=12,
)
filters = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from([*LEVELS, "+"]), max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(legal)


@settings(max_examples=400, deadline=None)
@given(names=topics, wanted=filters)
def test_matching_agrees_with_the_rule(names: list[str], wanted: str) -> None:
    check_filter(wanted)
    for name in names:
        check_topic(name)
    expected = [row for row, name in enumerate(names) if matches(wanted, name)]
    assert TopicIndex(names).matching(wanted).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(names=topics, wanted=st.lists(filters, max_size=6))
def test_matching_each_agrees_with_the_rule(names: list[str], wanted: list[str]) -> None:
    counts, found = TopicIndex(names).matching_each(wanted)
    expected = [[row for row, name in enumerate(names) if matches(f, name)] for f in wanted]
    assert counts.tolist() == [len(rows) for rows in expected]
    assert found.tolist() == [row for rows in expected for row in rows]


def test_positions_are_those_of_the_given_order() -> None:
    index = TopicIndex(["z/1", "a/1", "z/0"])
    assert index.matching("z/+").tolist() == [0, 2]
    assert index.matching("a/1").tolist() == [1]
    assert index.matching("#").tolist() == [0, 1, 2]


@pytest.mark.parametrize("wanted", ["a", "+", "#", "a/#"])
def test_no_topics_no_matches(wanted: str) -> None:
    assert TopicIndex([]).matching(wanted).tolist() == []


def test_positions_are_integers_even_when_there_are_none() -> None:
    counts, found = TopicIndex(["a"]).matching_each([])
    assert (counts.dtype, found.dtype) == (np.int64, np.int64)
    assert TopicIndex(["a"]).matching("b/+").dtype == np.int64


def test_a_filter_asked_for_twice_is_answered_twice() -> None:
    counts, found = TopicIndex(["a", "b"]).matching_each(["+", "a", "+"])
    assert counts.tolist() == [2, 1, 2]
    assert found.tolist() == [0, 1, 0, 0, 1]

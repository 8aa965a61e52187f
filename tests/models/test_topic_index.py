"""The topic index agrees with the matching rule of MQTT, applied to one topic at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.wire.mqtt_names import check_filter, check_topic, matches
from firedex_models.topic_index import TopicIndex

LEVELS = ["", "a", "b", "aa", "$", "$a", "!"]
"""Includes '!' and '$', which sort before '/': sorting whole names would give a wrong order."""


def is_not_empty(name: str) -> bool:
    return name != ""


topics = st.lists(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join).filter(is_not_empty),
    unique=True,
    max_size=12,
)
filters = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from([*LEVELS, "+"]), max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(is_not_empty)


@settings(max_examples=400, deadline=None)
@given(names=topics, filter_name=filters)
def test_matching_agrees_with_mqtt_rule(names: list[str], filter_name: str) -> None:
    check_filter(filter_name)
    for name in names:
        check_topic(name)
    expected = [row for row, name in enumerate(names) if matches(filter_name, name)]
    assert TopicIndex(names).matching(filter_name).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(names=topics, filter_names=st.lists(filters, max_size=6))
def test_matching_each_agrees_with_mqtt_rule(names: list[str], filter_names: list[str]) -> None:
    counts, found = TopicIndex(names).matching_each(filter_names)
    expected = [[row for row, name in enumerate(names) if matches(f, name)] for f in filter_names]
    assert counts.tolist() == [len(rows) for rows in expected]
    assert found.tolist() == [row for rows in expected for row in rows]


def test_matches_are_positions_in_the_given_topic_list() -> None:
    index = TopicIndex(["z/1", "a/1", "z/0"])
    assert index.matching("z/+").tolist() == [0, 2]
    assert index.matching("a/1").tolist() == [1]
    assert index.matching("#").tolist() == [0, 1, 2]


@pytest.mark.parametrize("filter_name", ["a", "+", "#", "a/#"])
def test_index_without_topics_has_no_matches(filter_name: str) -> None:
    assert TopicIndex([]).matching(filter_name).tolist() == []


def test_empty_result_has_integer_type() -> None:
    counts, found = TopicIndex(["a"]).matching_each([])
    assert (counts.dtype, found.dtype) == (np.int64, np.int64)
    assert TopicIndex(["a"]).matching("b/+").dtype == np.int64


def test_repeated_filter_has_repeated_result() -> None:
    counts, found = TopicIndex(["a", "b"]).matching_each(["+", "a", "+"])
    assert counts.tolist() == [2, 1, 2]
    assert found.tolist() == [0, 1, 0, 0, 1]

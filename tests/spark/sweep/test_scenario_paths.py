"""Paths to values in a scenario."""

from dataclasses import replace

import pytest

from firedex.wire import Topic
from firedex_spark.errors import InvalidGrid
from firedex_spark.sweep.scenario_paths import join_path, with_values
from tests.spark.simulated_deliveries import four_classes

ODD = ["two words", "a.b/c.d", "räume/küche", 'a"b', "*", '"', "火", " ", 'all"."of.it *']


@pytest.mark.parametrize("name", ODD)
def test_topic_of_any_name_is_found(name: str) -> None:
    scenario = four_classes()
    scenario = replace(scenario, topics=(*scenario.topics, Topic(name=name, event_bytes=51)))
    found = with_values(scenario, {join_path("topics", name, "event_bytes"): 70})
    assert [topic.event_bytes for topic in found.topics] == [51] * 4 + [70]


def test_star_selects_all_elements() -> None:
    assert join_path("topics", "smoke/1", "event_bytes") == "topics.smoke/1.event_bytes"
    found = with_values(four_classes(), {"topics.*.event_bytes": 70})
    assert {topic.event_bytes for topic in found.topics} == {70}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("network.switches.cellar.error_rate", "unknown name 'cellar'; known: lan, core"),
        ("networks.switches", "unknown name 'networks'; known: name"),
        ("network.switches.core", "selects an element, not one of its values"),
        ("network.*.core", r"\* selects elements of a list"),
        ("name.of.it", "a value has no key"),
        ("network..switches", "is not a valid path"),
        ("", "is not a valid path"),
        ('topics."open', "is not a valid path"),
        ("network.broker.colour", "colour"),
    ],
)
def test_invalid_path_is_rejected_with_the_reason(path: str, message: str) -> None:
    with pytest.raises(InvalidGrid, match=message):
        with_values(four_classes(), {path: 1})


def test_invalid_value_is_rejected_with_its_name() -> None:
    with pytest.raises(InvalidGrid, match="error_rate"):
        with_values(four_classes(), {"network.switches.*.error_rate": 2.0})

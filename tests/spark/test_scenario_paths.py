"""Paths to the values of a scenario, whatever its topics are called."""

from dataclasses import replace

import pytest
from simulated_deliveries import four_classes

from firedex.wire import Topic
from firedex_spark.errors import BadGrid
from firedex_spark.scenario_paths import changed, path_of

ODD = ["two words", "a.b/c.d", "räume/küche", 'a"b', "*", '"', "火", " ", 'all"."of.it *']


@pytest.mark.parametrize("name", ODD)
def test_a_topic_of_any_name_is_found(name: str) -> None:
    scenario = four_classes()
    scenario = replace(scenario, topics=(*scenario.topics, Topic(name=name, event_bytes=51)))
    found = changed(scenario, {path_of("topics", name, "event_bytes"): 70})
    assert [topic.event_bytes for topic in found.topics] == [51] * 4 + [70]


def test_plain_names_need_no_quotes_and_a_star_is_all() -> None:
    assert path_of("topics", "smoke/1", "event_bytes") == "topics.smoke/1.event_bytes"
    found = changed(four_classes(), {"topics.*.event_bytes": 70})
    assert {topic.event_bytes for topic in found.topics} == {70}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("network.switches.cellar.error_rate", "there is no 'cellar', but lan, core"),
        ("networks.switches", "there is no 'networks', but name"),
        ("network.switches.core", "names an element, not one of its values"),
        ("network.*.core", r"\* stands for the elements of a list"),
        ("name.of.it", "there is nothing below it"),
        ("network..switches", "is no path"),
        ("", "is no path"),
        ('topics."open', "is no path"),
        ("network.broker.colour", "colour"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, said: str) -> None:
    with pytest.raises(BadGrid, match=said):
        changed(four_classes(), {path: 1})


def test_a_value_that_no_scenario_may_have_is_named() -> None:
    with pytest.raises(BadGrid, match="error_rate"):
        changed(four_classes(), {"network.switches.*.error_rate": 2.0})

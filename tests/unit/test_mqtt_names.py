"""MQTT 5 §4.7: which names are legal, and which filter matches which topic."""

import pytest

from firedex.wire.mqtt_names import check_filter, check_topic, has_wildcard, matches


@pytest.mark.parametrize(
    ("filter_name", "topic"),
    [
        ("a", "a"),
        ("a/b/c", "a/b/c"),
        ("sport/tennis/player1/#", "sport/tennis/player1"),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
        ("sport/#", "sport"),
        ("sport/#", "sport/"),
        ("#", "a"),
        ("#", "a/b/c"),
        ("#", "/"),
        ("#", "/a"),
        ("+", "a"),
        ("+/b", "a/b"),
        ("a/+", "a/b"),
        ("a/+/c", "a/b/c"),
        ("+/+/+", "a/b/c"),
        ("+/b/#", "a/b/c/d"),
        ("+/b/#", "a/b"),
        ("sport/+", "sport/"),
        ("+/+", "/finance"),
        ("/+", "/finance"),
        ("/a", "/a"),
        ("a//b", "a//b"),
        ("a/+/b", "a//b"),
        ("a/", "a/"),
        ("a/#", "a//b"),
        ("+/", "a/"),
        ("$SYS/#", "$SYS/"),
        ("$SYS/#", "$SYS"),
        ("$SYS/monitor/+", "$SYS/monitor/Clients"),
        ("$SYS/#", "$SYS/monitor/Clients"),
        ("a/+", "a/$b"),
        ("a/#", "a/$b"),
        ("ACCOUNTS", "ACCOUNTS"),
        ("a b/+", "a b/c d"),
    ],
)
def test_matches(filter_name: str, topic: str) -> None:
    assert matches(check_filter(filter_name), check_topic(topic))


@pytest.mark.parametrize(
    ("filter_name", "topic"),
    [
        ("a", "b"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("a", "A"),
        ("a", "/a"),
        ("/a", "a"),
        ("a", "a/"),
        ("a/", "a"),
        ("a/b", "a//b"),
        ("a//b", "a/b"),
        ("+", "/finance"),
        ("+", "a/b"),
        ("+", "/"),
        ("sport/+", "sport"),
        ("sport/tennis/+", "sport/tennis/player1/ranking"),
        ("+/b", "a/c"),
        ("a/+/c", "a/b/d"),
        ("a/+/c", "a/c"),
        ("a/b/#", "a"),
        ("a/b/#", "a/bc"),
        ("a/#", "ab"),
        ("#", "$SYS/monitor"),
        ("#", "$SYS"),
        ("+", "$SYS"),
        ("+/monitor/Clients", "$SYS/monitor/Clients"),
        ("+/#", "$SYS/monitor"),
    ],
)
def test_does_not_match(filter_name: str, topic: str) -> None:
    assert not matches(check_filter(filter_name), check_topic(topic))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "at least one character"),
        ("a\0b", "null"),
        ("\ud800", "surrogate"),
        ("x" * 65_536, "65535 bytes"),
        ("é" * 32_768, "65535 bytes"),
    ],
)
def test_neither_topics_nor_filters_may_be_such_text(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_topic(name)
    with pytest.raises(ValueError, match=why):
        check_filter(name)


@pytest.mark.parametrize("name", ["x" * 65_535, "é" * 32_767, "/", "//", " ", "$SYS/a", "a/$share"])
def test_any_other_text_is_a_topic_and_a_filter(name: str) -> None:
    assert check_topic(name) == name
    assert check_filter(name) == name
    assert matches(name, name)


@pytest.mark.parametrize("name", ["+", "#", "a/+", "a/#", "a+b", "a#"])
def test_a_topic_has_no_wildcards(name: str) -> None:
    with pytest.raises(ValueError, match="wildcard"):
        check_topic(name)


@pytest.mark.parametrize("name", ["#/a", "a/#/b", "a#", "a/b#", "#a", "##", "a/##", "+#", "#/"])
def test_a_hash_is_the_whole_last_level(name: str) -> None:
    with pytest.raises(ValueError, match="'#' must be the whole of the last level"):
        check_filter(name)


@pytest.mark.parametrize("name", ["a+", "+a", "sport+", "a/b+/c", "++", "a/++/b"])
def test_a_plus_is_a_whole_level(name: str) -> None:
    with pytest.raises(ValueError, match=r"'\+' must be a whole level"):
        check_filter(name)


@pytest.mark.parametrize("name", ["$share", "$share/group/a", "$share/group/#"])
def test_shared_subscriptions_are_refused_with_advice(name: str) -> None:
    with pytest.raises(ValueError, match="without '\\$share/<group>/'"):
        check_filter(name)


def test_a_name_that_only_begins_like_a_shared_subscription_is_fine() -> None:
    assert check_filter("$shared/a") == "$shared/a"


@pytest.mark.parametrize(
    ("name", "wild"), [("a/b", False), ("+", True), ("a/#", True), ("$a", False)]
)
def test_has_wildcard(name: str, wild: bool) -> None:
    assert has_wildcard(name) is wild

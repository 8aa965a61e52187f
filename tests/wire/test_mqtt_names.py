"""Validation of topic names and filters, and matching (MQTT 5 §4.7)."""

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
def test_filter_matches_topic(filter_name: str, topic: str) -> None:
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
def test_filter_does_not_match_topic(filter_name: str, topic: str) -> None:
    assert not matches(check_filter(filter_name), check_topic(topic))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "at least one character"),
        ("a\0b", "null"),
        ("\ud800", "surrogate"),
        ("x" * 65_536, "65535 bytes"),
        ("é" * 32_768, "65535 bytes"),
    ],
)
def test_invalid_text_is_rejected_as_topic_and_filter(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_topic(name)
    with pytest.raises(ValueError, match=message):
        check_filter(name)


@pytest.mark.parametrize("name", ["x" * 65_535, "é" * 32_767, "/", "//", " ", "$SYS/a", "a/$share"])
def test_valid_text_is_accepted_as_topic_and_filter(name: str) -> None:
    assert check_topic(name) == name
    assert check_filter(name) == name
    assert matches(name, name)


@pytest.mark.parametrize("name", ["+", "#", "a/+", "a/#", "a+b", "a#"])
def test_topic_with_wildcard_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="wildcard"):
        check_topic(name)


@pytest.mark.parametrize("name", ["#/a", "a/#/b", "a#", "a/b#", "#a", "##", "a/##", "+#", "#/"])
def test_hash_must_be_the_complete_last_level(name: str) -> None:
    with pytest.raises(ValueError, match="'#' must be the complete last level"):
        check_filter(name)


@pytest.mark.parametrize("name", ["a+", "+a", "sport+", "a/b+/c", "++", "a/++/b"])
def test_plus_must_be_a_complete_level(name: str) -> None:
    with pytest.raises(ValueError, match=r"'\+' must be a complete level"):
        check_filter(name)


@pytest.mark.parametrize("name", ["$share", "$share/group/a", "$share/group/#"])
def test_shared_subscription_is_rejected_with_advice(name: str) -> None:
    with pytest.raises(ValueError, match="without '\\$share/<group>/'"):
        check_filter(name)


def test_filter_with_prefix_of_shared_subscription_is_accepted() -> None:
    assert check_filter("$shared/a") == "$shared/a"


@pytest.mark.parametrize(
    ("name", "expected"), [("a/b", False), ("+", True), ("a/#", True), ("$a", False)]
)
def test_has_wildcard(name: str, expected: bool) -> None:
    assert has_wildcard(name) is expected

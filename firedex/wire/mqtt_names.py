"""MQTT topic names and topic filters: what is legal, and what matches what (MQTT 5, §4.7)."""

from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field

__all__ = ["FilterName", "TopicName", "check_filter", "check_topic", "has_wildcard", "matches"]

LONGEST_NAME_BYTES = 65_535
KNOWN_NAMES = 16_384
"""The same few names are in all that is said of a site: checked once, they are known."""


def _check_text(name: str, what: str) -> None:
    if not name:
        raise ValueError(f"a topic {what} has at least one character")
    if "\0" in name:
        raise ValueError(f"a topic {what} must not contain the null character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a topic {what} must be valid Unicode, without surrogates") from None
    if size > LONGEST_NAME_BYTES:
        raise ValueError(f"a topic {what} has at most {LONGEST_NAME_BYTES} bytes")


@lru_cache(maxsize=KNOWN_NAMES)
def check_topic(name: str) -> str:
    """Return ``name`` if events can be published to it; raise ValueError saying why not."""
    _check_text(name, "name")
    if "+" in name or "#" in name:
        raise ValueError(
            f"{name!r} contains a wildcard; '+' and '#' belong in subscription filters only"
        )
    return name


@lru_cache(maxsize=KNOWN_NAMES)
def check_filter(name: str) -> str:
    """Return ``name`` if it can be subscribed to; raise ValueError saying why not."""
    _check_text(name, "filter")
    levels = name.split("/")
    if levels[0] == "$share":
        raise ValueError(
            f"{name!r} is a shared subscription; FireDeX plans for each subscriber by itself, "
            "so subscribe to the filter without '$share/<group>/'"
        )
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise ValueError(f"{name!r}: '#' must be the whole of the last level, as in 'smoke/#'")
        if "+" in level and level != "+":
            raise ValueError(f"{name!r}: '+' must be a whole level, as in 'smoke/+/floor'")
    return name


def has_wildcard(filter_name: str) -> bool:
    """Say whether a valid filter may match more than the one topic of its own name."""
    return "+" in filter_name or "#" in filter_name


def matches(filter_name: str, topic: str) -> bool:
    """Say whether a valid filter matches a valid topic, by MQTT's rules exactly.

    ``#`` also matches its parent level (``smoke/#`` matches ``smoke``), and a filter that begins
    with a wildcard never matches a topic that begins with ``$``.
    """
    if topic.startswith("$") and filter_name[0] in "+#":
        return False
    filter_levels = filter_name.split("/")
    topic_levels = topic.split("/")
    for position, level in enumerate(filter_levels):
        if level == "#":
            return True
        if position == len(topic_levels) or level not in ("+", topic_levels[position]):
            return False
    return len(filter_levels) == len(topic_levels)


TopicName = Annotated[str, Field(strict=True), AfterValidator(check_topic)]
FilterName = Annotated[str, Field(strict=True), AfterValidator(check_filter)]

"""MQTT topic names and topic filters: validation and matching (MQTT 5, §4.7)."""

from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field

__all__ = ["FilterName", "TopicName", "check_filter", "check_topic", "has_wildcard", "matches"]

MAX_NAME_BYTES = 65_535
CACHE_SIZE = 16_384
"""Size of the caches: the same few names occur in most messages of a site."""


def _check_text(name: str, what: str) -> None:
    if not name:
        raise ValueError(f"a topic {what} must have at least one character")
    if "\0" in name:
        raise ValueError(f"a topic {what} must not contain the null character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a topic {what} must be valid Unicode, without surrogates") from None
    if size > MAX_NAME_BYTES:
        raise ValueError(f"a topic {what} must have at most {MAX_NAME_BYTES} bytes")


@lru_cache(maxsize=CACHE_SIZE)
def check_topic(name: str) -> str:
    """Return ``name`` if it is a valid topic name; otherwise raise ValueError with the reason."""
    _check_text(name, "name")
    if "+" in name or "#" in name:
        raise ValueError(
            f"{name!r} contains a wildcard; '+' and '#' are allowed in subscription filters only"
        )
    return name


@lru_cache(maxsize=CACHE_SIZE)
def check_filter(name: str) -> str:
    """Return ``name`` if it is a valid topic filter; otherwise raise ValueError with the reason."""
    _check_text(name, "filter")
    levels = name.split("/")
    if levels[0] == "$share":
        raise ValueError(
            f"{name!r} is a shared subscription, which FireDeX does not support; "
            "subscribe to the filter without '$share/<group>/'"
        )
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise ValueError(f"{name!r}: '#' must be the complete last level, as in 'smoke/#'")
        if "+" in level and level != "+":
            raise ValueError(f"{name!r}: '+' must be a complete level, as in 'smoke/+/floor'")
    return name


def has_wildcard(filter_name: str) -> bool:
    """Return whether a valid filter contains a wildcard."""
    return "+" in filter_name or "#" in filter_name


def matches(filter_name: str, topic: str) -> bool:
    """Return whether a valid filter matches a valid topic, by the rules of MQTT.

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

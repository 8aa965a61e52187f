"""Figures and names as readable text. Pure."""

from collections.abc import Sequence

__all__ = [
    "filter_words",
    "loss_text",
    "names_text",
    "rate_text",
    "seconds_text",
    "share_text",
    "shorten",
]

NAMED_LOSSES = (
    (1 / 4, "a quarter of"),
    (1 / 3, "a third of"),
    (1 / 2, "half"),
    (2 / 3, "two thirds of"),
)
NAMED_WITHIN = 0.02
LONGEST_NAME = 60


def seconds_text(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def share_text(share: float) -> str:
    """Return a share in per cent."""
    return f"{share * 100:.0f} %"


def loss_text(lost: float) -> str:
    """Return a lost share as text that fits before "its"."""
    if lost >= 0.995:
        return "all"
    for share, name in NAMED_LOSSES:
        if abs(lost - share) <= NAMED_WITHIN:
            return name
    return f"{share_text(lost)} of"


def rate_text(per_second: float) -> str:
    """Return a rate in events per second."""
    number = f"{per_second:.0f}" if per_second >= 9.95 else f"{per_second:.2g}"
    return f"{number} {'event' if number == '1' else 'events'} per second"


def filter_words(name: str) -> str:
    """Return a topic filter as words: ``floor/7/smoke`` becomes floor 7 smoke.

    A filter with spaces is quoted, so that it cannot be mistaken for text of an alert.
    """
    if any(character.isspace() for character in name):
        return f'"{shorten(name)}"'
    words = {"+": "any", "#": "all"}
    return shorten(" ".join(words.get(level, level) for level in name.split("/") if level) or name)


def shorten(name: str) -> str:
    """Return a name shortened to a readable length, without control characters."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)


def names_text(names: Sequence[str]) -> str:
    """Return the first name and the number of others."""
    first, *others = dict.fromkeys(names)
    return f"{shorten(first)} and {len(others)} more" if others else shorten(first)

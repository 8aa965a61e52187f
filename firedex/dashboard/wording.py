"""Figures as people say them. Pure."""

from collections.abc import Sequence

__all__ = [
    "filter_words",
    "loss_text",
    "names_text",
    "rate_text",
    "seconds_text",
    "share_text",
    "short",
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
    """A duration, in the unit that suits it."""
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
    """A share in per cent."""
    return f"{share * 100:.0f} %"


def loss_text(lost: float) -> str:
    """How much of something is gone, to stand before 'its'."""
    if lost >= 0.995:
        return "all"
    for share, name in NAMED_LOSSES:
        if abs(lost - share) <= NAMED_WITHIN:
            return name
    return f"{share_text(lost)} of"


def rate_text(per_second: float) -> str:
    """Events a second."""
    number = f"{per_second:.0f}" if per_second >= 9.95 else f"{per_second:.2g}"
    return f"{number} {'event' if number == '1' else 'events'} a second"


def filter_words(name: str) -> str:
    """A topic filter as words: ``floor/7/smoke`` is floor 7 smoke.

    One that has words in it already is quoted, lest it speaks for us.
    """
    if any(character.isspace() for character in name):
        return f'"{short(name)}"'
    spoken = {"+": "any", "#": "all"}
    return short(" ".join(spoken.get(level, level) for level in name.split("/") if level) or name)


def short(name: str) -> str:
    """A name as far as it is readable: whoever chose it does not fill the page with it."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)


def names_text(names: Sequence[str]) -> str:
    """The first of them, and how many others there are."""
    first, *others = dict.fromkeys(names)
    return f"{short(first)} and {len(others)} more" if others else short(first)

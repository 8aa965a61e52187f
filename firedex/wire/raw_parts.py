"""Looking into data as it was given: mappings of a file, or values; right or wrong in itself."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["get", "items", "known"]


def get(item: Any, key: str, default: Any = None) -> Any:
    """A key of a mapping or a field of a value, whichever ``item`` is."""
    if isinstance(item, Mapping):
        return item.get(key, default)
    return getattr(item, "from_" if key == "from" else key, default)


def items(raw: Any, *keys: str) -> Iterator[tuple[int, Any]]:
    """The numbered entries of the list at ``keys``; none where there is no list."""
    here = raw
    for key in keys:
        here = get(here, key)
    if isinstance(here, list | tuple):
        yield from enumerate(here)


def known(names: Mapping[str, Any]) -> str:
    """For a message: the names that there are."""
    if not names:
        return "none is defined"
    shown = ", ".join(list(names)[:8])
    return f"known are {shown}{', …' if len(names) > 8 else ''}"

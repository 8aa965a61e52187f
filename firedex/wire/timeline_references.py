"""What a timeline says of the rest of its scenario: names that must exist, a possible order."""

from collections.abc import Iterator, Mapping
from typing import Any

from firedex.wire.errors import Path, Problem
from firedex.wire.raw_parts import get, items, known

__all__ = ["timeline_problems"]

PRESENCE = {"join": True, "leave": False}


def timeline_problems(
    raw: Any,
    *,
    switches: Mapping[str, Any],
    publishers: Mapping[str, Any],
    subscribers: Mapping[str, Any],
    phases: Mapping[str, Any],
) -> Iterator[Problem]:
    """Everything in ``raw``'s timeline that refers to nothing, or cannot happen when it is to."""
    kinds = {
        "subscriber": ("subscriber", subscribers),
        "publisher": ("publisher", publishers),
        "switch": ("switch", switches),
        "from": ("switch", switches),
        "to": ("switch", switches),
        "phase": ("phase", phases),
    }
    for index, event in items(raw, "timeline"):
        for key, (what, names) in kinds.items():
            name = get(event, key)
            if isinstance(name, str) and name not in names:
                message = f"unknown {what} {name!r}; {known(names)}"
                yield Problem(path=("timeline", index, key), message=message)
        yield from _surge_problems(index, event, publishers)
        yield from _link_problems(raw, index, event, switches)
    yield from _presence_problems(raw)


def _surge_problems(index: int, event: Any, publishers: Mapping[str, Any]) -> Iterator[Problem]:
    publisher, topic = get(event, "publisher"), get(event, "topic")
    if not isinstance(topic, str) or not isinstance(publisher, str) or publisher not in publishers:
        return
    published = {
        name: None
        for _, each in items(publishers[publisher], "publications")
        if isinstance(name := get(each, "topic"), str)
    }
    if topic not in published:
        message = f"{publisher!r} does not publish {topic!r}; {known(published)}"
        yield Problem(path=("timeline", index, "topic"), message=message)


def _link_problems(
    raw: Any, index: int, event: Any, switches: Mapping[str, Any]
) -> Iterator[Problem]:
    if get(event, "kind") != "link":
        return
    ends = {get(event, "from"), get(event, "to")}
    if not ends <= set(switches):
        return
    links = ({get(link, "from"), get(link, "to")} for _, link in items(raw, "network", "links"))
    if ends not in links:
        yield Problem(path=("timeline", index), message="there is no such link in 'network.links'")


def _presence_problems(raw: Any) -> Iterator[Problem]:
    """Nobody comes who is there, or goes who is not."""
    moves: list[tuple[float, int, str, bool]] = []
    for index, event in items(raw, "timeline"):
        at, who, comes = (
            get(event, "at_seconds"),
            get(event, "subscriber"),
            PRESENCE.get(str(get(event, "kind"))),
        )
        if comes is not None and isinstance(at, int | float) and isinstance(who, str):
            moves.append((at, index, who, comes))
    there: dict[str, bool] = {}
    for _, index, who, comes in sorted(moves):
        path: Path = ("timeline", index, "subscriber")
        if there.get(who, not comes) == comes:
            state = "is there already" if comes else "is not there"
            yield Problem(path=path, message=f"{who!r} {state} at that time")
        there[who] = comes

"""Checks across the parts of a scenario: names must exist, be unique, and agree.

The checks work on the data as given, valid or not, so that one run reports every mistake of a file.
Data of the wrong shape is skipped here, because the types report it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from firedex.wire.errors import Path, Problem
from firedex.wire.mqtt_names import check_filter, check_topic, has_wildcard
from firedex.wire.network import missing_path_reason, switches_on_path
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES, STAMP_BYTES

__all__ = ["reference_problems"]


def _get(item: Any, key: str, default: Any = None) -> Any:
    """Return a key of a mapping or a field of a value."""
    if isinstance(item, Mapping):
        return item.get(key, default)
    return getattr(item, "from_" if key == "from" else key, default)


def _items(raw: Any, *keys: str) -> Iterator[tuple[int, Any]]:
    """Yield the numbered entries of the list at ``keys``; nothing if there is no list."""
    here = raw
    for key in keys:
        here = _get(here, key)
    if isinstance(here, list | tuple):
        yield from enumerate(here)


def _known_names_text(names: Mapping[str, Any]) -> str:
    """Return the known names, for an error message."""
    if not names:
        return "none is defined"
    shown = ", ".join(list(names)[:8])
    return f"known are {shown}{', …' if len(names) > 8 else ''}"


NO_MANAGED_SWITCH = -1


def reference_problems(raw: Any) -> list[Problem]:
    """Return all unknown references, duplicates and contradictions in ``raw``."""
    if not isinstance(raw, Mapping):
        return []
    problems: list[Problem] = []
    switches = _collect_names(raw, ("network", "switches"), "id", problems)
    topics = {
        name: topic
        for name, topic in _collect_names(raw, ("topics",), "name", problems).items()
        if _is_valid(check_topic, name)
    }
    publishers = _collect_names(raw, ("publishers",), "id", problems)
    subscribers = _collect_names(raw, ("subscribers",), "id", problems)
    phases = _collect_names(raw, ("phases",), "phase", problems)
    if _get(_get(raw, "network"), "switches") in ([], ()):
        problems.append(Problem(path=("network", "switches"), message="needs at least one switch"))
    problems += _udp_size_problems(raw)
    problems += _switch_problems(raw, switches)
    problems += _topic_problems(raw, topics)
    problems += _subscription_problems(raw, topics)
    problems += _assignment_problems(raw, switches)
    problems += _timeline_problems(
        raw, switches=switches, publishers=publishers, subscribers=subscribers, phases=phases
    )
    return problems


def _broker_switch(raw: Any) -> str | None:
    switch = _get(_get(_get(raw, "network"), "broker"), "switch")
    return switch if isinstance(switch, str) else None


def _links(raw: Any) -> list[tuple[str, str]] | None:
    """Return the links as given, or None if one of them has the wrong shape."""
    links = [(_get(link, "from"), _get(link, "to")) for _, link in _items(raw, "network", "links")]
    return links if all(isinstance(end, str) for link in links for end in link) else None


def _collect_names(raw: Any, where: Path, key: str, problems: list[Problem]) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for index, item in _items(raw, *map(str, where)):
        name = _get(item, key)
        if not isinstance(name, str):
            continue
        if name in items:
            problems.append(
                Problem(path=(*where, index, key), message=f"{name!r} is already used above")
            )
        items.setdefault(name, item)
    return items


def _udp_size_problems(raw: Any) -> Iterator[Problem]:
    default = _get(raw, "transport", "udp")
    clients = [p for part in ("publishers", "subscribers") for _, p in _items(raw, part)]
    if not any((_get(client, "transport") or default) == "udp" for client in clients or [None]):
        return
    for index, topic in _items(raw, "topics"):
        size, stamped = _get(topic, "event_bytes"), _get(topic, "stamped")
        if stamped is None:
            stamped = _get(raw, "stamped_events", False)
        maximum = MAX_UDP_PAYLOAD_BYTES - (STAMP_BYTES["udp"] if stamped else 0)
        if isinstance(size, int) and size > maximum:
            yield Problem(
                path=("topics", index, "event_bytes"),
                message=f"{size} bytes do not fit in one UDP datagram; the maximum is {maximum}"
                f"{' with the event stamp' if stamped else ''}: "
                "make events smaller, or use 'transport: tcp' for all publishers and subscribers",
            )


def _switch_problems(raw: Any, switches: Mapping[str, Any]) -> Iterator[Problem]:
    references: list[tuple[Path, Any]] = []
    for part in ("publishers", "subscribers"):
        references += [((part, i, "switch"), _get(p, "switch")) for i, p in _items(raw, part)]
    for index, link in _items(raw, "network", "links"):
        references += [
            (("network", "links", index, end), _get(link, end)) for end in ("from", "to")
        ]
    references.append(
        (("network", "broker", "switch"), _get(_get(_get(raw, "network"), "broker"), "switch"))
    )
    unknown = False
    for path, name in references:
        if isinstance(name, str) and name not in switches:
            unknown = True
            yield Problem(
                path=path, message=f"unknown switch {name!r}; {_known_names_text(switches)}"
            )
    if not unknown:
        yield from _unreachable_problems(raw)


def _unreachable_problems(raw: Any) -> Iterator[Problem]:
    links, broker_switch = _links(raw), _broker_switch(raw)
    if links is None:
        return
    linked = {end for link in links for end in link}
    reported: set[str] = set()
    for part in ("publishers", "subscribers"):
        for index, client in _items(raw, part):
            switch = _get(client, "switch")
            if not isinstance(switch, str) or (part == "publishers" and switch not in linked):
                continue  # a publisher's switch without links is directly attached to the broker
            reason = missing_path_reason(links, broker_switch, switch)
            if reason and reason not in reported:
                reported.add(reason)
                yield Problem(path=(part, index, "switch"), message=reason)


def _topic_problems(raw: Any, topics: Mapping[str, Any]) -> Iterator[Problem]:
    references: list[tuple[Path, Any]] = []
    for index, publisher in _items(raw, "publishers"):
        seen: set[str] = set()
        for position, publication in _items(publisher, "publications"):
            path: Path = ("publishers", index, "publications", position, "topic")
            name = _get(publication, "topic")
            references.append((path, name))
            if isinstance(name, str) and name in seen:
                yield Problem(
                    path=path,
                    message=f"{name!r} is already published above; give one entry with the sum "
                    "of the rates",
                )
            if isinstance(name, str):
                seen.add(name)
    for index, item in _items(_get(_get(raw, "network"), "broker"), "forwarded"):
        references.append((("network", "broker", "forwarded", index, "topic"), _get(item, "topic")))
    for path, name in references:
        if isinstance(name, str) and name not in topics and _is_valid(check_topic, name):
            yield Problem(path=path, message=f"unknown topic {name!r}; {_known_names_text(topics)}")


def _subscription_problems(raw: Any, topics: Mapping[str, Any]) -> Iterator[Problem]:
    for index, subscriber in _items(raw, "subscribers"):
        seen: set[str] = set()
        for position, subscription in _items(subscriber, "subscriptions"):
            name = _get(subscription, "filter")
            path: Path = ("subscribers", index, "subscriptions", position, "filter")
            if not isinstance(name, str) or not _is_valid(check_filter, name):
                continue
            if name in seen:
                yield Problem(path=path, message=f"{name!r} is already subscribed to above")
            seen.add(name)
            if not has_wildcard(name) and name not in topics:
                yield Problem(
                    path=path, message=f"unknown topic {name!r}; {_known_names_text(topics)}"
                )


def _assignment_problems(raw: Any, switches: Mapping[str, Any]) -> Iterator[Problem]:
    if _get(raw, "assignment") is None:
        return
    subscriptions, classes = _subscriptions_and_classes(raw, switches)
    seen: set[tuple[str, str]] = set()
    for index, entry in _items(raw, "assignment"):
        subscriber, name = _get(entry, "subscriber"), _get(entry, "filter")
        if not isinstance(subscriber, str) or not isinstance(name, str):
            continue
        message = None
        if subscriber not in classes:
            where = "subscriber"
            message = f"unknown subscriber {subscriber!r}; {_known_names_text(classes)}"
        elif (subscriber, name) not in subscriptions:
            where = "filter"
            message = f"{subscriber!r} has no subscription to {name!r}"
        elif (subscriber, name) in seen:
            where = "filter"
            message = f"{name!r} of {subscriber!r} is already assigned above"
        if message:
            yield Problem(path=("assignment", index, where), message=message)
        seen.add((subscriber, name))
    for subscriber, name in sorted(subscriptions - seen):
        yield Problem(
            path=("assignment",),
            message=f"{name!r} of {subscriber!r} is not assigned; "
            "assign every subscription, or remove 'assignment' to plan",
        )
    yield from _flow_problems(raw, classes)


def _flow_problems(raw: Any, classes: Mapping[str, int]) -> Iterator[Problem]:
    """Yield classes that do not exist, and flows with contradictory entries."""
    acknowledged = {
        (_get(subscriber, "id"), _get(subscription, "filter"))
        for _, subscriber in _items(raw, "subscribers")
        for _, subscription in _items(subscriber, "subscriptions")
        if _get(subscription, "qos", 0) in (1, 2)
        and isinstance(_get(subscriber, "id"), str)
        and isinstance(_get(subscription, "filter"), str)
    }
    default = _get(raw, "transport", "udp")
    over_tcp = {
        _get(subscriber, "id")
        for _, subscriber in _items(raw, "subscribers")
        if (_get(subscriber, "transport") or default) == "tcp"
        and isinstance(_get(subscriber, "id"), str)
    }
    flows: dict[tuple[Any, Any], tuple[int, tuple[Any, ...]]] = {}
    for index, entry in _items(raw, "assignment"):
        subscriber, flow = _get(entry, "subscriber"), _get(entry, "flow")
        priority = _get(entry, "priority")
        offered = classes.get(subscriber, 0) if isinstance(subscriber, str) else 0
        if isinstance(priority, int) and priority >= offered > 0:
            yield Problem(
                path=("assignment", index, "priority"),
                message=f"class {priority} does not exist: the switches on the path to "
                f"{subscriber!r} have {offered} classes, numbered 0 to {offered - 1}",
            )
        if not isinstance(flow, int) or not isinstance(subscriber, str):
            continue
        drop_rate = _get(entry, "drop_rate", 0.0)
        name = _get(entry, "filter")
        if drop_rate != 0 and isinstance(name, str) and (subscriber, name) in acknowledged:
            yield Problem(
                path=("assignment", index, "drop_rate"),
                message=f"{name!r} has QoS 1 or 2, which is never dropped; set it to 0",
            )
        where = _get(entry, "enforced_at", "gateway")
        if where == "meter" and subscriber in over_tcp:
            yield Problem(
                path=("assignment", index, "enforced_at"),
                message="a meter cannot drop events over TCP, which retransmits packets; "
                "use 'gateway'",
            )
        elif where == "meter" and classes.get(subscriber) == NO_MANAGED_SWITCH:
            yield Problem(
                path=("assignment", index, "enforced_at"),
                message=f"no switch on the path to {subscriber!r} is managed; use 'gateway'",
            )
        settings = (priority, drop_rate, where)
        first, first_settings = flows.setdefault((subscriber, flow), (index, settings))
        if settings != first_settings:
            yield Problem(
                path=("assignment", index),
                message=f"flow {flow} of {subscriber!r} must have one priority, drop rate and "
                f"enforcement point; assignment[{first}] has others",
            )


def _subscriptions_and_classes(
    raw: Any, switches: Mapping[str, Any]
) -> tuple[set[tuple[str, str]], dict[str, int]]:
    """Return every (subscriber, filter), and the fewest classes on each subscriber's path."""
    links, broker_switch = _links(raw), _broker_switch(raw)
    subscriptions: set[tuple[str, str]] = set()
    classes: dict[str, int] = {}
    for _, subscriber in _items(raw, "subscribers"):
        name, switch = _get(subscriber, "id"), _get(subscriber, "switch")
        if not isinstance(name, str):
            continue
        classes[name] = 0
        has_switch = links is not None and isinstance(switch, str)
        if (
            links is not None
            and has_switch
            and not missing_path_reason(links, broker_switch, switch)
        ):
            offered = [
                _get(switches[on_path], "priorities", 8)
                for on_path in switches_on_path(links, broker_switch, switch)
                if on_path in switches and _get(switches[on_path], "managed", True)
            ]
            if not offered:
                classes[name] = NO_MANAGED_SWITCH
            elif all(isinstance(count, int) for count in offered):
                classes[name] = min(offered)
        subscriptions |= {
            (name, _get(subscription, "filter"))
            for _, subscription in _items(subscriber, "subscriptions")
            if isinstance(_get(subscription, "filter"), str)
        }
    return subscriptions, classes


PRESENCE = {"join": True, "leave": False}


def _timeline_problems(
    raw: Any,
    *,
    switches: Mapping[str, Any],
    publishers: Mapping[str, Any],
    subscribers: Mapping[str, Any],
    phases: Mapping[str, Any],
) -> Iterator[Problem]:
    """Yield unknown references and impossible events in the timeline of ``raw``."""
    kinds = {
        "subscriber": ("subscriber", subscribers),
        "publisher": ("publisher", publishers),
        "switch": ("switch", switches),
        "from": ("switch", switches),
        "to": ("switch", switches),
        "phase": ("phase", phases),
    }
    for index, event in _items(raw, "timeline"):
        for key, (what, names) in kinds.items():
            name = _get(event, key)
            if isinstance(name, str) and name not in names:
                message = f"unknown {what} {name!r}; {_known_names_text(names)}"
                yield Problem(path=("timeline", index, key), message=message)
        yield from _surge_problems(index, event, publishers)
        yield from _link_problems(raw, index, event, switches)
    yield from _presence_problems(raw)


def _surge_problems(index: int, event: Any, publishers: Mapping[str, Any]) -> Iterator[Problem]:
    publisher, topic = _get(event, "publisher"), _get(event, "topic")
    if not isinstance(topic, str) or not isinstance(publisher, str) or publisher not in publishers:
        return
    published = {
        name: None
        for _, each in _items(publishers[publisher], "publications")
        if isinstance(name := _get(each, "topic"), str)
    }
    if topic not in published:
        message = f"{publisher!r} does not publish {topic!r}; {_known_names_text(published)}"
        yield Problem(path=("timeline", index, "topic"), message=message)


def _link_problems(
    raw: Any, index: int, event: Any, switches: Mapping[str, Any]
) -> Iterator[Problem]:
    if _get(event, "kind") != "link":
        return
    ends = {_get(event, "from"), _get(event, "to")}
    if not ends <= set(switches):
        return
    links = ({_get(link, "from"), _get(link, "to")} for _, link in _items(raw, "network", "links"))
    if ends not in links:
        yield Problem(path=("timeline", index), message="this link is not in 'network.links'")


def _presence_problems(raw: Any) -> Iterator[Problem]:
    """Yield subscribers that join while present, or leave while absent."""
    moves: list[tuple[float, int, str, bool]] = []
    for index, event in _items(raw, "timeline"):
        at, subscriber, joins = (
            _get(event, "at_seconds"),
            _get(event, "subscriber"),
            PRESENCE.get(str(_get(event, "kind"))),
        )
        if joins is not None and isinstance(at, int | float) and isinstance(subscriber, str):
            moves.append((at, index, subscriber, joins))
    is_present: dict[str, bool] = {}
    for _, index, subscriber, joins in sorted(moves):
        path: Path = ("timeline", index, "subscriber")
        if is_present.get(subscriber, not joins) == joins:
            state = "is already present" if joins else "is not present"
            yield Problem(path=path, message=f"{subscriber!r} {state} at that time")
        is_present[subscriber] = joins


def _is_valid(check: Any, name: str) -> bool:
    try:
        check(name)
    except ValueError:
        return False
    return True

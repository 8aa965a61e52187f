"""What a scenario's parts say of each other: names that must exist, be single, and agree.

Works on the data as given, right or wrong in itself, so that a file's every mistake is found in
one go; whatever has the wrong shape is passed over here, because the types refuse it by themselves.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from firedex.wire.errors import Path, Problem
from firedex.wire.mqtt_names import check_filter, check_topic, has_wildcard
from firedex.wire.network_paths import path_problem, switches_on_path
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES, STAMP_BYTES
from firedex.wire.raw_parts import get, items, known
from firedex.wire.timeline_references import timeline_problems

__all__ = ["reference_problems"]

NONE_MANAGED = -1


def reference_problems(raw: Any) -> list[Problem]:
    """Everything in ``raw`` that refers to nothing, is there twice, or contradicts itself."""
    if not isinstance(raw, Mapping):
        return []
    problems: list[Problem] = []
    switches = _named(raw, ("network", "switches"), "id", problems)
    topics = {
        name: topic
        for name, topic in _named(raw, ("topics",), "name", problems).items()
        if _legal(check_topic, name)
    }
    publishers = _named(raw, ("publishers",), "id", problems)
    subscribers = _named(raw, ("subscribers",), "id", problems)
    phases = _named(raw, ("phases",), "phase", problems)
    if get(get(raw, "network"), "switches") in ([], ()):
        problems.append(Problem(path=("network", "switches"), message="needs at least one switch"))
    problems += _too_large_for_udp(raw)
    problems += _unknown_switches(raw, switches)
    problems += _unknown_topics(raw, topics)
    problems += _subscription_problems(raw, topics)
    problems += _assignment_problems(raw, switches)
    problems += timeline_problems(
        raw, switches=switches, publishers=publishers, subscribers=subscribers, phases=phases
    )
    return problems


def _broker_switch(raw: Any) -> str | None:
    switch = get(get(get(raw, "network"), "broker"), "switch")
    return switch if isinstance(switch, str) else None


def _links(raw: Any) -> list[tuple[str, str]] | None:
    """The links as given, or None where one of them has the wrong shape."""
    links = [(get(link, "from"), get(link, "to")) for _, link in items(raw, "network", "links")]
    return links if all(isinstance(end, str) for link in links for end in link) else None


def _named(raw: Any, where: Path, key: str, problems: list[Problem]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, item in items(raw, *map(str, where)):
        name = get(item, key)
        if not isinstance(name, str):
            continue
        if name in found:
            problems.append(
                Problem(path=(*where, index, key), message=f"{name!r} is already taken above")
            )
        found.setdefault(name, item)
    return found


def _too_large_for_udp(raw: Any) -> Iterator[Problem]:
    default = get(raw, "transport", "udp")
    parties = [p for part in ("publishers", "subscribers") for _, p in items(raw, part)]
    if not any((get(party, "transport") or default) == "udp" for party in parties or [None]):
        return
    for index, topic in items(raw, "topics"):
        size, stamped = get(topic, "event_bytes"), get(topic, "stamped")
        if stamped is None:
            stamped = get(raw, "stamped_events", False)
        largest = LARGEST_UDP_PAYLOAD_BYTES - (STAMP_BYTES["udp"] if stamped else 0)
        if isinstance(size, int) and size > largest:
            yield Problem(
                path=("topics", index, "event_bytes"),
                message=f"{size} bytes do not fit one UDP datagram; at most {largest} do"
                f"{' beside the event stamp' if stamped else ''}: "
                "make events smaller, or use 'transport: tcp' throughout",
            )


def _unknown_switches(raw: Any, switches: Mapping[str, Any]) -> Iterator[Problem]:
    references: list[tuple[Path, Any]] = []
    for part in ("publishers", "subscribers"):
        references += [((part, i, "switch"), get(p, "switch")) for i, p in items(raw, part)]
    for index, link in items(raw, "network", "links"):
        references += [(("network", "links", index, end), get(link, end)) for end in ("from", "to")]
    references.append(
        (("network", "broker", "switch"), get(get(get(raw, "network"), "broker"), "switch"))
    )
    unknown = False
    for path, name in references:
        if isinstance(name, str) and name not in switches:
            unknown = True
            yield Problem(path=path, message=f"unknown switch {name!r}; {known(switches)}")
    if not unknown:
        yield from _unreachable(raw)


def _unreachable(raw: Any) -> Iterator[Problem]:
    links, at = _links(raw), _broker_switch(raw)
    if links is None:
        return
    linked = {end for link in links for end in link}
    said: set[str] = set()
    for part in ("publishers", "subscribers"):
        for index, party in items(raw, part):
            switch = get(party, "switch")
            if not isinstance(switch, str) or (part == "publishers" and switch not in linked):
                continue  # a publishers' switch without links has the broker right behind it
            reason = path_problem(links, at, switch)
            if reason and reason not in said:
                said.add(reason)
                yield Problem(path=(part, index, "switch"), message=reason)


def _unknown_topics(raw: Any, topics: Mapping[str, Any]) -> Iterator[Problem]:
    references: list[tuple[Path, Any]] = []
    for index, publisher in items(raw, "publishers"):
        seen: set[str] = set()
        for position, publication in items(publisher, "publications"):
            path: Path = ("publishers", index, "publications", position, "topic")
            name = get(publication, "topic")
            references.append((path, name))
            if isinstance(name, str) and name in seen:
                yield Problem(
                    path=path, message=f"{name!r} is already published above; add the rates"
                )
            if isinstance(name, str):
                seen.add(name)
    for index, item in items(get(get(raw, "network"), "broker"), "forwarded"):
        references.append((("network", "broker", "forwarded", index, "topic"), get(item, "topic")))
    for path, name in references:
        if isinstance(name, str) and name not in topics and _legal(check_topic, name):
            yield Problem(path=path, message=f"unknown topic {name!r}; {known(topics)}")


def _subscription_problems(raw: Any, topics: Mapping[str, Any]) -> Iterator[Problem]:
    for index, subscriber in items(raw, "subscribers"):
        seen: set[str] = set()
        for position, subscription in items(subscriber, "subscriptions"):
            name = get(subscription, "filter")
            path: Path = ("subscribers", index, "subscriptions", position, "filter")
            if not isinstance(name, str) or not _legal(check_filter, name):
                continue
            if name in seen:
                yield Problem(path=path, message=f"{name!r} is already subscribed to above")
            seen.add(name)
            if not has_wildcard(name) and name not in topics:
                yield Problem(path=path, message=f"unknown topic {name!r}; {known(topics)}")


def _assignment_problems(raw: Any, switches: Mapping[str, Any]) -> Iterator[Problem]:
    if get(raw, "assignment") is None:
        return
    wanted, classes = _subscribed(raw, switches)
    seen: set[tuple[str, str]] = set()
    for index, entry in items(raw, "assignment"):
        subscriber, name = get(entry, "subscriber"), get(entry, "filter")
        if not isinstance(subscriber, str) or not isinstance(name, str):
            continue
        message = None
        if subscriber not in classes:
            where = "subscriber"
            message = f"unknown subscriber {subscriber!r}; {known(classes)}"
        elif (subscriber, name) not in wanted:
            where = "filter"
            message = f"{subscriber!r} has no subscription to {name!r}"
        elif (subscriber, name) in seen:
            where = "filter"
            message = f"{name!r} of {subscriber!r} is already assigned above"
        if message:
            yield Problem(path=("assignment", index, where), message=message)
        seen.add((subscriber, name))
    for subscriber, name in sorted(wanted - seen):
        yield Problem(
            path=("assignment",),
            message=f"nothing is assigned to {name!r} of {subscriber!r}; "
            "assign every subscription, or leave 'assignment' out to plan",
        )
    yield from _flow_problems(raw, classes)


def _flow_problems(raw: Any, classes: Mapping[str, int]) -> Iterator[Problem]:
    """Classes that are not there, and flows that are said to be two things at once."""
    acknowledged = {
        (get(who, "id"), get(subscription, "filter"))
        for _, who in items(raw, "subscribers")
        for _, subscription in items(who, "subscriptions")
        if get(subscription, "qos", 0) in (1, 2)
        and isinstance(get(who, "id"), str)
        and isinstance(get(subscription, "filter"), str)
    }
    default = get(raw, "transport", "udp")
    over_tcp = {
        get(who, "id")
        for _, who in items(raw, "subscribers")
        if (get(who, "transport") or default) == "tcp" and isinstance(get(who, "id"), str)
    }
    flows: dict[tuple[Any, Any], tuple[int, tuple[Any, ...]]] = {}
    for index, entry in items(raw, "assignment"):
        subscriber, flow = get(entry, "subscriber"), get(entry, "flow")
        priority = get(entry, "priority")
        offered = classes.get(subscriber, 0) if isinstance(subscriber, str) else 0
        if isinstance(priority, int) and priority >= offered > 0:
            yield Problem(
                path=("assignment", index, "priority"),
                message=f"{priority} is not a class here: the switches on the way to "
                f"{subscriber!r} offer {offered}, numbered 0 to {offered - 1}",
            )
        if not isinstance(flow, int) or not isinstance(subscriber, str):
            continue
        drop_rate = get(entry, "drop_rate", 0.0)
        name = get(entry, "filter")
        if drop_rate != 0 and isinstance(name, str) and (subscriber, name) in acknowledged:
            yield Problem(
                path=("assignment", index, "drop_rate"),
                message=f"{name!r} has QoS 1 or 2, which is never dropped; give 0",
            )
        where = get(entry, "enforced_at", "gateway")
        if where == "meter" and subscriber in over_tcp:
            yield Problem(
                path=("assignment", index, "enforced_at"),
                message="over TCP a dropped packet is not a dropped event; use 'gateway'",
            )
        elif where == "meter" and classes.get(subscriber) == NONE_MANAGED:
            yield Problem(
                path=("assignment", index, "enforced_at"),
                message=f"no switch on the way to {subscriber!r} is managed; use 'gateway'",
            )
        said = (priority, drop_rate, where)
        first, before = flows.setdefault((subscriber, flow), (index, said))
        if said != before:
            yield Problem(
                path=("assignment", index),
                message=f"flow {flow} of {subscriber!r} has one priority, drop rate and place "
                f"of enforcement; assignment[{first}] says otherwise",
            )


def _subscribed(
    raw: Any, switches: Mapping[str, Any]
) -> tuple[set[tuple[str, str]], dict[str, int]]:
    """Every (subscriber, filter), and the fewest classes on the way to each subscriber."""
    links, at = _links(raw), _broker_switch(raw)
    wanted: set[tuple[str, str]] = set()
    classes: dict[str, int] = {}
    for _, subscriber in items(raw, "subscribers"):
        name, switch = get(subscriber, "id"), get(subscriber, "switch")
        if not isinstance(name, str):
            continue
        classes[name] = 0
        placed = links is not None and isinstance(switch, str)
        if links is not None and placed and not path_problem(links, at, switch):
            offered = [
                get(switches[on_path], "priorities", 8)
                for on_path in switches_on_path(links, at, switch)
                if on_path in switches and get(switches[on_path], "managed", True)
            ]
            if not offered:
                classes[name] = NONE_MANAGED
            elif all(isinstance(count, int) for count in offered):
                classes[name] = min(offered)
        wanted |= {
            (name, get(subscription, "filter"))
            for _, subscription in items(subscriber, "subscriptions")
            if isinstance(get(subscription, "filter"), str)
        }
    return wanted, classes


def _legal(check: Any, name: str) -> bool:
    try:
        check(name)
    except ValueError:
        return False
    return True

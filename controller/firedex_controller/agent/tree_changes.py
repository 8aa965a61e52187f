"""The next commands that bring a port from what is observed to what is meant. Pure.

They are computed from what is there, run, and computed again until there are none left: the same
code shapes a port, changes it in place, repairs it, and leaves an unchanged one alone. Whatever can
be changed in place is, so that nothing that waits in a queue is lost.
"""

from dataclasses import dataclass

from firedex_controller.agent.observed_tree import OURS, Database, ObservedTree, OvsPort, Qos
from firedex_controller.agent.port_tree import (
    LINK,
    PortTree,
    TcClass,
    TcFilter,
    leaf_handle,
)

__all__ = ["Command", "burst_bytes", "commands_to_clear", "commands_to_shape", "quoted"]

Command = tuple[str, ...]
"""The words of one command; the first is the tool, ``ovs-vsctl`` or ``tc``."""

LEAF_KIND = "pfifo_head_drop"  # refusing the newest makes Open vSwitch discard its whole batch
OVS_QUEUE_0 = 1  # the class that Open vSwitch adds where nobody asked for a queue 0
ETHERNET_AND_TAGS = 64
BURST_SECONDS = 0.00025
USUAL_MTU = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the commands work: the port, what is there, and the size of its largest packet."""

    port: OvsPort
    qos: Qos | None
    database: Database
    tree: ObservedTree
    mtu: int


def quoted(text: str) -> str:
    """A string as ``ovs-vsctl`` reads it, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def commands_to_shape(
    name: str, meant: PortTree, database: Database, tree: ObservedTree, *, mtu: int
) -> list[Command]:
    """The next commands for ``name``; none if it is as it is meant to be."""
    port = database.ports[name]
    qos = database.qos.get(port.qos or "")
    place = _Place(
        port=port,
        qos=qos if qos is not None and qos.owner == name else None,
        database=database,
        tree=tree,
        mtu=mtu,
    )
    # What comes, comes first and what goes, last, and a class only after the filters that lead to
    # it: so every packet finds a filter, and every filter a class.
    return (
        _database_changes(place, meant)
        or _tree_changes(place, meant)
        or _database_removals(place, meant)
        or _tree_removals(place, meant)
    )


def commands_to_clear(name: str, database: Database, tree: ObservedTree) -> list[Command]:
    """The next commands that leave nothing of the agent on ``name``; none if nothing is there."""
    port = database.ports[name]
    qos = database.qos.get(port.qos or "")
    if qos is not None and qos.owner != name:
        qos = None
    if qos is None and port.desired is None:
        return []
    commands: list[Command] = []
    if qos is not None and qos.kind == "linux-noop" and tree.root:
        commands.append(("tc", "qdisc", "del", "dev", name, "root"))
    words: list[str] = ["ovs-vsctl", "--", "remove", "port", name, "external_ids", OURS]
    if qos is not None:
        words += ["--", "clear", "port", name, "qos", "--", "destroy", "qos", qos.row]
        for row in _own_queues(qos, name, database):
            words += ["--", "destroy", "queue", row]
    return [*commands, tuple(words)]


def _own_queues(qos: Qos, name: str, database: Database) -> list[str]:
    return [
        row
        for row in qos.queues.values()
        if row in database.queues and database.queues[row].owner == name
    ]


# Open vSwitch's database


def _database_changes(place: _Place, meant: PortTree) -> list[Command]:
    """At most one transaction, which takes no class away from a tree that stays."""
    kind = "linux-htb" if meant.made_by == "open-vswitch" else "linux-noop"
    config = {"max-rate": str(meant.rate)} if kind == "linux-htb" else {}
    wanted = _queue_configs(meant)
    if place.qos is None:
        return [_new_rows(place, kind, config, wanted)]
    changes: list[list[str]] = []
    qos = place.qos
    if qos.kind != kind or dict(qos.other_config) != config:
        changes.append(["clear", "qos", qos.row, "other_config"])
        words = ["set", "qos", qos.row, f"type={kind}"]
        changes.append(words + [f"other_config:{key}={text}" for key, text in config.items()])
    queues = place.database.queues
    for number, settings in wanted.items():
        known = qos.queues.get(number, "")
        if known not in queues:
            changes.append(["set", "qos", qos.row, f"queues:{number}=@q{number}"])
            changes.append(_new_queue(place.port.name, number, settings))
        elif dict(queues[known].other_config) != settings:
            pairs = [f"other_config:{key}={text}" for key, text in settings.items()]
            changes.append(["set", "queue", known, *pairs])
    return _transaction(changes)


def _database_removals(place: _Place, meant: PortTree) -> list[Command]:
    """At most one transaction, which removes the queues of classes that are no longer meant."""
    if place.qos is None:
        return []
    changes: list[list[str]] = []
    wanted = _queue_configs(meant)
    for number, row in place.qos.queues.items():
        if number not in wanted:
            changes.append(["remove", "qos", place.qos.row, "queues", str(number)])
            if row in _own_queues(place.qos, place.port.name, place.database):
                changes.append(["destroy", "queue", row])
    return _transaction(changes)


def _transaction(changes: list[list[str]]) -> list[Command]:
    if not changes:
        return []
    return [("ovs-vsctl", *(word for change in changes for word in ("--", *change)))]


def _queue_configs(meant: PortTree) -> dict[int, dict[str, str]]:
    if meant.made_by != "open-vswitch":
        return {}
    return {
        minor - 1: {
            "min-rate": str(made.rate),
            "max-rate": str(made.ceil),
            "priority": str(made.prio),
        }
        for minor, made in meant.classes.items()
        if minor in meant.limits
    }


def _new_rows(
    place: _Place, kind: str, config: dict[str, str], wanted: dict[int, dict[str, str]]
) -> Command:
    name = place.port.name
    words = ["ovs-vsctl", "--", "set", "port", name, "qos=@qos"]
    words += ["--", "--id=@qos", "create", "qos", f"type={kind}"]
    words += [f"external_ids:{OURS}={quoted(name)}"]
    words += [f"other_config:{key}={text}" for key, text in config.items()]
    words += [f"queues:{number}=@q{number}" for number in wanted]
    for number, settings in wanted.items():
        words += ["--", *_new_queue(name, number, settings)]
    return tuple(words)


def _new_queue(name: str, number: int, settings: dict[str, str]) -> list[str]:
    pairs = [f"other_config:{key}={text}" for key, text in settings.items()]
    return [f"--id=@q{number}", "create", "queue", f"external_ids:{OURS}={quoted(name)}", *pairs]


# The kernel's tree


def _tree_changes(place: _Place, meant: PortTree) -> list[Command]:
    """Everything but the removal of classes."""
    misplaced = any(
        minor in meant.classes and found.parent != meant.classes[minor].parent
        for minor, found in place.tree.classes.items()
    )
    if not place.tree.is_htb or LINK not in place.tree.classes or misplaced:
        return _new_tree(place, meant)
    name = place.port.name
    commands: list[Command] = []
    for minor, wanted in meant.classes.items():
        if minor not in place.tree.classes:
            commands.append(_class("add", name, wanted, meant, place.mtu))
        elif place.tree.classes[minor] != wanted:
            commands.append(_class("change", name, wanted, meant, place.mtu))
    for minor, limit in meant.limits.items():
        found = place.tree.leaves.get(minor)
        if found is not None and found[0] != LEAF_KIND:  # another kind cannot become ours
            commands.append(("tc", "qdisc", "del", "dev", name, "parent", f"1:{minor:x}"))
        if found != (LEAF_KIND, limit):
            commands.append(_leaf(name, minor, limit))
    return [*commands, *_filter_changes(place, meant)]


def _tree_removals(place: _Place, meant: PortTree) -> list[Command]:
    kept = {OVS_QUEUE_0} if meant.made_by == "open-vswitch" else set()
    return [
        ("tc", "class", "del", "dev", place.port.name, "classid", f"1:{minor:x}")
        for minor in sorted(set(place.tree.classes) - set(meant.classes) - kept)
    ]


def _new_tree(place: _Place, meant: PortTree) -> list[Command]:
    """From the ground up; what waits in the old one, if there is one, is lost."""
    name = place.port.name
    if meant.made_by == "open-vswitch" and place.qos is not None:
        # It takes its own tree for granted, except when it comes from another kind of queues.
        rows = ("ovs-vsctl", "--", "set", "qos", place.qos.row)
        return [(*rows, "type=linux-noop"), (*rows, "type=linux-htb")]
    commands: list[Command] = []
    if place.tree.root:
        commands.append(("tc", "qdisc", "del", "dev", name, "root"))
    commands.append(
        ("tc", "qdisc", "add", "dev", name, "root", "handle", "1:")
        + ("htb", "default", f"{meant.lowest:x}")
    )
    commands += [_class("add", name, made, meant, place.mtu) for made in meant.classes.values()]
    commands += [_leaf(name, minor, limit) for minor, limit in meant.limits.items()]
    commands += [_filter("add", name, wanted) for wanted in _in_order(meant.filters)]
    return commands


def burst_bytes(bits_per_second: float, mtu: int = USUAL_MTU) -> int:
    """What a port of this rate lets pass at once: a packet, or what a timer's tick lasts for."""
    return max(mtu + ETHERNET_AND_TAGS, round(bits_per_second / 8 * BURST_SECONDS))


def _class(verb: str, name: str, made: TcClass, meant: PortTree, mtu: int) -> Command:
    burst = str(burst_bytes(meant.rate, mtu))
    parent = f"1:{made.parent:x}" if made.parent else "1:"
    words = ["tc", "class", verb, "dev", name, "parent", parent, "classid", f"1:{made.minor:x}"]
    words += ["htb"] if made.prio is None else ["htb", "prio", str(made.prio)]
    words += ["rate", f"{made.rate}bit", "ceil", f"{made.ceil}bit"]
    # No two classes of a level share a priority, so how much one sends in its turn is no matter.
    return (*words, "burst", burst, "cburst", burst, "quantum", str(mtu + ETHERNET_AND_TAGS))


def _leaf(name: str, minor: int, limit: int) -> Command:
    words = ["tc", "qdisc", "replace", "dev", name, "parent", f"1:{minor:x}"]
    return (*words, "handle", f"{leaf_handle(minor):x}:", LEAF_KIND, "limit", str(limit))


# Filters


def _filter_changes(place: _Place, meant: PortTree) -> list[Command]:
    """Those that are missing come before those go that they take over from."""
    name = place.port.name
    missing = _in_order(meant.filters - place.tree.filters)
    extra = _in_order(place.tree.filters - meant.filters)
    taken = {wanted.preference for wanted in missing}  # somebody else has put one in their place
    return [
        *(_filter("del", name, found) for found in extra if found.preference in taken),
        *(_filter("add", name, wanted) for wanted in missing),
        *(_filter("del", name, found) for found in extra if found.preference not in taken),
    ]


def _filter(verb: str, name: str, made: TcFilter) -> Command:
    words: Command = ("tc", "filter", verb, "dev", name, "parent", "1:", "protocol", made.protocol)
    words += ("pref", str(made.preference), "u32")
    if verb == "del":
        return words
    value, _, mask = made.match.partition("/")
    match = ("match", "u32", f"0x{value}", f"0x{mask}", "at", "0")
    return (*words, *match, "flowid", f"1:{made.minor:x}")


def _in_order(filters: frozenset[TcFilter]) -> list[TcFilter]:
    return sorted(filters, key=lambda made: made.preference)

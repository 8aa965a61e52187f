"""The commands that bring a port from its observed queues to the desired ones. Pure.

Commands are computed from the observed state, run, and computed again until none are left. So the
same code creates, changes and repairs queues, and does nothing for a port that is correct. Queues
are changed in place where possible, so that queued packets are not lost.
"""

from dataclasses import dataclass

from firedex_controller.agent.observed_tree import OWNER_KEY, Database, ObservedTree, OvsPort, Qos
from firedex_controller.agent.port_tree import (
    LINK,
    PortTree,
    TcClass,
    TcFilter,
    leaf_handle,
)

__all__ = ["Command", "burst_bytes", "commands_to_clear", "commands_to_shape", "quote"]

Command = tuple[str, ...]
"""The arguments of one command; the first is the program, ``ovs-vsctl`` or ``tc``."""

LEAF_KIND = "pfifo_head_drop"  # dropping the newest packet makes Open vSwitch discard its batch
OVS_QUEUE_0 = 1  # the class that Open vSwitch adds if there is no queue 0
ETHERNET_AND_TAGS = 64
BURST_SECONDS = 0.00025
DEFAULT_MTU = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObservedPort:
    """A port with its observed state and its MTU."""

    port: OvsPort
    qos: Qos | None
    database: Database
    tree: ObservedTree
    mtu: int


def quote(text: str) -> str:
    """Quote a string for ``ovs-vsctl``."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _owner(name: str) -> str:
    return f"external_ids:{OWNER_KEY}={quote(name)}"


def commands_to_shape(
    name: str, desired: PortTree, database: Database, tree: ObservedTree, *, mtu: int
) -> list[Command]:
    """Return the next commands for the port ``name``; none if it has its desired queues."""
    port = database.ports[name]
    qos = database.qos.get(port.qos or "")
    observed = _ObservedPort(
        port=port,
        qos=qos if qos is not None and qos.owner == name else None,
        database=database,
        tree=tree,
        mtu=mtu,
    )
    # Additions come before removals, and a class is removed after the filters that lead to it, so
    # that every packet matches a filter and every filter leads to a class.
    return (
        _database_changes(observed, desired)
        or _tree_changes(observed, desired)
        or _database_removals(observed, desired)
        or _tree_removals(observed, desired)
    )


def commands_to_clear(name: str, database: Database, tree: ObservedTree) -> list[Command]:
    """Return the next commands that remove everything of the agent from the port ``name``."""
    port = database.ports[name]
    qos = database.qos.get(port.qos or "")
    if qos is not None and qos.owner != name:
        qos = None
    if qos is None and port.desired is None:
        return []
    commands: list[Command] = []
    if qos is not None and qos.kind == "linux-noop" and tree.root:
        commands.append(("tc", "qdisc", "del", "dev", name, "root"))
    words: list[str] = ["ovs-vsctl", "--", "remove", "port", name, "external_ids", OWNER_KEY]
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


def _database_changes(observed: _ObservedPort, desired: PortTree) -> list[Command]:
    """Return at most one transaction, which removes no class from an existing tree."""
    kind = "linux-htb" if desired.built_by == "open-vswitch" else "linux-noop"
    config = {"max-rate": str(desired.rate)} if kind == "linux-htb" else {}
    desired_queues = _queue_configs(desired)
    if observed.qos is None:
        return [_new_rows(observed, kind, config, desired_queues)]
    changes: list[list[str]] = []
    qos = observed.qos
    if qos.kind != kind or dict(qos.other_config) != config:
        changes.append(["clear", "qos", qos.row, "other_config"])
        words = ["set", "qos", qos.row, f"type={kind}"]
        changes.append(words + [f"other_config:{key}={text}" for key, text in config.items()])
    queues = observed.database.queues
    for number, settings in desired_queues.items():
        row = qos.queues.get(number, "")
        if row not in queues:
            changes.append(["set", "qos", qos.row, f"queues:{number}=@q{number}"])
            changes.append(_new_queue(observed.port.name, number, settings))
        elif dict(queues[row].other_config) != settings:
            pairs = [f"other_config:{key}={text}" for key, text in settings.items()]
            changes.append(["set", "queue", row, *pairs])
    return _transaction(changes)


def _database_removals(observed: _ObservedPort, desired: PortTree) -> list[Command]:
    """Return at most one transaction, which removes the queues of classes that are not desired."""
    if observed.qos is None:
        return []
    changes: list[list[str]] = []
    desired_queues = _queue_configs(desired)
    for number, row in observed.qos.queues.items():
        if number not in desired_queues:
            changes.append(["remove", "qos", observed.qos.row, "queues", str(number)])
            if row in _own_queues(observed.qos, observed.port.name, observed.database):
                changes.append(["destroy", "queue", row])
    return _transaction(changes)


def _transaction(changes: list[list[str]]) -> list[Command]:
    if not changes:
        return []
    return [("ovs-vsctl", *(word for change in changes for word in ("--", *change)))]


def _queue_configs(desired: PortTree) -> dict[int, dict[str, str]]:
    if desired.built_by != "open-vswitch":
        return {}
    return {
        minor - 1: {
            "min-rate": str(tc_class.rate),
            "max-rate": str(tc_class.ceil),
            "priority": str(tc_class.prio),
        }
        for minor, tc_class in desired.classes.items()
        if minor in desired.limits
    }


def _new_rows(
    observed: _ObservedPort,
    kind: str,
    config: dict[str, str],
    desired_queues: dict[int, dict[str, str]],
) -> Command:
    name = observed.port.name
    words = ["ovs-vsctl", "--", "set", "port", name, "qos=@qos"]
    words += ["--", "--id=@qos", "create", "qos", f"type={kind}"]
    words += [_owner(name)]
    words += [f"other_config:{key}={text}" for key, text in config.items()]
    words += [f"queues:{number}=@q{number}" for number in desired_queues]
    for number, settings in desired_queues.items():
        words += ["--", *_new_queue(name, number, settings)]
    return tuple(words)


def _new_queue(name: str, number: int, settings: dict[str, str]) -> list[str]:
    pairs = [f"other_config:{key}={text}" for key, text in settings.items()]
    return [
        f"--id=@q{number}",
        "create",
        "queue",
        f"external_ids:{OWNER_KEY}={quote(name)}",
        *pairs,
    ]


# The kernel's tree


def _tree_changes(observed: _ObservedPort, desired: PortTree) -> list[Command]:
    """Return all changes of the kernel's tree except the removal of classes."""
    has_misplaced_class = any(
        minor in desired.classes and observed_class.parent != desired.classes[minor].parent
        for minor, observed_class in observed.tree.classes.items()
    )
    if not observed.tree.is_htb or LINK not in observed.tree.classes or has_misplaced_class:
        return _new_tree(observed, desired)
    name = observed.port.name
    commands: list[Command] = []
    for minor, desired_class in desired.classes.items():
        if minor not in observed.tree.classes:
            commands.append(_class_command("add", name, desired_class, desired, observed.mtu))
        elif observed.tree.classes[minor] != desired_class:
            commands.append(_class_command("change", name, desired_class, desired, observed.mtu))
    for minor, limit in desired.limits.items():
        leaf = observed.tree.leaves.get(minor)
        if leaf is not None and leaf[0] != LEAF_KIND:  # the kind of a qdisc cannot be changed
            commands.append(("tc", "qdisc", "del", "dev", name, "parent", f"1:{minor:x}"))
        if leaf != (LEAF_KIND, limit):
            commands.append(_leaf_command(name, minor, limit))
    return [*commands, *_filter_changes(observed, desired)]


def _tree_removals(observed: _ObservedPort, desired: PortTree) -> list[Command]:
    kept = {OVS_QUEUE_0} if desired.built_by == "open-vswitch" else set()
    return [
        ("tc", "class", "del", "dev", observed.port.name, "classid", f"1:{minor:x}")
        for minor in sorted(set(observed.tree.classes) - set(desired.classes) - kept)
    ]


def _new_tree(observed: _ObservedPort, desired: PortTree) -> list[Command]:
    """Return the commands that build a new tree; packets queued in the old one are lost."""
    name = observed.port.name
    if desired.built_by == "open-vswitch" and observed.qos is not None:
        # Open vSwitch builds its tree again only when the type changes.
        rows = ("ovs-vsctl", "--", "set", "qos", observed.qos.row)
        return [(*rows, "type=linux-noop"), (*rows, "type=linux-htb")]
    commands: list[Command] = []
    if observed.tree.root:
        commands.append(("tc", "qdisc", "del", "dev", name, "root"))
    commands.append(
        ("tc", "qdisc", "add", "dev", name, "root", "handle", "1:")
        + ("htb", "default", f"{desired.lowest:x}")
    )
    commands += [
        _class_command("add", name, tc_class, desired, observed.mtu)
        for tc_class in desired.classes.values()
    ]
    commands += [_leaf_command(name, minor, limit) for minor, limit in desired.limits.items()]
    commands += [
        _filter_command("add", name, tc_filter)
        for tc_filter in _sorted_by_preference(desired.filters)
    ]
    return commands


def burst_bytes(bits_per_second: float, mtu: int = DEFAULT_MTU) -> int:
    """Return the burst of a port: one packet, or what the rate allows in one timer interval."""
    return max(mtu + ETHERNET_AND_TAGS, round(bits_per_second / 8 * BURST_SECONDS))


def _class_command(
    action: str, name: str, tc_class: TcClass, desired: PortTree, mtu: int
) -> Command:
    burst = str(burst_bytes(desired.rate, mtu))
    parent = f"1:{tc_class.parent:x}" if tc_class.parent else "1:"
    words = [
        "tc",
        "class",
        action,
        "dev",
        name,
        "parent",
        parent,
        "classid",
        f"1:{tc_class.minor:x}",
    ]
    words += ["htb"] if tc_class.prio is None else ["htb", "prio", str(tc_class.prio)]
    words += ["rate", f"{tc_class.rate}bit", "ceil", f"{tc_class.ceil}bit"]
    # No two classes of a level share a priority, so the quantum has no effect.
    return (*words, "burst", burst, "cburst", burst, "quantum", str(mtu + ETHERNET_AND_TAGS))


def _leaf_command(name: str, minor: int, limit: int) -> Command:
    words = ["tc", "qdisc", "replace", "dev", name, "parent", f"1:{minor:x}"]
    return (*words, "handle", f"{leaf_handle(minor):x}:", LEAF_KIND, "limit", str(limit))


# Filters


def _filter_changes(observed: _ObservedPort, desired: PortTree) -> list[Command]:
    """Return filter changes; a filter is added before the one that it replaces is removed."""
    name = observed.port.name
    missing = _sorted_by_preference(desired.filters - observed.tree.filters)
    extra = _sorted_by_preference(observed.tree.filters - desired.filters)
    reused_preferences = {
        tc_filter.preference for tc_filter in missing
    }  # another program used these preferences
    return [
        *(
            _filter_command("del", name, tc_filter)
            for tc_filter in extra
            if tc_filter.preference in reused_preferences
        ),
        *(_filter_command("add", name, tc_filter) for tc_filter in missing),
        *(
            _filter_command("del", name, tc_filter)
            for tc_filter in extra
            if tc_filter.preference not in reused_preferences
        ),
    ]


def _filter_command(action: str, name: str, tc_filter: TcFilter) -> Command:
    words: Command = (
        "tc",
        "filter",
        action,
        "dev",
        name,
        "parent",
        "1:",
        "protocol",
        tc_filter.protocol,
    )
    words += ("pref", str(tc_filter.preference), "u32")
    if action == "del":
        return words
    value, _, mask = tc_filter.match.partition("/")
    match = ("match", "u32", f"0x{value}", f"0x{mask}", "at", "0")
    return (*words, *match, "flowid", f"1:{tc_filter.minor:x}")


def _sorted_by_preference(filters: frozenset[TcFilter]) -> list[TcFilter]:
    return sorted(filters, key=lambda tc_filter: tc_filter.preference)

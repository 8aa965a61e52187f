"""The desired tree of a port, the parsed output of the tools, and the commands that change a port.

No command is run: the outputs were recorded with Open vSwitch 3.1.0 and iproute2 6.1.
"""

import json

import pytest

from firedex.wire import ClassQueue, ShapedPort
from firedex_controller.agent.observed_tree import (
    ClassCounts,
    Database,
    ObservedTree,
    OvsPort,
    OvsQueue,
    Qos,
    class_counts,
    read_database,
    read_tree,
)
from firedex_controller.agent.port_tree import (
    INNER,
    LINK,
    PortTree,
    TcClass,
    TcFilter,
    desired_tree,
)
from firedex_controller.agent.tree_changes import Command, commands_to_clear, commands_to_shape
from firedex_controller.errors import CannotShape


def shaped_port(
    *priorities: int, link: float = 10e6, guaranteed: float = 12e3, limit: int = 60
) -> ShapedPort:
    return ShapedPort(
        bandwidth_bits_per_second=link,
        classes=tuple(
            ClassQueue(priority=p, guaranteed_bits_per_second=guaranteed, limit_packets=limit)
            for p in priorities
        ),
    )


# -- the desired tree ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "built_by"),
    [
        (shaped_port(*range(8)), "open-vswitch"),
        (shaped_port(*range(9)), "agent"),
        (shaped_port(0, 8), "agent"),
        (shaped_port(0, 1, guaranteed=11_900), "agent"),
        (shaped_port(0, link=40e9), "agent"),
    ],
)
def test_open_vswitch_builds_the_trees_that_it_supports(port: ShapedPort, built_by: str) -> None:
    assert desired_tree(port).built_by == built_by


def test_eight_classes_have_one_level() -> None:
    classes = desired_tree(shaped_port(*range(8))).classes
    assert {classes[n].parent for n in range(1, 9)} == {LINK}
    assert [classes[n].prio for n in range(1, 9)] == list(range(8))
    assert INNER not in classes


def test_more_than_eight_classes_have_two_levels() -> None:
    classes = desired_tree(shaped_port(*range(16))).classes
    assert classes[INNER] == TcClass(
        minor=INNER, parent=LINK, prio=None, rate=10_000_000, ceil=10_000_000
    )
    assert [classes[n].parent for n in range(1, 17)] == [INNER] * 8 + [LINK] * 8
    assert [classes[n].prio for n in range(1, 17)] == [*range(8), *range(8)]


def test_position_of_a_class_does_not_depend_on_others() -> None:
    many, few = (
        desired_tree(shaped_port(*range(12))).classes,
        desired_tree(shaped_port(3, 11)).classes,
    )
    assert few == {minor: many[minor] for minor in few}


def test_every_packet_matches_a_filter() -> None:
    filters = sorted(desired_tree(shaped_port(2, 5, 9)).filters, key=lambda each: each.preference)
    assert [(each.protocol, each.minor) for each in filters] == [
        ("arp", 3),
        ("LLDP", 3),
        ("ip", 3),
        ("ip", 6),
        ("ip", 10),
        ("all", 10),
    ]
    assert len({each.match for each in filters if each.protocol == "ip"}) == 3


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (10e6, 10_000_000),
        (12_345_678, 12_346_000),
        (999_999, 1_000_000),
        (1_234_567_890, 1_235_000_000),
        (20_001, 20_000),
    ],
)
def test_rates_are_rounded_as_tc_prints_them(requested: float, expected: int) -> None:
    assert desired_tree(shaped_port(0, link=requested)).rate == expected


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (shaped_port(), "at least one"),
        (shaped_port(0, 3, 3), "priority 3 is listed twice"),
        (shaped_port(0, 16), "priority 16 is too high; a port has at most 16 classes, 0 to 15"),
        (shaped_port(0, 1, link=20e3), "guaranteed rates sum to 24000 bit/s"),
        (shaped_port(0, link=10), "bandwidth_bits_per_second"),
        (shaped_port(0, limit=10_000_000), "limit_packets of priority 0 is 10000000"),
    ],
)
def test_error_describes_the_invalid_queues(port: ShapedPort, expected: str) -> None:
    with pytest.raises(CannotShape, match=expected):
        desired_tree(port)


# -- parsed output ---------------------------------------------------------------------------------

QDISCS = json.dumps(
    [
        {"kind": "htb", "handle": "1:", "root": True, "options": {"default": "0x1"}},
        {
            "kind": "pfifo_head_drop",
            "handle": "19:",
            "parent": "1:a",
            "options": {"limit": 60},
            "drops": 7,
            "qlen": 3,
        },
    ]
)
CLASSES = """class htb 1:fffe root rate 10Mbit ceil 10Mbit burst 1500b cburst 1500b 
 Sent 6000 bytes 6 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
class htb 1:a parent 1:fffe leaf 19: prio 3 rate 12344bit ceil 10Mbit burst 1564b cburst 1563b 
 Sent 5000 bytes 5 pkt (dropped 9, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
class htb 1:1 parent 1:fffe prio 0 rate 12Kbit ceil 10Mbit burst 1563b cburst 1563b 
 Sent 1000 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
"""  # noqa: W291  # the recorded output
FILTERS = """filter protocol arp pref 2 u32 chain 0 
filter protocol arp pref 2 u32 chain 0 fh 801: ht divisor 1 
filter protocol arp pref 2 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 *flowid 1:a not_in_hw 
  match 00000000/00000000 at 0
filter protocol ip pref 20 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 flowid 1:1 
  match 00b80000/00fc0000 at 0
"""  # noqa: W291, E501  # the recorded output


def test_tree_is_parsed() -> None:
    tree = read_tree(QDISCS, CLASSES, FILTERS)
    assert tree.is_htb
    assert tree.classes == {
        LINK: TcClass(minor=LINK, parent=0, prio=None, rate=10_000_000, ceil=10_000_000),
        10: TcClass(minor=10, parent=LINK, prio=3, rate=12_344, ceil=10_000_000),
        1: TcClass(minor=1, parent=LINK, prio=0, rate=12_000, ceil=10_000_000),
    }
    assert tree.leaves == {10: ("pfifo_head_drop", 60)}
    assert tree.filters == {
        TcFilter(preference=2, protocol="arp", match="00000000/00000000", minor=10),
        TcFilter(preference=20, protocol="ip", match="00b80000/00fc0000", minor=1),
    }


def test_port_without_tree_is_parsed() -> None:
    bare = json.dumps([{"kind": "noqueue", "handle": "0:", "root": True}])
    assert read_tree(bare, "", "") == ObservedTree()


def test_counters_are_read_from_class_and_leaf() -> None:
    counted = class_counts(QDISCS, CLASSES)
    assert counted[10] == ClassCounts(packets=5, bytes=5000, dropped_packets=7, backlog_packets=3)
    assert counted[1] == ClassCounts(packets=1, bytes=1000, dropped_packets=0, backlog_packets=0)


def table(headings: list[str], *rows: list[object]) -> str:
    return json.dumps({"headings": headings, "data": rows})


def test_database_is_parsed() -> None:
    printed = "\n".join(
        [
            table(
                ["name", "datapath_id", "datapath_type", "ports"],
                ["br", "00000000000000aa", "netdev", ["set", [["uuid", "p1"], ["uuid", "p2"]]]],
                ["one", ["set", []], "", ["uuid", "p3"]],
            ),
            table(
                ["_uuid", "name", "qos", "external_ids"],
                [["uuid", "p1"], "a", ["uuid", "qos"], ["map", [["firedex", "{}"]]]],
                [["uuid", "p2"], "b", ["set", []], ["map", []]],
                [["uuid", "p3"], "c", ["set", []], ["map", []]],
            ),
            table(
                ["_uuid", "type", "other_config", "queues", "external_ids"],
                [
                    ["uuid", "qos"],
                    "linux-htb",
                    ["map", [["max-rate", "8"]]],
                    ["map", [[0, ["uuid", "q0"]]]],
                    ["map", [["firedex", "a"]]],
                ],
                [
                    ["uuid", "old"],
                    "linux-htb",
                    ["map", []],
                    ["map", []],
                    ["map", [["firedex", "x"]]],
                ],
                [["uuid", "theirs"], "linux-htb", ["map", []], ["map", []], ["map", []]],
            ),
            table(
                ["_uuid", "other_config", "external_ids"],
                [["uuid", "q0"], ["map", []], ["map", [["firedex", "a"]]]],
                [["uuid", "q9"], ["map", []], ["map", [["firedex", "a"]]]],
            ),
            table(["ovs_version"], [["set", []]]),
        ]
    )
    database = read_database(printed)
    assert [(b.name, b.userspace, b.ports) for b in database.bridges] == [
        ("br", True, ("a", "b")),
        ("one", False, ("c",)),
    ]
    assert database.ports["a"] == OvsPort(name="a", qos="qos", desired="{}")
    assert database.ports["b"] == OvsPort(name="b", qos=None, desired=None)
    assert database.qos["qos"].queues == {0: "q0"}
    assert database.version is None
    assert database.unused_rows() == [
        ("qos", "old"),
        ("queue", "q9"),
    ]  # rows of other programs are not removed


# -- commands --------------------------------------------------------------------------------------


def observed_as_desired(desired: PortTree) -> ObservedTree:
    return ObservedTree(
        root="htb 1:",
        classes=desired.classes,
        leaves={minor: ("pfifo_head_drop", limit) for minor, limit in desired.limits.items()},
        filters=desired.filters,
    )


def database_with_port(desired: PortTree | None) -> Database:
    """Return the database in which the port ``p`` has the desired queues (None: no queues)."""
    queues: dict[str, OvsQueue] = {}
    qos: dict[str, Qos] = {}
    if desired is not None and desired.built_by == "open-vswitch":
        for minor in desired.limits:
            tc_class = desired.classes[minor]
            config = {"min-rate": f"{tc_class.rate}", "max-rate": f"{tc_class.ceil}"}
            config["priority"] = f"{tc_class.prio}"
            queues[f"q{minor - 1}"] = OvsQueue(row=f"q{minor - 1}", owner="p", other_config=config)
    if desired is not None:
        by_ovs = desired.built_by == "open-vswitch"
        qos["row"] = Qos(
            row="row",
            owner="p",
            kind="linux-htb" if by_ovs else "linux-noop",
            other_config={"max-rate": str(desired.rate)} if by_ovs else {},
            queues={int(row[1:]): row for row in queues},
        )
    port = OvsPort(name="p", qos="row" if desired else None, desired="{}" if desired else None)
    return Database(bridges=(), ports={"p": port}, qos=qos, queues=queues, version=None)


def commands_for_change(new: ShapedPort, old: ShapedPort | None) -> list[Command]:
    before = None if old is None else desired_tree(old)
    tree = ObservedTree() if before is None else observed_as_desired(before)
    return commands_to_shape("p", desired_tree(new), database_with_port(before), tree, mtu=1500)


def verbs(commands: list[Command]) -> list[str]:
    return [" ".join(words[1:3]) for words in commands]


@pytest.mark.parametrize("count", [1, 8, 9, 16])
def test_correct_port_needs_no_commands(count: int) -> None:
    port = shaped_port(*range(count))
    assert commands_for_change(port, port) == []


def test_eight_classes_are_one_transaction() -> None:
    (command,) = commands_for_change(shaped_port(0, 1, 7), None)
    assert command[0] == "ovs-vsctl"
    assert "type=linux-htb" in command
    assert command.count("other_config:max-rate=10000000") == 4
    assert command.count('external_ids:firedex="p"') == 4
    for number in (0, 1, 7):
        assert f"queues:{number}=@q{number}" in command


def test_leaves_and_filters_follow_the_transaction() -> None:
    desired = desired_tree(shaped_port(0, 1))
    bare = ObservedTree(root="htb 1:", classes=desired.classes)
    commands = commands_to_shape("p", desired, database_with_port(desired), bare, mtu=1500)
    assert verbs(commands) == ["qdisc replace"] * 2 + ["filter add"] * 5
    assert commands[0][-3:] == ("pfifo_head_drop", "limit", "60")


def test_tree_of_the_agent_is_built_in_one_batch() -> None:
    commands = commands_for_change(shaped_port(*range(9)), None)
    assert commands[0][0] == "ovs-vsctl"
    assert "type=linux-noop" in commands[0]
    desired = desired_tree(shaped_port(*range(9)))
    commands = commands_to_shape(
        "p", desired, database_with_port(desired), ObservedTree(), mtu=1500
    )
    expected = ["qdisc add"] + ["class add"] * 11 + ["qdisc replace"] * 9 + ["filter add"] * 12
    assert verbs(commands) == expected
    assert commands[0][-2:] == ("default", "9")  # without filters, packets use the lowest class


def test_classes_are_hexadecimal_as_tc_reads_them() -> None:
    desired = desired_tree(shaped_port(0, 15))
    commands = commands_to_shape(
        "p", desired, database_with_port(desired), ObservedTree(), mtu=1500
    )
    assert ("tc", "qdisc", "replace", "dev", "p", "parent", "1:10", "handle", "1f:") in [
        words[:9] for words in commands
    ]


def test_rates_and_limits_change_in_place() -> None:
    old, new = shaped_port(*range(9)), shaped_port(*range(9), link=5e6, limit=70)
    changed = commands_for_change(new, old)
    assert set(verbs(changed)) == {"class change", "qdisc replace"}
    (command,) = commands_for_change(shaped_port(0, 1, link=5e6), shaped_port(0, 1))
    assert "create" not in command
    assert "destroy" not in command


@pytest.mark.parametrize("extra", [5, 12])
def test_class_is_added_without_changing_others(extra: int) -> None:
    commands = commands_for_change(shaped_port(0, 8, extra), shaped_port(0, 8))
    assert all(
        (words[1:3] != ("class", "change") and words[1] != "class") or f"1:{extra + 1:x}" in words
        for words in commands
    )
    assert verbs(commands)[:2] == ["class add", "qdisc replace"]


def test_unmarked_packets_always_match_a_filter() -> None:
    """The new filter for other packets is added before the old one is removed."""
    commands = [
        words
        for words in commands_for_change(shaped_port(0, 8, 12), shaped_port(0, 8))
        if "all" in words
    ]
    assert verbs(commands) == ["filter add", "filter del"]


def test_class_is_removed_after_its_filters() -> None:
    first = commands_for_change(shaped_port(0, 8), shaped_port(0, 8, 12))
    assert "class del" not in verbs(first)
    assert "filter del" in verbs(first)
    desired = desired_tree(shaped_port(0, 8))
    tree = observed_as_desired(desired_tree(shaped_port(0, 8, 12)))
    tree = ObservedTree(
        root=tree.root, classes=tree.classes, leaves=tree.leaves, filters=desired.filters
    )
    (last,) = commands_to_shape("p", desired, database_with_port(desired), tree, mtu=1500)
    assert last == ("tc", "class", "del", "dev", "p", "classid", "1:d")


def test_foreign_filter_with_the_same_preference_is_removed_first() -> None:
    desired = desired_tree(shaped_port(0, 8))
    tree = observed_as_desired(desired)
    own = min(tree.filters, key=lambda each: each.preference)
    foreign = TcFilter(preference=own.preference, protocol="arp", match=own.match, minor=9)
    observed = ObservedTree(
        root=tree.root,
        classes=tree.classes,
        leaves=tree.leaves,
        filters=tree.filters - {own} | {foreign},
    )
    commands = commands_to_shape("p", desired, database_with_port(desired), observed, mtu=1500)
    assert verbs(commands) == ["filter del", "filter add"]


def test_open_vswitch_rebuilds_its_tree() -> None:
    desired = desired_tree(shaped_port(0, 1))
    commands = commands_to_shape(
        "p", desired, database_with_port(desired), ObservedTree(), mtu=1500
    )
    assert [words[-1] for words in commands] == ["type=linux-noop", "type=linux-htb"]


def test_queues_of_other_programs_are_not_changed() -> None:
    foreign = Qos(row="row", owner=None, kind="linux-htb", other_config={}, queues={0: "x"})
    database = Database(
        bridges=(),
        ports={"p": OvsPort(name="p", qos="row", desired=None)},
        qos={"row": foreign},
        queues={},
        version=None,
    )
    (command,) = commands_to_shape(
        "p", desired_tree(shaped_port(0)), database, ObservedTree(), mtu=1500
    )
    assert "row" not in command
    assert commands_to_clear("p", database, ObservedTree(root="htb 1:")) == []


def test_clearing_removes_the_tree_before_the_rows() -> None:
    desired = desired_tree(shaped_port(*range(9)))
    commands = commands_to_clear("p", database_with_port(desired), observed_as_desired(desired))
    assert verbs(commands)[0] == "qdisc del"
    assert commands[1][:3] == ("ovs-vsctl", "--", "remove")
    (command,) = commands_to_clear(
        "p", database_with_port(desired_tree(shaped_port(0, 1))), ObservedTree()
    )
    assert command.count("destroy") == 3

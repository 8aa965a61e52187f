"""The tree a port is meant to have, what the tools show of it, and the commands in between.

Without running any: the printed texts are those of Open vSwitch 3.1.0 and iproute2 6.1.
"""

import json

import pytest

from firedex.wire import ClassQueue, ShapedPort
from firedex_controller.agent.errors import CannotShape
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
from firedex_controller.agent.port_tree import INNER, LINK, PortTree, TcClass, TcFilter, tree_of
from firedex_controller.agent.tree_changes import Command, commands_to_clear, commands_to_shape


def shaped(
    *priorities: int, link: float = 10e6, least: float = 12e3, limit: int = 60
) -> ShapedPort:
    return ShapedPort(
        bandwidth_bits_per_second=link,
        classes=tuple(
            ClassQueue(priority=p, guaranteed_bits_per_second=least, limit_packets=limit)
            for p in priorities
        ),
    )


# What is meant


@pytest.mark.parametrize(
    ("port", "made_by"),
    [
        (shaped(*range(8)), "open-vswitch"),
        (shaped(*range(9)), "agent"),
        (shaped(0, 8), "agent"),
        (shaped(0, 1, least=11_900), "agent"),
        (shaped(0, link=40e9), "agent"),
    ],
)
def test_open_vswitch_makes_what_it_can(port: ShapedPort, made_by: str) -> None:
    assert tree_of(port).made_by == made_by


def test_eight_classes_are_level() -> None:
    classes = tree_of(shaped(*range(8))).classes
    assert {classes[n].parent for n in range(1, 9)} == {LINK}
    assert [classes[n].prio for n in range(1, 9)] == list(range(8))
    assert INNER not in classes


def test_more_classes_are_nested() -> None:
    classes = tree_of(shaped(*range(16))).classes
    assert classes[INNER] == TcClass(
        minor=INNER, parent=LINK, prio=None, rate=10_000_000, ceil=10_000_000
    )
    assert [classes[n].parent for n in range(1, 17)] == [INNER] * 8 + [LINK] * 8
    assert [classes[n].prio for n in range(1, 17)] == [*range(8), *range(8)]


def test_a_class_has_its_place_whatever_others_there_are() -> None:
    many, few = tree_of(shaped(*range(12))).classes, tree_of(shaped(3, 11)).classes
    assert few == {minor: many[minor] for minor in few}


def test_every_packet_has_one_place() -> None:
    filters = sorted(tree_of(shaped(2, 5, 9)).filters, key=lambda made: made.preference)
    assert [(made.protocol, made.minor) for made in filters] == [
        ("arp", 3),
        ("LLDP", 3),
        ("ip", 3),
        ("ip", 6),
        ("ip", 10),
        ("all", 10),
    ]
    assert len({made.match for made in filters if made.protocol == "ip"}) == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (10e6, 10_000_000),
        (12_345_678, 12_346_000),
        (999_999, 1_000_000),
        (1_234_567_890, 1_235_000_000),
        (20_001, 20_000),
    ],
)
def test_rates_are_such_as_tc_can_show_again(given: float, told: int) -> None:
    assert tree_of(shaped(0, link=given)).rate == told


@pytest.mark.parametrize(
    ("port", "said"),
    [
        (shaped(), "at least one"),
        (shaped(0, 3, 3), "priority 3 is there twice"),
        (shaped(0, 16), "priority 16; a port here has 16 classes, 0 to 15"),
        (shaped(0, 1, link=20e3), "24000 bit/s are guaranteed"),
        (shaped(0, link=10), "bandwidth_bits_per_second"),
        (shaped(0, limit=10_000_000), "limit_packets 10000000 of priority 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(port: ShapedPort, said: str) -> None:
    with pytest.raises(CannotShape, match=said):
        tree_of(port)


# What the tools show

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
"""  # noqa: W291  # as it is printed
FILTERS = """filter protocol arp pref 2 u32 chain 0 
filter protocol arp pref 2 u32 chain 0 fh 801: ht divisor 1 
filter protocol arp pref 2 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 *flowid 1:a not_in_hw 
  match 00000000/00000000 at 0
filter protocol ip pref 20 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 flowid 1:1 
  match 00b80000/00fc0000 at 0
"""  # noqa: W291, E501  # as it is printed


def test_a_tree_is_read() -> None:
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


def test_no_tree_is_read_as_none() -> None:
    bare = json.dumps([{"kind": "noqueue", "handle": "0:", "root": True}])
    assert read_tree(bare, "", "") == ObservedTree()


def test_counters_are_of_class_and_leaf() -> None:
    counted = class_counts(QDISCS, CLASSES)
    assert counted[10] == ClassCounts(packets=5, bytes=5000, dropped_packets=7, backlog_packets=3)
    assert counted[1] == ClassCounts(packets=1, bytes=1000, dropped_packets=0, backlog_packets=0)


def table(headings: list[str], *rows: list[object]) -> str:
    return json.dumps({"headings": headings, "data": rows})


def test_the_database_is_read() -> None:
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
    assert database.orphans() == [("qos", "old"), ("queue", "q9")]  # theirs is not ours to remove


# The commands in between


def as_meant(meant: PortTree) -> ObservedTree:
    return ObservedTree(
        root="htb 1:",
        classes=meant.classes,
        leaves={minor: ("pfifo_head_drop", limit) for minor, limit in meant.limits.items()},
        filters=meant.filters,
    )


def database_of(meant: PortTree | None) -> Database:
    """As it is when the port ``p`` is shaped so; None: not at all."""
    queues: dict[str, OvsQueue] = {}
    qos: dict[str, Qos] = {}
    if meant is not None and meant.made_by == "open-vswitch":
        for minor in meant.limits:
            made = meant.classes[minor]
            config = {"min-rate": f"{made.rate}", "max-rate": f"{made.ceil}"}
            config["priority"] = f"{made.prio}"
            queues[f"q{minor - 1}"] = OvsQueue(row=f"q{minor - 1}", owner="p", other_config=config)
    if meant is not None:
        by_ovs = meant.made_by == "open-vswitch"
        qos["row"] = Qos(
            row="row",
            owner="p",
            kind="linux-htb" if by_ovs else "linux-noop",
            other_config={"max-rate": str(meant.rate)} if by_ovs else {},
            queues={int(row[1:]): row for row in queues},
        )
    port = OvsPort(name="p", qos="row" if meant else None, desired="{}" if meant else None)
    return Database(bridges=(), ports={"p": port}, qos=qos, queues=queues, version=None)


def steps(new: ShapedPort, old: ShapedPort | None) -> list[Command]:
    before = None if old is None else tree_of(old)
    tree = ObservedTree() if before is None else as_meant(before)
    return commands_to_shape("p", tree_of(new), database_of(before), tree, mtu=1500)


def verbs(commands: list[Command]) -> list[str]:
    return [" ".join(words[1:3]) for words in commands]


@pytest.mark.parametrize("count", [1, 8, 9, 16])
def test_an_unchanged_port_is_left_alone(count: int) -> None:
    port = shaped(*range(count))
    assert steps(port, port) == []


def test_eight_classes_are_one_transaction() -> None:
    (command,) = steps(shaped(0, 1, 7), None)
    assert command[0] == "ovs-vsctl"
    assert "type=linux-htb" in command
    assert command.count("other_config:max-rate=10000000") == 4
    assert command.count('external_ids:firedex="p"') == 4
    for number in (0, 1, 7):
        assert f"queues:{number}=@q{number}" in command


def test_then_come_leaves_and_filters() -> None:
    meant = tree_of(shaped(0, 1))
    bare = ObservedTree(root="htb 1:", classes=meant.classes)
    commands = commands_to_shape("p", meant, database_of(meant), bare, mtu=1500)
    assert verbs(commands) == ["qdisc replace"] * 2 + ["filter add"] * 5
    assert commands[0][-3:] == ("pfifo_head_drop", "limit", "60")


def test_a_tree_of_the_agent_is_whole_in_one_go() -> None:
    commands = steps(shaped(*range(9)), None)
    assert commands[0][0] == "ovs-vsctl"
    assert "type=linux-noop" in commands[0]
    meant = tree_of(shaped(*range(9)))
    commands = commands_to_shape("p", meant, database_of(meant), ObservedTree(), mtu=1500)
    expected = ["qdisc add"] + ["class add"] * 11 + ["qdisc replace"] * 9 + ["filter add"] * 12
    assert verbs(commands) == expected
    assert commands[0][-2:] == ("default", "9")  # until there are filters, nothing rides high


def test_classes_are_hexadecimal_as_tc_reads_them() -> None:
    meant = tree_of(shaped(0, 15))
    commands = commands_to_shape("p", meant, database_of(meant), ObservedTree(), mtu=1500)
    assert ("tc", "qdisc", "replace", "dev", "p", "parent", "1:10", "handle", "1f:") in [
        words[:9] for words in commands
    ]


def test_rates_and_limits_change_in_place() -> None:
    old, new = shaped(*range(9)), shaped(*range(9), link=5e6, limit=70)
    changed = steps(new, old)
    assert set(verbs(changed)) == {"class change", "qdisc replace"}
    (command,) = steps(shaped(0, 1, link=5e6), shaped(0, 1))
    assert "create" not in command
    assert "destroy" not in command


@pytest.mark.parametrize("extra", [5, 12])
def test_a_class_comes_without_touching_others(extra: int) -> None:
    commands = steps(shaped(0, 8, extra), shaped(0, 8))
    assert all(
        (words[1:3] != ("class", "change") and words[1] != "class") or f"1:{extra + 1:x}" in words
        for words in commands
    )
    assert verbs(commands)[:2] == ["class add", "qdisc replace"]


def test_whatever_has_no_class_finds_a_filter_all_the_time() -> None:
    """The new last resort comes before the old one goes."""
    commands = [words for words in steps(shaped(0, 8, 12), shaped(0, 8)) if "all" in words]
    assert verbs(commands) == ["filter add", "filter del"]


def test_a_class_goes_after_the_filters_that_lead_to_it() -> None:
    first = steps(shaped(0, 8), shaped(0, 8, 12))
    assert "class del" not in verbs(first)
    assert "filter del" in verbs(first)
    meant = tree_of(shaped(0, 8))
    tree = as_meant(tree_of(shaped(0, 8, 12)))
    tree = ObservedTree(
        root=tree.root, classes=tree.classes, leaves=tree.leaves, filters=meant.filters
    )
    (last,) = commands_to_shape("p", meant, database_of(meant), tree, mtu=1500)
    assert last == ("tc", "class", "del", "dev", "p", "classid", "1:d")


def test_a_filter_in_the_place_of_ours_goes_first() -> None:
    meant = tree_of(shaped(0, 8))
    tree = as_meant(meant)
    ours = min(tree.filters, key=lambda made: made.preference)
    theirs = TcFilter(preference=ours.preference, protocol="arp", match=ours.match, minor=9)
    tampered = ObservedTree(
        root=tree.root,
        classes=tree.classes,
        leaves=tree.leaves,
        filters=tree.filters - {ours} | {theirs},
    )
    commands = commands_to_shape("p", meant, database_of(meant), tampered, mtu=1500)
    assert verbs(commands) == ["filter del", "filter add"]


def test_open_vswitch_is_made_to_build_its_tree_again() -> None:
    meant = tree_of(shaped(0, 1))
    commands = commands_to_shape("p", meant, database_of(meant), ObservedTree(), mtu=1500)
    assert [words[-1] for words in commands] == ["type=linux-noop", "type=linux-htb"]


def test_queues_of_others_are_not_ours_to_change() -> None:
    theirs = Qos(row="row", owner=None, kind="linux-htb", other_config={}, queues={0: "x"})
    database = Database(
        bridges=(),
        ports={"p": OvsPort(name="p", qos="row", desired=None)},
        qos={"row": theirs},
        queues={},
        version=None,
    )
    (command,) = commands_to_shape("p", tree_of(shaped(0)), database, ObservedTree(), mtu=1500)
    assert "row" not in command
    assert commands_to_clear("p", database, ObservedTree(root="htb 1:")) == []


def test_clearing_takes_the_tree_before_it_forgets() -> None:
    meant = tree_of(shaped(*range(9)))
    commands = commands_to_clear("p", database_of(meant), as_meant(meant))
    assert verbs(commands)[0] == "qdisc del"
    assert commands[1][:3] == ("ovs-vsctl", "--", "remove")
    (command,) = commands_to_clear("p", database_of(tree_of(shaped(0, 1))), ObservedTree())
    assert command.count("destroy") == 3

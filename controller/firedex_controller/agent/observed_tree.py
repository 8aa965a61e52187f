"""What ``tc`` and ``ovs-vsctl`` show of ports, read into values. Pure.

HTB classes are read as text, because iproute2 6.1 shows no JSON of them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from firedex_controller.agent.port_tree import TcClass, TcFilter

__all__ = [
    "Bridge",
    "ClassCounts",
    "Database",
    "ObservedTree",
    "OvsPort",
    "OvsQueue",
    "Qos",
    "class_counts",
    "read_database",
    "read_tree",
]

OURS = "firedex"
"""The key of external_ids with which the agent marks its rows; its value is the port's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OvsQueue:
    """A row of Open vSwitch's table ``Queue``; ``owner`` is the port it was made for."""

    row: str
    owner: str | None
    other_config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """A row of Open vSwitch's table ``QoS``, with the rows of its queues by their number."""

    row: str
    owner: str | None
    kind: str
    other_config: Mapping[str, str]
    queues: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OvsPort:
    """A port; ``desired`` is what the agent was asked for, kept there as JSON."""

    name: str
    qos: str | None
    desired: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A bridge with the names of its ports."""

    name: str
    datapath_id: str
    userspace: bool
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What the switch's database says."""

    bridges: tuple[Bridge, ...]
    ports: Mapping[str, OvsPort]
    qos: Mapping[str, Qos]
    queues: Mapping[str, OvsQueue]
    version: str | None

    def orphans(self) -> list[tuple[str, str]]:
        """Rows that the agent made and no port uses: of ports that are gone, of trees replaced."""
        used_qos = {port.qos for port in self.ports.values()}
        used = {
            row for qos in self.qos.values() if qos.row in used_qos for row in qos.queues.values()
        }
        return [
            ("qos", row) for row, qos in self.qos.items() if qos.owner and row not in used_qos
        ] + [
            ("queue", row) for row, queue in self.queues.items() if queue.owner and row not in used
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTree:
    """What the kernel has on a port. Leaves are kind and limit, by the class they are in."""

    root: str | None = None
    classes: Mapping[int, TcClass] = field(default_factory=dict)
    leaves: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    filters: frozenset[TcFilter] = frozenset()

    @property
    def is_htb(self) -> bool:
        """Whether there is a tree of our shape to change, rather than nothing or another kind."""
        return self.root == "htb 1:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """What has gone through a class since it was made."""

    packets: int
    bytes: int
    dropped_packets: int
    backlog_packets: int


def read_database(printed: str) -> Database:
    """From the JSON of ``ovs-vsctl``, a line for each table: bridge, port, qos, queue, the root."""
    bridges, ports, qos, queues, roots = (
        list(_rows(line)) for line in printed.splitlines() if line
    )
    names = {row["_uuid"]: row["name"] for row in ports}
    return Database(
        bridges=tuple(
            Bridge(
                name=row["name"],
                datapath_id=row["datapath_id"] or "0" * 16,
                userspace=row["datapath_type"] == "netdev",
                ports=tuple(sorted(names[port] for port in _many(row["ports"]) if port in names)),
            )
            for row in sorted(bridges, key=lambda row: str(row["name"]))
        ),
        ports={
            row["name"]: OvsPort(
                name=row["name"],
                qos=row["qos"] or None,
                desired=row["external_ids"].get(OURS),
            )
            for row in ports
        },
        qos={
            row["_uuid"]: Qos(
                row=row["_uuid"],
                owner=row["external_ids"].get(OURS),
                kind=row["type"],
                other_config=row["other_config"],
                queues=row["queues"],
            )
            for row in qos
        },
        queues={
            row["_uuid"]: OvsQueue(
                row=row["_uuid"],
                owner=row["external_ids"].get(OURS),
                other_config=row["other_config"],
            )
            for row in queues
        },
        version=next((row["ovs_version"] for row in roots if row["ovs_version"]), None),
    )


def _rows(line: str) -> Iterator[dict[str, Any]]:
    table = json.loads(line)
    for row in table["data"]:
        yield dict(zip(table["headings"], map(_plain, row), strict=True))


def _plain(cell: Any) -> Any:
    """OVSDB's notation as Python's: a set of one is written as its member, an empty one falsy."""
    if not isinstance(cell, list):
        return cell
    kind, held = cell
    if kind == "set":
        return tuple(_plain(member) for member in held)
    if kind == "map":
        return {_plain(key): _plain(member) for key, member in held}
    return held


def _many(cell: Any) -> tuple[Any, ...]:
    return cell if isinstance(cell, tuple) else (cell,)


CLASS = re.compile(
    r"^class htb 1:(?P<minor>[0-9a-f]+) (?:root|parent 1:(?P<parent>[0-9a-f]+)) "
    r"(?:leaf \S+ )?(?:prio (?P<prio>\d+) )?(?:quantum \d+ )?rate (?P<rate>\S+) ceil (?P<ceil>\S+)",
    re.MULTILINE,
)
FILTER = re.compile(
    r"^filter (?:parent \S+ )?protocol (?P<protocol>\S+) pref (?P<preference>\d+) u32 .*?"
    r"flowid 1:(?P<minor>[0-9a-f]+).*\n\s+match (?P<match>[0-9a-f]{8}/[0-9a-f]{8}) at 0",
    re.MULTILINE,
)
UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}


def read_tree(qdiscs: str, classes: str, filters: str) -> ObservedTree:
    """From ``tc -j qdisc``, ``tc class`` and ``tc filter show dev …``."""
    listed = json.loads(qdiscs or "[]")
    root = next((q for q in listed if q.get("root") and q["kind"] != "noqueue"), None)
    if root is None:
        return ObservedTree()
    return ObservedTree(
        root=f"{root['kind']} {root['handle']}",
        classes={
            int(found["minor"], 16): TcClass(
                minor=int(found["minor"], 16),
                parent=int(found["parent"] or "0", 16),
                prio=int(found["prio"]) if found["prio"] else None,
                rate=_rate(found["rate"]),
                ceil=_rate(found["ceil"]),
            )
            for found in CLASS.finditer(classes)
        },
        leaves={
            minor: (qdisc["kind"], int(qdisc.get("options", {}).get("limit", 0)))
            for minor, qdisc in _leaves(listed)
        },
        filters=frozenset(
            TcFilter(
                preference=int(found["preference"]),
                protocol=found["protocol"],
                match=found["match"],
                minor=int(found["minor"], 16),
            )
            for found in FILTER.finditer(filters)
        ),
    )


def _leaves(qdiscs: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for qdisc in qdiscs:
        major, _, minor = str(qdisc.get("parent", "")).partition(":")
        if major == "1" and minor:
            yield int(minor, 16), qdisc


def _rate(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMGT]?bit)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


SENT = re.compile(
    r"^class htb 1:(?P<minor>[0-9a-f]+) .*\n\s*Sent (?P<bytes>\d+) bytes (?P<packets>\d+) pkt",
    re.MULTILINE,
)


def class_counts(qdiscs: str, classes: str) -> dict[int, ClassCounts]:
    """From ``tc -s -j qdisc`` and ``tc -s class show dev …``, by minor number.

    What was sent is counted by the class, what was dropped and what waits by the leaf in it.
    """
    leaves = dict(_leaves(json.loads(qdiscs or "[]")))
    counted = {}
    for found in SENT.finditer(classes):
        leaf = leaves.get(int(found["minor"], 16), {})
        counted[int(found["minor"], 16)] = ClassCounts(
            packets=int(found["packets"]),
            bytes=int(found["bytes"]),
            dropped_packets=int(leaf.get("drops", 0)),
            backlog_packets=int(leaf.get("qlen", 0)),
        )
    return counted

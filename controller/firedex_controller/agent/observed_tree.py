"""Parsing the output of ``tc`` and ``ovs-vsctl`` into values. Pure.

HTB classes are parsed from text, because iproute2 6.1 prints no JSON for them.
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

OWNER_KEY = "firedex"
"""The key of external_ids that marks rows of the agent; the value is the name of the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OvsQueue:
    """A row of Open vSwitch's table ``Queue``; ``owner`` is the port that it was created for."""

    row: str
    owner: str | None
    other_config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """A row of Open vSwitch's table ``QoS``, with the rows of its queues by number."""

    row: str
    owner: str | None
    kind: str
    other_config: Mapping[str, str]
    queues: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OvsPort:
    """A port; ``desired`` is the JSON text of its desired queues, which the agent stores there."""

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
    """The content of the switch's database."""

    bridges: tuple[Bridge, ...]
    ports: Mapping[str, OvsPort]
    qos: Mapping[str, Qos]
    queues: Mapping[str, OvsQueue]
    version: str | None

    def unused_rows(self) -> list[tuple[str, str]]:
        """Return the agent's rows that no port uses, after a port or its queues were replaced."""
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
    """The queues of a port in the kernel; leaves are kind and limit, by minor number."""

    root: str | None = None
    classes: Mapping[int, TcClass] = field(default_factory=dict)
    leaves: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    filters: frozenset[TcFilter] = frozenset()

    @property
    def is_htb(self) -> bool:
        """Whether there is an HTB tree that can be changed in place."""
        return self.root == "htb 1:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """The counters of a class since it was created."""

    packets: int
    bytes: int
    dropped_packets: int
    backlog_packets: int


def read_database(output: str) -> Database:
    """Parse the JSON of ``ovs-vsctl``, one line for each table: bridge, port, qos, queue, root."""
    bridges, ports, qos, queues, roots = (list(_rows(line)) for line in output.splitlines() if line)
    names = {row["_uuid"]: row["name"] for row in ports}
    return Database(
        bridges=tuple(
            Bridge(
                name=row["name"],
                datapath_id=row["datapath_id"] or "0" * 16,
                userspace=row["datapath_type"] == "netdev",
                ports=tuple(
                    sorted(names[port] for port in _as_tuple(row["ports"]) if port in names)
                ),
            )
            for row in sorted(bridges, key=lambda row: str(row["name"]))
        ),
        ports={
            row["name"]: OvsPort(
                name=row["name"],
                qos=row["qos"] or None,
                desired=row["external_ids"].get(OWNER_KEY),
            )
            for row in ports
        },
        qos={
            row["_uuid"]: Qos(
                row=row["_uuid"],
                owner=row["external_ids"].get(OWNER_KEY),
                kind=row["type"],
                other_config=row["other_config"],
                queues=row["queues"],
            )
            for row in qos
        },
        queues={
            row["_uuid"]: OvsQueue(
                row=row["_uuid"],
                owner=row["external_ids"].get(OWNER_KEY),
                other_config=row["other_config"],
            )
            for row in queues
        },
        version=next((row["ovs_version"] for row in roots if row["ovs_version"]), None),
    )


def _rows(line: str) -> Iterator[dict[str, Any]]:
    table = json.loads(line)
    for row in table["data"]:
        yield dict(zip(table["headings"], map(_plain_cell, row), strict=True))


def _plain_cell(cell: Any) -> Any:
    """Convert OVSDB's notation; a set of one member is written as the member."""
    if not isinstance(cell, list):
        return cell
    kind, content = cell
    if kind == "set":
        return tuple(_plain_cell(member) for member in content)
    if kind == "map":
        return {_plain_cell(key): _plain_cell(member) for key, member in content}
    return content


def _as_tuple(cell: Any) -> tuple[Any, ...]:
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
    """Parse the output of ``tc -j qdisc``, ``tc class`` and ``tc filter show dev …``."""
    parsed_qdiscs = json.loads(qdiscs or "[]")
    root = next((q for q in parsed_qdiscs if q.get("root") and q["kind"] != "noqueue"), None)
    if root is None:
        return ObservedTree()
    return ObservedTree(
        root=f"{root['kind']} {root['handle']}",
        classes={
            int(match["minor"], 16): TcClass(
                minor=int(match["minor"], 16),
                parent=int(match["parent"] or "0", 16),
                prio=int(match["prio"]) if match["prio"] else None,
                rate=_rate(match["rate"]),
                ceil=_rate(match["ceil"]),
            )
            for match in CLASS.finditer(classes)
        },
        leaves={
            minor: (qdisc["kind"], int(qdisc.get("options", {}).get("limit", 0)))
            for minor, qdisc in _leaves(parsed_qdiscs)
        },
        filters=frozenset(
            TcFilter(
                preference=int(match["preference"]),
                protocol=match["protocol"],
                match=match["match"],
                minor=int(match["minor"], 16),
            )
            for match in FILTER.finditer(filters)
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
    """Parse ``tc -s -j qdisc`` and ``tc -s class show dev …``; return counters by minor number.

    Sent packets are counted by the class, dropped and queued packets by its leaf.
    """
    leaves = dict(_leaves(json.loads(qdiscs or "[]")))
    counts = {}
    for match in SENT.finditer(classes):
        leaf = leaves.get(int(match["minor"], 16), {})
        counts[int(match["minor"], 16)] = ClassCounts(
            packets=int(match["packets"]),
            bytes=int(match["bytes"]),
            dropped_packets=int(leaf.get("drops", 0)),
            backlog_packets=int(leaf.get("qlen", 0)),
        )
    return counts

"""The tree of queues that a port is meant to have. Pure.

Up to eight classes, with guaranteed rates that Open vSwitch can set, are Open vSwitch's own
``linux-htb``::

    1:  ── 1:fffe ──┬── 1:1   class 0, prio 0
        (the link)  ├── 1:2   class 1, prio 1
                    └── …     up to prio 7, which is HTB's last

Others are a tree of the agent's, with one more level; HTB serves a lower level before a higher::

    1:  ── 1:fffe ──┬── 1:fffd ──┬── 1:1    class 0, prio 0
        (the link)  │ (the link) └── …      … class 7, prio 7
                    ├── 1:9               class 8, prio 0
                    └── …                   … class 15, prio 7

A class has the same place in its tree whatever other classes there are, so that they can come and
go without it.
"""

from dataclasses import dataclass
from typing import Literal

from firedex.wire import ShapedPort
from firedex_controller.agent.errors import CannotShape
from firedex_controller.marks import dscp_of_class

__all__ = [
    "INNER",
    "LINK",
    "MOST_CLASSES",
    "PortTree",
    "TcClass",
    "TcFilter",
    "leaf_handle",
    "tree_of",
]

LINK, INNER = 0xFFFE, 0xFFFD
HTB_PRIORITIES = 8
MOST_CLASSES = 2 * HTB_PRIORITIES
OVS_LEAST_BITS_PER_SECOND = 12_000  # it raises lower guarantees to this
OVS_MOST_BITS_PER_SECOND = 34_000_000_000  # it counts bytes per second in 32 bits
LEAST_RATE, MOST_RATE = 1_000, 1_000_000_000_000
LEAST_GUARANTEE = 64  # below, the time to refill a bucket does not fit into the kernel's 32 bits
MOST_PACKETS = 1_000_000
FIRST_ARP, FIRST_LLDP, FIRST_MARK, FIRST_REST = 1, 51, 101, 201
"""Preferences of filters; a lower one is asked first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcClass:
    """A class of an HTB tree. ``parent`` 0 is the qdisc itself; inner classes have no ``prio``."""

    minor: int
    parent: int
    prio: int | None
    rate: int
    ceil: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TcFilter:
    """A filter on the port. ``match`` is a word of the packet as tc shows it: value and mask."""

    preference: int
    protocol: str
    match: str
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTree:
    """A whole tree: its classes and the limits of its leaves, by minor number, and its filters."""

    made_by: Literal["open-vswitch", "agent"]
    rate: int
    classes: dict[int, TcClass]
    limits: dict[int, int]
    filters: frozenset[TcFilter]

    @property
    def lowest(self) -> int:
        """The minor number of the lowest class."""
        return max(self.limits)


def leaf_handle(minor: int) -> int:
    """The major number of the qdisc in a leaf class."""
    return minor + 15


def tree_of(shaped: ShapedPort) -> PortTree:
    """The tree for ``shaped``; CannotShape if there is none."""
    _check(shaped)
    link = _shown(shaped.bandwidth_bits_per_second)
    rates = {
        queue.priority: _shown(max(queue.guaranteed_bits_per_second, LEAST_GUARANTEE))
        for queue in shaped.classes
    }
    by_ovs = _suits_open_vswitch(link, rates)
    classes = {LINK: TcClass(minor=LINK, parent=0, prio=None, rate=link, ceil=link)}
    if not by_ovs:
        classes[INNER] = TcClass(minor=INNER, parent=LINK, prio=None, rate=link, ceil=link)
    for priority, rate in sorted(rates.items()):
        classes[priority + 1] = TcClass(
            minor=priority + 1,
            parent=LINK if by_ovs or priority >= HTB_PRIORITIES else INNER,
            prio=priority % HTB_PRIORITIES,
            rate=rate,
            ceil=link,
        )
    return PortTree(
        made_by="open-vswitch" if by_ovs else "agent",
        rate=link,
        classes=classes,
        limits={queue.priority + 1: queue.limit_packets for queue in shaped.classes},
        filters=_filters(sorted(rates)),
    )


def _suits_open_vswitch(link: int, rates: dict[int, int]) -> bool:
    return (
        max(rates) < HTB_PRIORITIES
        and min(rates.values()) >= OVS_LEAST_BITS_PER_SECOND
        and link <= OVS_MOST_BITS_PER_SECOND
    )


def _filters(priorities: list[int]) -> frozenset[TcFilter]:
    """ARP and LLDP to the highest class, each mark to its own, everything else to the lowest.

    Without LLDP a full link would look like one that is cut.

    A filter's preference says which class it leads to, so one that leads elsewhere is another
    filter: it can be added before the old one is removed, and no packet meets neither.
    """
    highest, lowest = priorities[0], priorities[-1]
    any_word = "00000000/00000000"
    found = {
        TcFilter(preference=FIRST_ARP + highest, protocol="arp", match=any_word, minor=highest + 1),
        TcFilter(
            preference=FIRST_LLDP + highest, protocol="LLDP", match=any_word, minor=highest + 1
        ),
        TcFilter(
            preference=FIRST_REST + MOST_CLASSES - lowest,
            protocol="all",
            match=any_word,
            minor=lowest + 1,
        ),
    }
    for priority in priorities:
        mark = dscp_of_class(priority) << 2
        found.add(
            TcFilter(
                preference=FIRST_MARK + priority,
                protocol="ip",
                match=f"{mark << 16:08x}/00fc0000",
                minor=priority + 1,
            )
        )
    return frozenset(found)


def _shown(bits_per_second: float) -> int:
    """The rate as tc can show it again: whole bytes; three to six digits of the next unit.

    So that what is shown can be compared with what is meant.
    """
    step = 8
    for unit in (1_000, 1_000_000, 1_000_000_000):
        if bits_per_second >= 1_000 * unit:
            step = unit
    return max(step, round(bits_per_second / step) * step)


def _check(shaped: ShapedPort) -> None:
    rate = shaped.bandwidth_bits_per_second
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise CannotShape(
            f"bandwidth_bits_per_second: {rate:g} is not within {LEAST_RATE:g} to {MOST_RATE:g}"
        )
    priorities = [queue.priority for queue in shaped.classes]
    if not priorities:
        raise CannotShape("classes: at least one is needed")
    twice = {priority for priority in priorities if priorities.count(priority) > 1}
    if twice:
        raise CannotShape(f"classes: priority {min(twice)} is there twice")
    if max(priorities) >= MOST_CLASSES:
        raise CannotShape(
            f"classes: priority {max(priorities)}; a port here has {MOST_CLASSES} classes, "
            f"0 to {MOST_CLASSES - 1}"
        )
    guaranteed = sum(queue.guaranteed_bits_per_second for queue in shaped.classes)
    if guaranteed > rate:
        raise CannotShape(
            f"classes: {guaranteed:g} bit/s are guaranteed, on a link with {rate:g} bit/s"
        )
    for queue in shaped.classes:
        if queue.limit_packets > MOST_PACKETS:
            raise CannotShape(
                f"classes: limit_packets {queue.limit_packets} of priority {queue.priority} is "
                f"more than {MOST_PACKETS}"
            )

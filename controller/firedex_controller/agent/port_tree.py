"""The desired tree of queues of a port. Pure.

Up to eight classes with guaranteed rates that Open vSwitch supports are built by Open vSwitch as
``linux-htb``::

    1:  ── 1:fffe ──┬── 1:1   class 0, prio 0
        (the link)  ├── 1:2   class 1, prio 1
                    └── …     up to prio 7, the lowest of HTB

Other trees are built by the agent, with one more level; HTB serves a lower level first::

    1:  ── 1:fffe ──┬── 1:fffd ──┬── 1:1    class 0, prio 0
        (the link)  │ (the link) └── …      … class 7, prio 7
                    ├── 1:9               class 8, prio 0
                    └── …                   … class 15, prio 7

The position of a class does not depend on other classes, so that they can be added and removed
without changing it.
"""

from dataclasses import dataclass
from typing import Literal

from firedex.wire import ShapedPort
from firedex_controller.errors import CannotShape
from firedex_controller.rules import dscp_of_class

__all__ = [
    "INNER",
    "LINK",
    "MAX_CLASSES",
    "PortTree",
    "TcClass",
    "TcFilter",
    "desired_tree",
    "leaf_handle",
]

LINK, INNER = 0xFFFE, 0xFFFD
HTB_PRIORITIES = 8
MAX_CLASSES = 2 * HTB_PRIORITIES
OVS_MIN_BITS_PER_SECOND = 12_000  # Open vSwitch raises lower guarantees to this
OVS_MAX_BITS_PER_SECOND = 34_000_000_000  # Open vSwitch stores bytes per second in 32 bits
MIN_RATE, MAX_RATE = 1_000, 1_000_000_000_000
MIN_GUARANTEE = 64  # with less, the time to refill a bucket exceeds the kernel's 32 bits
MAX_PACKETS = 1_000_000
FIRST_ARP, FIRST_LLDP, FIRST_MARK, FIRST_OTHER = 1, 51, 101, 201
"""Preferences of filters; the lowest is evaluated first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcClass:
    """A class of an HTB tree. ``parent`` 0 is the qdisc; inner classes have no ``prio``."""

    minor: int
    parent: int
    prio: int | None
    rate: int
    ceil: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TcFilter:
    """A filter of a port. ``match`` is the first word of the packet as tc prints it: value/mask."""

    preference: int
    protocol: str
    match: str
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTree:
    """A tree: its classes and the limits of its leaves, by minor number, and its filters."""

    built_by: Literal["open-vswitch", "agent"]
    rate: int
    classes: dict[int, TcClass]
    limits: dict[int, int]
    filters: frozenset[TcFilter]

    @property
    def lowest(self) -> int:
        """The minor number of the lowest class."""
        return max(self.limits)


def leaf_handle(minor: int) -> int:
    """Return the major number of the qdisc of a leaf class."""
    return minor + 15


def desired_tree(shaped: ShapedPort) -> PortTree:
    """Return the tree for ``shaped``; raise CannotShape if there is none."""
    _check_queues(shaped)
    link = _printable_rate(shaped.bandwidth_bits_per_second)
    rates = {
        queue.priority: _printable_rate(max(queue.guaranteed_bits_per_second, MIN_GUARANTEE))
        for queue in shaped.classes
    }
    built_by_ovs = _suits_open_vswitch(link, rates)
    classes = {LINK: TcClass(minor=LINK, parent=0, prio=None, rate=link, ceil=link)}
    if not built_by_ovs:
        classes[INNER] = TcClass(minor=INNER, parent=LINK, prio=None, rate=link, ceil=link)
    for priority, rate in sorted(rates.items()):
        classes[priority + 1] = TcClass(
            minor=priority + 1,
            parent=LINK if built_by_ovs or priority >= HTB_PRIORITIES else INNER,
            prio=priority % HTB_PRIORITIES,
            rate=rate,
            ceil=link,
        )
    return PortTree(
        built_by="open-vswitch" if built_by_ovs else "agent",
        rate=link,
        classes=classes,
        limits={queue.priority + 1: queue.limit_packets for queue in shaped.classes},
        filters=_filters(sorted(rates)),
    )


def _suits_open_vswitch(link: int, rates: dict[int, int]) -> bool:
    return (
        max(rates) < HTB_PRIORITIES
        and min(rates.values()) >= OVS_MIN_BITS_PER_SECOND
        and link <= OVS_MAX_BITS_PER_SECOND
    )


def _filters(priorities: list[int]) -> frozenset[TcFilter]:
    """Return the filters of a port.

    ARP and LLDP use the highest class, marked packets their class, and all others the lowest class.

    LLDP needs the highest class, because a full link would otherwise look like a cut one.

    The preference of a filter depends on its class. A filter to another class is therefore a new
    filter: it is added before the old one is removed, and every packet matches one of them.
    """
    highest, lowest = priorities[0], priorities[-1]
    any_word = "00000000/00000000"
    filters = {
        TcFilter(preference=FIRST_ARP + highest, protocol="arp", match=any_word, minor=highest + 1),
        TcFilter(
            preference=FIRST_LLDP + highest, protocol="LLDP", match=any_word, minor=highest + 1
        ),
        TcFilter(
            preference=FIRST_OTHER + MAX_CLASSES - lowest,
            protocol="all",
            match=any_word,
            minor=lowest + 1,
        ),
    }
    for priority in priorities:
        mark = dscp_of_class(priority) << 2
        filters.add(
            TcFilter(
                preference=FIRST_MARK + priority,
                protocol="ip",
                match=f"{mark << 16:08x}/00fc0000",
                minor=priority + 1,
            )
        )
    return frozenset(filters)


def _printable_rate(bits_per_second: float) -> int:
    """Round a rate to what tc prints: whole bytes, and three to six digits of the next unit.

    The printed rate can then be compared with the desired one.
    """
    step = 8
    for unit in (1_000, 1_000_000, 1_000_000_000):
        if bits_per_second >= 1_000 * unit:
            step = unit
    return max(step, round(bits_per_second / step) * step)


def _check_queues(shaped: ShapedPort) -> None:
    rate = shaped.bandwidth_bits_per_second
    if not MIN_RATE <= rate <= MAX_RATE:
        raise CannotShape(
            f"bandwidth_bits_per_second: {rate:g} must be between {MIN_RATE:g} and {MAX_RATE:g}"
        )
    priorities = [queue.priority for queue in shaped.classes]
    if not priorities:
        raise CannotShape("classes: at least one class is required")
    duplicates = {priority for priority in priorities if priorities.count(priority) > 1}
    if duplicates:
        raise CannotShape(f"classes: priority {min(duplicates)} is listed twice")
    if max(priorities) >= MAX_CLASSES:
        raise CannotShape(
            f"classes: priority {max(priorities)} is too high; a port has at most {MAX_CLASSES} "
            f"classes, 0 to {MAX_CLASSES - 1}"
        )
    guaranteed = sum(queue.guaranteed_bits_per_second for queue in shaped.classes)
    if guaranteed > rate:
        raise CannotShape(
            f"classes: the guaranteed rates sum to {guaranteed:g} bit/s, but the link has {rate:g}"
        )
    for queue in shaped.classes:
        if queue.limit_packets > MAX_PACKETS:
            raise CannotShape(
                f"classes: limit_packets of priority {queue.priority} is {queue.limit_packets}; "
                f"the maximum is {MAX_PACKETS}"
            )

"""The bounded buffer of one flow: if it is full, the oldest QoS 0 events are shed."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["BufferLimits", "FlowBuffer"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """The size of a buffer, and how long a QoS 0 event may wait in it."""

    bytes: int = 131_072
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    item: T
    size: int
    sheddable: bool
    added_at: float


class FlowBuffer(Generic[T]):
    """A first-in, first-out buffer that sheds only items added as sheddable."""

    def __init__(self, limits: BufferLimits) -> None:
        self._limits = limits
        self._entries: OrderedDict[int, _Entry[T]] = OrderedDict()
        self._sheddable: deque[int] = deque()
        self._next_number = 0
        self._bytes = 0
        self._unsheddable_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting_bytes(self) -> int:
        """Total size of the items."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether the items that cannot be shed exceed the limit: stop reading from the broker."""
        return self._unsheddable_bytes > self._limits.bytes

    def add(self, item: T, size: int, *, sheddable: bool, now: float) -> list[T]:
        """Add ``item`` and return the items that were shed to make room."""
        self._entries[self._next_number] = _Entry(item, size, sheddable, now)
        self._bytes += size
        if sheddable:
            self._sheddable.append(self._next_number)
        else:
            self._unsheddable_bytes += size
        self._next_number += 1
        shed: list[T] = []
        # The newest item stays even if it exceeds the limit alone: nothing waits behind it.
        while self._bytes > self._limits.bytes and self._sheddable and len(self._entries) > 1:
            shed.append(self._shed_oldest())
        return shed

    def take(self, now: float) -> tuple[T | None, list[T]]:
        """Remove and return the next item, if any, and the items shed because of their age."""
        oldest_allowed = now - self._limits.seconds
        shed: list[T] = []
        while self._sheddable and self._entries[self._sheddable[0]].added_at < oldest_allowed:
            shed.append(self._shed_oldest())
        if not self._entries:
            return None, shed
        _, entry = self._entries.popitem(last=False)
        if entry.sheddable:
            self._sheddable.popleft()
        else:
            self._unsheddable_bytes -= entry.size
        self._bytes -= entry.size
        return entry.item, shed

    def take_matching(self, matches: Callable[[T], bool]) -> list[T]:
        """Remove and return all items that match, of any age, in order."""
        numbers = [number for number, entry in self._entries.items() if matches(entry.item)]
        taken = [self._entries.pop(number) for number in numbers]
        self._bytes -= sum(entry.size for entry in taken)
        self._unsheddable_bytes -= sum(entry.size for entry in taken if not entry.sheddable)
        self._sheddable = deque(number for number in self._sheddable if number in self._entries)
        return [entry.item for entry in taken]

    def _shed_oldest(self) -> T:
        entry = self._entries.pop(self._sheddable.popleft())
        self._bytes -= entry.size
        return entry.item

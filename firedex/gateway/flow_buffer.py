"""What waits for a flow's socket: bounded; the oldest events at QoS 0 give way. Pure."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["BufferLimits", "FlowBuffer", "Waiting"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """How much may wait, and how long an event at QoS 0 may."""

    bytes: int = 131_072
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """One packet, or event, that waits."""

    item: T
    size: int
    sheddable: bool
    since: float


class FlowBuffer(Generic[T]):
    """First in, first out; what may not be shed never is, and is told of by ``full``."""

    def __init__(self, limits: BufferLimits) -> None:
        self._limits = limits
        self._all: OrderedDict[int, Waiting[T]] = OrderedDict()
        self._sheddable: deque[int] = deque()
        self._next = 0
        self._bytes = 0
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def waiting_bytes(self) -> int:
        """All that waits."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether what may not be shed fills it: time to take no more from the broker."""
        return self._kept_bytes > self._limits.bytes

    def add(self, item: T, size: int, *, sheddable: bool, now: float) -> list[T]:
        """Let ``item`` wait; return what had to give way."""
        self._all[self._next] = Waiting(item, size, sheddable, now)
        self._bytes += size
        if sheddable:
            self._sheddable.append(self._next)
        else:
            self._kept_bytes += size
        self._next += 1
        shed: list[T] = []
        # The newest stays even if it alone is too large: nothing that fits waits behind it.
        while self._bytes > self._limits.bytes and self._sheddable and len(self._all) > 1:
            shed.append(self._shed_oldest())
        return shed

    def take(self, now: float) -> tuple[T | None, list[T]]:
        """The next that is to be sent, if any, and what has become too old to be."""
        oldest_allowed = now - self._limits.seconds
        shed: list[T] = []
        while self._sheddable and self._all[self._sheddable[0]].since < oldest_allowed:
            shed.append(self._shed_oldest())
        if not self._all:
            return None, shed
        _, waiting = self._all.popitem(last=False)
        if waiting.sheddable:
            self._sheddable.popleft()
        else:
            self._kept_bytes -= waiting.size
        self._bytes -= waiting.size
        return waiting.item, shed

    def take_all(self, wanted: Callable[[T], bool]) -> list[T]:
        """Everything that is wanted, however old, in its order."""
        found = [number for number, each in self._all.items() if wanted(each.item)]
        taken = [self._all.pop(number) for number in found]
        self._bytes -= sum(each.size for each in taken)
        self._kept_bytes -= sum(each.size for each in taken if not each.sheddable)
        self._sheddable = deque(number for number in self._sheddable if number in self._all)
        return [each.item for each in taken]

    def _shed_oldest(self) -> T:
        waiting = self._all.pop(self._sheddable.popleft())
        self._bytes -= waiting.size
        return waiting.item

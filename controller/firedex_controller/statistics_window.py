"""Rates from counters: what was counted between two looks, by the time between them. Pure."""

from collections import deque
from collections.abc import Hashable, Mapping

__all__ = ["CounterWindow"]

Counters = Mapping[Hashable, tuple[int, ...]]


class CounterWindow:
    """Keeps looks of the last ``seconds``; a counter that went back has begun anew."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, Counters]] = deque()

    def add(self, now: float, counters: Counters) -> None:
        """Keep a look."""
        self._looks.append((now, counters))
        while len(self._looks) > 2 and self._looks[1][0] <= now - self._seconds:
            self._looks.popleft()

    @property
    def span_seconds(self) -> float:
        """Between the first look that is kept and the last."""
        return self._looks[-1][0] - self._looks[0][0] if self._looks else 0.0

    def rates(self, key: Hashable) -> tuple[float, ...]:
        """Of one thing's counters, per second over the window."""
        last = self._looks[-1][1][key]
        first = self._looks[0][1].get(key, (0,) * len(last))
        if self.span_seconds <= 0:
            return (0.0,) * len(last)
        return tuple(
            (now - then if now >= then else now) / self.span_seconds
            for now, then in zip(last, first, strict=True)
        )

"""Packets on their way, as columns, and the order of time among them.

A simulation runs in slices of time: nothing published after the end of a slice can reach any queue
before it, so each stage may work off what reaches it before that moment and keep the rest.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

__all__ = ["AT_BUFFER", "AT_GATEWAY", "AT_METER", "DELIVERED", "ON_LINK", "Batch", "Timeline"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
DELIVERED, AT_GATEWAY, AT_METER, AT_BUFFER, ON_LINK = range(5)
"""What became of a packet: as ``firedex.wire.Outcome`` has it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Packets: which publication they are of and whose (``source``), and on which stream.

    ``key`` is what a stage knows them by: the source before the broker, the stream behind it.
    ``time``: when they reach the next queue, or have arrived. ``factor``: the publication's size
    over the mean. Columns are replaced and never written to: several may be one array.
    """

    publication: Integers
    source: NDArray[np.int32]
    key: NDArray[np.int32]
    published: Floats
    factor: Floats
    time: Floats
    fate: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def empty(cls) -> "Batch":
        """No packets."""
        nothing = np.empty(0)
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            nothing,
            nothing,
            nothing,
            np.empty(0, np.int8),
        )

    def take(self, rows: Integers | Booleans) -> "Batch":
        """These packets, in this order; nothing is copied where all or none are meant."""
        if rows.dtype == np.bool_:
            count = int(np.count_nonzero(rows))
            if count in (0, len(rows)):
                return self if count else Batch.empty()
        return Batch(*(getattr(self, field.name)[rows] for field in fields(self)))

    def part(self, start: int, stop: int) -> "Batch":
        """A run of packets; a view, not a copy."""
        return Batch(*(getattr(self, field.name)[start:stop] for field in fields(self)))

    @classmethod
    def joined(cls, *batches: "Batch") -> "Batch":
        """All packets, one batch after another."""
        some = [batch for batch in batches if len(batch)]
        if len(some) == 1:
            return some[0]
        if not some:
            return cls.empty()
        return cls(
            *(
                np.concatenate([getattr(batch, field.name) for batch in some])
                for field in fields(cls)
            )
        )


class Timeline:
    """What is due at a stage, in order of time; what is not due yet waits for a later slice."""

    def __init__(self) -> None:
        self._later = Batch.empty()

    def due(self, coming: Batch, until: float) -> Batch:
        """Everything that reaches the stage before ``until``."""
        everything = Batch.joined(self._later, coming)
        if (everything.time[1:] < everything.time[:-1]).any():
            everything = everything.take(np.argsort(everything.time, kind="stable"))
        cut = int(np.searchsorted(everything.time, until))
        self._later = everything.part(cut, len(everything))
        return everything.part(0, cut)

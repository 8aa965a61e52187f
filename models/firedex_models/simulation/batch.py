"""Packets in the network as columns, ordered by time.

A simulation runs in time slices. A packet that is published after the end of a slice cannot reach a
queue before that end. So each stage processes the packets that arrive before the end of the slice,
and keeps the others for the next slice.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from firedex_models.columns import Booleans, Floats, Integers

__all__ = ["AT_BUFFER", "AT_GATEWAY", "AT_METER", "DELIVERED", "ON_LINK", "Batch", "PendingPackets"]

DELIVERED, AT_GATEWAY, AT_METER, AT_BUFFER, ON_LINK = range(5)
"""The outcomes of a packet, as in ``firedex.wire.Outcome``."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Packets as columns.

    ``key``: the source of a packet before the broker, its stream after the broker. ``published``:
    the time of publication. ``time``: when the packet reaches the next queue or its destination.
    ``factor``: the size of the publication relative to the mean. Columns are replaced, never
    modified, because batches may share arrays.
    """

    publication: Integers
    source: NDArray[np.int32]
    key: NDArray[np.int32]
    published: Floats
    factor: Floats
    time: Floats
    outcome: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def empty(cls) -> "Batch":
        """Return a batch without packets."""
        empty = np.empty(0)
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            empty,
            empty,
            empty,
            np.empty(0, np.int8),
        )

    def take(self, rows: Integers | Booleans) -> "Batch":
        """Return these packets in this order; a mask that selects all or none copies nothing."""
        if rows.dtype == np.bool_:
            count = int(np.count_nonzero(rows))
            if count in (0, len(rows)):
                return self if count else Batch.empty()
        return Batch(*(getattr(self, field.name)[rows] for field in fields(self)))

    def slice_rows(self, start: int, stop: int) -> "Batch":
        """Return the packets from ``start`` to ``stop`` as a view."""
        return Batch(*(getattr(self, field.name)[start:stop] for field in fields(self)))

    @classmethod
    def concatenate(cls, *batches: "Batch") -> "Batch":
        """Return the concatenation of the batches."""
        non_empty = [batch for batch in batches if len(batch)]
        if len(non_empty) == 1:
            return non_empty[0]
        if not non_empty:
            return cls.empty()
        return cls(
            *(
                np.concatenate([getattr(batch, field.name) for batch in non_empty])
                for field in fields(cls)
            )
        )


class PendingPackets:
    """The packets at a stage in order of time; packets that are not due wait for a later slice."""

    def __init__(self) -> None:
        self._later = Batch.empty()

    def take_due(self, arriving: Batch, until: float) -> Batch:
        """Return the packets that reach the stage before ``until``."""
        packets = Batch.concatenate(self._later, arriving)
        if (packets.time[1:] < packets.time[:-1]).any():
            packets = packets.take(np.argsort(packets.time, kind="stable"))
        cut = int(np.searchsorted(packets.time, until))
        self._later = packets.slice_rows(cut, len(packets))
        return packets.slice_rows(0, cut)

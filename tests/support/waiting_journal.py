"""A journal whose commits a test controls."""

from collections.abc import Sequence

from firedex.federation.journal import Done, MemoryJournal, Operation


class WaitingJournal(MemoryJournal):
    """A journal that commits when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Sequence[Operation], Done | None]] = []
        self.waits = False

    def submit(self, operations: Sequence[Operation], done: Done | None = None) -> None:
        if self.waits:
            self.waiting.append((operations, done))
        else:
            super().submit(operations, done)

    def commit(self) -> None:
        self.waits = False
        for operations, done in self.waiting:
            self.submit(operations, done)
        self.waiting = []

"""Did the machine itself stand still? A measurement in which it did says nothing of the network."""

import threading
import time
from types import TracebackType

__all__ = ["StallMeter"]

NAP_SECONDS = 0.005
NOTICED_SECONDS = 0.010
"""Oversleeping by less is a scheduler's ordinary day."""


class StallMeter:
    """Naps all the time while it is entered, and adds up by how much it overslept."""

    def __init__(self) -> None:
        self.stalled_seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._nap, daemon=True)

    def __enter__(self) -> "StallMeter":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _nap(self) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            time.sleep(NAP_SECONDS)
            overslept = time.monotonic() - start - NAP_SECONDS
            if overslept > NOTICED_SECONDS:
                self.stalled_seconds += overslept

"""What a subscriber is given."""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["UNMANAGED_FLOW", "UNMANAGED_PRIORITY", "Event", "OnEvent"]

UNMANAGED_FLOW = 65_535
"""The flow of events that came over a plain connection: no plan knows it."""
UNMANAGED_PRIORITY = 63
"""What is unmanaged shares the lowest class."""


class Event(NamedTuple):
    """One delivered event. What a publisher did not stamp has no id and no delay.

    ``published_at_seconds`` is by the publisher's clock and ``received_at_seconds`` by ours.
    """

    topic: str
    filter: str
    payload: bytes
    flow: int
    priority: int
    configuration_version: int
    event_id: str | None
    published_at_seconds: float | None
    received_at_seconds: float
    qos: int = 0
    retained: bool = False

    @property
    def delay_seconds(self) -> float | None:
        """From publishing to receiving, by two clocks; None for what is not stamped or retained."""
        if self.published_at_seconds is None or self.retained:
            return None
        return self.received_at_seconds - self.published_at_seconds

    @property
    def managed(self) -> bool:
        """Whether it came over a flow of a plan."""
        return self.flow != UNMANAGED_FLOW


OnEvent = Callable[[Event], None]

"""How many events were offered to each flow and how many left for it, by topic. Pure."""

from dataclasses import dataclass

from firedex.wire.reports import MOST_TOPICS_IN_A_REPORT

__all__ = ["FlowCounts", "TopicTally", "Totals"]

MOST_TOPICS = MOST_TOPICS_IN_A_REPORT
"""Of one flow within one window; events of further topics are counted in the totals alone."""


class TopicTally:
    """Events of one topic within a window; plain and mutable, since every event touches it."""

    __slots__ = ("delivered", "offered", "payload_bytes")

    def __init__(self) -> None:
        self.offered = 0
        self.delivered = 0
        self.payload_bytes = 0


@dataclass(slots=True)
class Totals:
    """Since the start: what was offered, delivered, and lost to what."""

    offered: int = 0
    delivered: int = 0
    dropped: int = 0
    shed: int = 0
    refused: int = 0

    def add(self, other: "Totals") -> None:
        """Take another's counts in."""
        self.offered += other.offered
        self.delivered += other.delivered
        self.dropped += other.dropped
        self.shed += other.shed
        self.refused += other.refused


class FlowCounts:
    """One flow's counts: totals since the start, and by topic since the last report."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._topics: dict[bytes, TopicTally] = {}
        self._overflow = TopicTally()

    def topic(self, name: bytes) -> TopicTally:
        """The tally of a topic."""
        tally = self._topics.get(name)
        if tally is None:
            if len(self._topics) >= MOST_TOPICS:
                return self._overflow
            tally = self._topics[name] = TopicTally()
        return tally

    def take_window(self) -> dict[bytes, TopicTally]:
        """What was counted since the last time; counting begins anew."""
        taken, self._topics = self._topics, {}
        return taken

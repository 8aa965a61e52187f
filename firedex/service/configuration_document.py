"""A configuration as JSON in pieces, one for each subscriber, so that nobody parses the whole.

A site has thousands of flows and every subscriber asks for its own few: its answer is put together
from text. One line holds what all share; each further line a subscriber: its id, its flows, the
predictions of its subscriptions, with tabs between (JSON has neither raw tabs nor line ends).
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from firedex.wire import Configuration, from_json

__all__ = ["ConfigurationDocument", "Piece"]

FLOWS, ROWS = '"flows":[]', '"subscriptions":[]'


@dataclass(frozen=True, slots=True)
class Piece:
    """What one subscriber has: JSON lists without their brackets."""

    flows: str
    rows: str


@dataclass(frozen=True, slots=True)
class ConfigurationDocument:
    """The configuration without flows and subscriptions, and the pieces by subscriber.

    ``short``: the head without queues, of which there is one for each subscriber; it is what a
    subscriber's own answer begins with.
    """

    head: str
    short: str
    pieces: Mapping[str, Piece]

    def whole(self) -> str:
        """The JSON of all of it."""
        return _with(
            self.head,
            ",".join(p.flows for p in self.pieces.values() if p.flows),
            ",".join(p.rows for p in self.pieces.values() if p.rows),
        )

    def of(self, subscriber: str) -> str:
        """The JSON with this subscriber's flows and predictions alone."""
        piece = self.pieces.get(subscriber)
        return _with(self.short, piece.flows, piece.rows) if piece else self.short

    def without_flows(self) -> str:
        """The JSON of what all share, in short."""
        return self.short

    def value(self) -> Configuration:
        """As a value of the contract."""
        return from_json(Configuration, self.whole(), tolerant=True)

    def head_value(self) -> Configuration:
        """What all share, as a value."""
        return from_json(Configuration, self.short, tolerant=True)

    def value_of(self, subscriber: str) -> Configuration:
        """The same with this subscriber's flows alone."""
        return from_json(Configuration, self.of(subscriber), tolerant=True)

    def to_bytes(self) -> bytes:
        """For keeping."""
        lines = [self.head, self.short]
        lines += [f"{who}\t{piece.flows}\t{piece.rows}" for who, piece in self.pieces.items()]
        return zlib.compress("\n".join(lines).encode(), 1)

    @classmethod
    def from_bytes(cls, kept: bytes) -> "ConfigurationDocument":
        """As it was kept."""
        head, short, *lines = zlib.decompress(kept).decode().split("\n")
        pieces = {}
        for line in lines:
            who, flows, rows = line.split("\t")
            pieces[who] = Piece(flows, rows)
        return cls(head=head, short=short, pieces=pieces)


def _with(head: str, flows: str, rows: str) -> str:
    text = head.replace(FLOWS, f'"flows":[{flows}]', 1)
    return text.replace(ROWS, f'"subscriptions":[{rows}]', 1)

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
    """The configuration without flows and subscriptions, and the pieces by subscriber."""

    head: str
    pieces: Mapping[str, Piece]

    def whole(self) -> str:
        """The JSON of all of it."""
        return self._with(
            ",".join(p.flows for p in self.pieces.values() if p.flows),
            ",".join(p.rows for p in self.pieces.values() if p.rows),
        )

    def of(self, subscriber: str) -> str:
        """The JSON with this subscriber's flows and predictions alone."""
        piece = self.pieces.get(subscriber)
        return self._with(piece.flows, piece.rows) if piece else self.head

    def without_flows(self) -> str:
        """The JSON of what all share."""
        return self.head

    def _with(self, flows: str, rows: str) -> str:
        text = self.head.replace(FLOWS, f'"flows":[{flows}]', 1)
        return text.replace(ROWS, f'"subscriptions":[{rows}]', 1)

    def value(self) -> Configuration:
        """As a value of the contract."""
        return from_json(Configuration, self.whole(), tolerant=True)

    def head_value(self) -> Configuration:
        """What all share, as a value."""
        return from_json(Configuration, self.head, tolerant=True)

    def value_of(self, subscriber: str) -> Configuration:
        """The same with this subscriber's flows alone."""
        return from_json(Configuration, self.of(subscriber), tolerant=True)

    def to_bytes(self) -> bytes:
        """For keeping."""
        lines = [self.head]
        lines += [f"{who}\t{piece.flows}\t{piece.rows}" for who, piece in self.pieces.items()]
        return zlib.compress("\n".join(lines).encode(), 1)

    @classmethod
    def from_bytes(cls, kept: bytes) -> "ConfigurationDocument":
        """As it was kept."""
        head, *lines = zlib.decompress(kept).decode().split("\n")
        pieces = {}
        for line in lines:
            who, flows, rows = line.split("\t")
            pieces[who] = Piece(flows, rows)
        return cls(head=head, pieces=pieces)

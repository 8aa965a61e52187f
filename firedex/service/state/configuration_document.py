"""A configuration as JSON in pieces, one per subscriber, so that no request parses all of it.

A site has thousands of flows, and each subscriber requests only its own: the response is assembled
from text. Stored, the first two lines contain the common part; each further line contains one
subscriber: its id, its flows and the predictions of its subscriptions, separated by tabs (JSON text
contains neither raw tabs nor line ends). Pure.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from firedex.wire import Configuration, EncodedJson, Flow, SubscriptionPrediction, from_json

__all__ = ["ConfigurationDocument", "Piece"]

FLOWS, ROWS = '"flows":[]', '"subscriptions":[]'


@dataclass(frozen=True, slots=True)
class Piece:
    """The flows and predictions of one subscriber: JSON lists without their brackets."""

    flows: str
    rows: str


@dataclass(frozen=True, slots=True)
class ConfigurationDocument:
    """The configuration without flows and subscriptions, and the pieces by subscriber.

    ``short`` is ``head`` without the predictions of queues, which are long; responses to a
    subscriber contain it.
    """

    head: str
    short: str
    pieces: Mapping[str, Piece]

    def whole(self) -> EncodedJson:
        """Return the configuration with all flows and predictions."""
        return _insert(
            self.head,
            ",".join(p.flows for p in self.pieces.values() if p.flows),
            ",".join(p.rows for p in self.pieces.values() if p.rows),
        )

    def for_subscriber(self, subscriber: str) -> EncodedJson:
        """Return the configuration with the flows and predictions of one subscriber only."""
        piece = self.pieces.get(subscriber)
        return _insert(self.short, piece.flows, piece.rows) if piece else EncodedJson(self.short)

    def without_flows(self) -> EncodedJson:
        """Return the part of the configuration that all subscribers share."""
        return EncodedJson(self.short)

    def value(self) -> Configuration:
        """Return the configuration as a value."""
        return from_json(Configuration, self.whole().text, tolerant=True)

    def head_value(self) -> Configuration:
        """Return the part that all subscribers share, as a value."""
        return from_json(Configuration, self.short, tolerant=True)

    def flows_of(self, subscriber: str) -> tuple[Flow, ...]:
        """Return the flows of a subscriber; none if it is not in the configuration."""
        piece = self.pieces.get(subscriber)
        return from_json(tuple[Flow, ...], f"[{piece.flows}]", tolerant=True) if piece else ()

    def predictions_of(self, subscriber: str) -> tuple[SubscriptionPrediction, ...]:
        """Return the predictions of a subscriber; none if it is not in the configuration."""
        piece = self.pieces.get(subscriber)
        if piece is None:
            return ()
        return from_json(tuple[SubscriptionPrediction, ...], f"[{piece.rows}]", tolerant=True)

    def changed_subscribers(self, before: "ConfigurationDocument | None") -> frozenset[str]:
        """Return the subscribers whose flows differ from those of an earlier configuration."""
        earlier = before.pieces if before else {}
        changed = {
            name
            for name, piece in self.pieces.items()
            if name not in earlier or earlier[name].flows != piece.flows
        }
        return frozenset(changed | (earlier.keys() - self.pieces.keys()))

    def to_bytes(self) -> bytes:
        """Return the compressed form for the database."""
        lines = [self.head, self.short]
        lines += [
            f"{subscriber}\t{piece.flows}\t{piece.rows}"
            for subscriber, piece in self.pieces.items()
        ]
        return zlib.compress("\n".join(lines).encode(), 1)

    @classmethod
    def from_bytes(cls, stored: bytes) -> "ConfigurationDocument":
        """Read the compressed form."""
        head, short, *lines = zlib.decompress(stored).decode().split("\n")
        pieces = {}
        for line in lines:
            subscriber, flows, rows = line.split("\t")
            pieces[subscriber] = Piece(flows, rows)
        return cls(head=head, short=short, pieces=pieces)


def _insert(head: str, flows: str, rows: str) -> EncodedJson:
    text = head.replace(FLOWS, f'"flows":[{flows}]', 1)
    return EncodedJson(text.replace(ROWS, f'"subscriptions":[{rows}]', 1))

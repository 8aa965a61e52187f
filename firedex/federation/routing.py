"""Forwarding of routed frames: one copy to each next hop, with the destinations behind it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firedex.federation.frames import (
    MAX_SITES_PER_FRAME,
    RELIABLE,
    Destination,
    FrameType,
    RoutedFrame,
    encode_forwarded,
    encode_message,
    encode_routed,
    only_destination,
)
from firedex.federation.membership import Neighbours

__all__ = ["Counters", "Router"]


@dataclass(slots=True)
class Counters:
    """What a federator has counted since it started."""

    events_from_broker: int = 0
    events_sent: int = 0
    events_forwarded: int = 0
    events_delivered: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    expired: int = 0
    hop_limit: int = 0
    unreachable: int = 0
    congestion: int = 0
    broker_unavailable: int = 0
    broker_refused: int = 0
    too_large: int = 0
    journal_limit: int = 0
    resent: int = 0
    refused_filters: int = 0
    malformed: int = 0


class Router:
    """Sends frames towards their destinations; `set_next_hops` follows the topology."""

    def __init__(self, site: str, neighbours: Neighbours, counters: Counters) -> None:
        self.site, self.counters = site, counters
        self.next_hops: dict[str, str] = {}
        self._hops_by_name: dict[bytes, str] = {}
        self._neighbours = neighbours

    def set_next_hops(self, next_hops: dict[str, str]) -> None:
        """Replace the next hop to each site that can be reached."""
        self.next_hops = next_hops
        self._hops_by_name = {site.encode(): hop for site, hop in next_hops.items()}

    def is_reachable(self, site: str) -> bool:
        """Return whether there is a path to a site."""
        return site in self.next_hops

    def send(self, frame: RoutedFrame, *, droppable: bool) -> None:
        """Send one copy of a frame to each next hop."""
        if len(frame.destinations) == 1:  # by far the most frequent
            hop = self.next_hops.get(frame.destinations[0].site)
            if hop is None:
                self.counters.unreachable += 1
            elif not self._neighbours.send(hop, encode_routed(frame), droppable=droppable):
                self.counters.congestion += 1
            return
        by_hop: dict[str, list[Destination]] = {}
        for destination in frame.destinations:
            hop = self.next_hops.get(destination.site)
            if hop is None:
                self.counters.unreachable += 1
            else:
                by_hop.setdefault(hop, []).append(destination)
        for hop, destinations in by_hop.items():
            for start in range(0, len(destinations), MAX_SITES_PER_FRAME):
                part = tuple(destinations[start : start + MAX_SITES_PER_FRAME])
                copy = frame._replace(destinations=part)
                if not self._neighbours.send(hop, encode_routed(copy), droppable=droppable):
                    self.counters.congestion += 1

    def send_message(self, sites: Sequence[str], content: dict[str, Any]) -> None:
        """Send a control message to sites."""
        self.send(encode_message(self.site, sites, content), droppable=False)

    def divide(self, frame: RoutedFrame) -> tuple[Destination | None, RoutedFrame | None]:
        """Return the destination that is this site, and the frame for the others."""
        own: Destination | None = None
        others: list[Destination] = []
        for destination in frame.destinations:
            if destination.site == self.site:
                own = destination
            else:
                others.append(destination)
        if not others:
            return own, None
        if frame.hops_left <= 1:
            self.counters.hop_limit += 1
            return own, None
        return own, frame._replace(destinations=tuple(others), hops_left=frame.hops_left - 1)

    def forward_event(self, body: bytes) -> bool:
        """Forward a received event whose only destination is another site; return whether it was.

        The event is not decoded. `divide` handles all other frames.
        """
        name = only_destination(body)
        hop = self._hops_by_name.get(name) if name is not None else None
        if hop is None or body[2] <= 1:
            return False
        self.counters.events_forwarded += 1
        frame = encode_forwarded(FrameType.EVENT, body)
        if not self._neighbours.send(hop, frame, droppable=not body[0] & RELIABLE):
            self.counters.congestion += 1
        return True

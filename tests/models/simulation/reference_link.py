"""A simple, slow simulation of one link with lists; shares no code with the compiled kernels."""

from dataclasses import dataclass

__all__ = ["Packet", "departures"]


@dataclass(frozen=True, slots=True)
class Packet:
    arrival: float
    priority: int
    service: float


def departures(packets: list[Packet], *, kind: str, room: int) -> list[float | None]:
    """Return the departure time of each packet; None if the buffer dropped it."""
    left: list[float | None] = [None] * len(packets)
    waiting: list[int] = []
    free = 0.0
    pending = list(range(len(packets)))
    while pending or waiting:
        if waiting and (not pending or free < packets[pending[0]].arrival):
            # The link is free before the next arrival: send the oldest packet of the highest class.
            chosen = min(waiting, key=lambda n: (packets[n].priority, n))
            waiting.remove(chosen)
            free += packets[chosen].service
            left[chosen] = free
            continue
        newcomer = pending.pop(0)
        packet = packets[newcomer]
        idle = free <= packet.arrival
        if not waiting:
            free = max(free, packet.arrival)
        # An idle link has room for one more packet, which is sent immediately.
        _join(waiting, newcomer, packets, kind, room + 1 if idle else room)
    return left


def _join(waiting: list[int], newcomer: int, packets: list[Packet], kind: str, room: int) -> None:
    priority = packets[newcomer].priority
    if kind == "shared-push-out" and len(waiting) >= room:
        lowest = max((packets[n].priority for n in waiting), default=-1)
        if priority >= lowest:
            return
        waiting.remove(max(n for n in waiting if packets[n].priority == lowest))
    if kind == "per-class-head-drop":
        own = [n for n in waiting if packets[n].priority == priority]
        if len(own) >= room:
            waiting.remove(own[0])
    waiting.append(newcomer)

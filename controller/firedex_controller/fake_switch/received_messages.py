"""The record of what a switch was sent, in order, so that tests can look at the order."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from firedex_controller.fake_switch.flow_entries import FlowChange
from firedex_controller.fake_switch.meter_table import MeterChange
from firedex_controller.fake_switch.requests import PacketOut

__all__ = ["Received", "order_of"]

HOUSEKEEPING = {"hello", "echo request", "echo reply", "features request", "set config"}


@dataclass(frozen=True, slots=True)
class Received:
    """One message: its ``kind``, readable (``flow add``, ``barrier``), and what it asks for."""

    kind: str
    transaction: int
    subject: FlowChange | MeterChange | PacketOut | None = None
    bundle: int | None = None
    refused: tuple[int, int] | None = None


def order_of(record: Iterable[Received]) -> list[str]:
    """The kinds of changes in order, each run of one kind once; no greetings, no statistics."""
    kinds = (
        message.kind
        for message in record
        if message.kind not in HOUSEKEEPING and not message.kind.startswith("statistics")
    )
    return [kind for kind, _ in groupby(kinds)]

"""The event stamp, which the gateway reads too: `firedex.event_stamp`."""

from firedex.event_stamp import HEADER_BYTES, PROPERTY, EventStamp, new_origin, split_header

__all__ = ["HEADER_BYTES", "PROPERTY", "EventStamp", "new_origin", "split_header"]

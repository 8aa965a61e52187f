"""Security events: what a process refused or limited, and who caused it."""

from typing import Annotated

from pydantic import Field

from firedex.wire.values import Identifier, PositiveCount, Timestamp, value

__all__ = ["MAX_SECURITY_EVENTS", "SecurityEvent"]

MAX_SECURITY_EVENTS = 100
"""Maximum number of security events in one report."""


@value
class SecurityEvent:
    """Something that a process refused or limited, with the number of occurrences.

    ``part`` reports it. ``kind`` names it in a few words joined by hyphens, such as
    ``policed-topic`` or ``spoofed-address``. ``subject`` names the cause: an address, a client, a
    subscriber or a topic. ``detail`` is a sentence for people.
    """

    part: Identifier
    kind: Identifier
    subject: Annotated[str, Field(strict=True, min_length=1, max_length=300)]
    count: PositiveCount
    first_at: Timestamp
    last_at: Timestamp
    detail: Annotated[str, Field(strict=True, max_length=500)] = ""

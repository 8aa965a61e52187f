"""What happens to a site while it is emulated, and when, in seconds after the traffic begins."""

from typing import Annotated, Literal

from pydantic import Field

from firedex.wire.mqtt_names import TopicName
from firedex.wire.values import Flag, Identifier, NonNegative, Positive, value

__all__ = [
    "BandwidthChange",
    "Join",
    "KillablePart",
    "Leave",
    "LinkChange",
    "PartKill",
    "PhaseBegins",
    "Surge",
    "TimelineEvent",
]

KillablePart = Literal["broker", "gateway", "service", "controller", "switch-agent"]


@value
class Join:
    """A subscriber comes; one whose first event this is was not there at the beginning."""

    kind: Literal["join"] = "join"
    at_seconds: NonNegative
    subscriber: Identifier


@value
class Leave:
    """A subscriber goes, and takes its registration with it."""

    kind: Literal["leave"] = "leave"
    at_seconds: NonNegative
    subscriber: Identifier


@value
class PhaseBegins:
    """The incident goes into another phase; ``phases`` says what that makes of utilities."""

    kind: Literal["phase"] = "phase"
    at_seconds: NonNegative
    phase: Identifier


@value
class BandwidthChange:
    """A switch's bandwidth becomes another, and the service is told."""

    kind: Literal["bandwidth"] = "bandwidth"
    at_seconds: NonNegative
    switch: Identifier
    bandwidth_bits_per_second: Positive


@value
class LinkChange:
    """A link between two switches goes down, or comes back."""

    kind: Literal["link"] = "link"
    at_seconds: NonNegative
    from_: Annotated[Identifier, Field(alias="from")]
    to: Identifier
    up: Flag


@value
class Surge:
    """A publisher publishes ``factor`` times what it has declared, one topic or all, for a while.

    The service is not told: it has to notice.
    """

    kind: Literal["surge"] = "surge"
    at_seconds: NonNegative
    publisher: Identifier
    topic: TopicName | None = None
    factor: NonNegative
    for_seconds: Positive


@value
class PartKill:
    """A part is killed without warning, and started again after ``down_seconds``."""

    kind: Literal["kill"] = "kill"
    at_seconds: NonNegative
    part: KillablePart
    down_seconds: NonNegative = 1.0


TimelineEvent = Annotated[
    Join | Leave | PhaseBegins | BandwidthChange | LinkChange | Surge | PartKill,
    Field(discriminator="kind"),
]

"""Who publishes what, how often and how large; who wants it, and what it is worth to them."""

from typing import Annotated, Literal

from pydantic import Field

from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.utility import Utility
from firedex.wire.values import Flag, Identifier, NonNegative, Positive, value

__all__ = [
    "Arrivals",
    "Publication",
    "Publisher",
    "QualityOfService",
    "SizeDistribution",
    "Subscriber",
    "Subscription",
    "Topic",
    "Transport",
]

LARGEST_PAYLOAD_BYTES = 268_000_000
"""What an MQTT packet can hold, with room for its headers."""

Arrivals = Literal["poisson", "periodic"]
QualityOfService = Annotated[int, Field(strict=True, ge=0, le=2)]
EventBytes = Annotated[int, Field(strict=True, ge=0, le=LARGEST_PAYLOAD_BYTES)]
SizeDistribution = Literal["fixed", "exponential"]
Transport = Literal["udp", "tcp"]


@value
class Topic:
    """A topic and the size of its events.

    ``event_bytes`` is the publisher's payload; headers are added by
    ``firedex.wire.packet_sizes``. ``exponential`` speaks of the size on the wire, with payload plus
    headers as its mean. ``stamped`` events carry FireDeX's event stamp (``None``: as the scenario
    says).
    """

    name: TopicName
    event_bytes: EventBytes
    size_distribution: SizeDistribution = "fixed"
    stamped: Flag | None = None


@value
class Publication:
    """The rate at which one publisher publishes to one topic."""

    topic: TopicName
    rate_per_second: NonNegative
    arrivals: Arrivals = "poisson"


@value
class Publisher:
    """A source of events behind a switch."""

    id: Identifier
    switch: Identifier
    publications: tuple[Publication, ...] = ()
    transport: Transport | None = None
    site: Identifier = "site"


@value
class Subscription:
    """A topic filter, what its events are worth, and how soon they are needed."""

    filter: FilterName
    utility: Utility
    qos: QualityOfService = 0
    deadline_seconds: Positive | None = None
    deadline_percentile: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.95


@value
class Subscriber:
    """Somebody who wants events, behind a switch."""

    id: Identifier
    switch: Identifier
    role: Identifier = "crew"
    transport: Transport | None = None
    site: Identifier = "site"
    subscriptions: tuple[Subscription, ...] = ()

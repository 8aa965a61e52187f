"""Topics, publishers, subscribers and their utility functions.

A utility function maps a success rate in [0, 1] to utility; it is concave and does not decrease.
The types only describe the function; ``firedex_models.utility`` evaluates it.
"""

from ipaddress import IPv4Address
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.values import Flag, Identifier, NonNegative, Positive, check_not_too_small, value

__all__ = [
    "Arrivals",
    "CappedUtility",
    "LinearUtility",
    "LogUtility",
    "PiecewiseLinearUtility",
    "PowerUtility",
    "Publication",
    "Publisher",
    "PublisherRegistration",
    "QualityOfService",
    "SizeDistribution",
    "Subscriber",
    "SubscriberRegistration",
    "Subscription",
    "Topic",
    "Transport",
    "Utility",
]


Fraction = Annotated[float, Field(strict=True, gt=0, le=1), AfterValidator(check_not_too_small)]
Point = tuple[NonNegative, NonNegative]
SLOPE_TOLERANCE = 1e-9


@value
class LogUtility:
    """``weight · log(1 + success)``: the paper's base function (Eq. 8)."""

    kind: Literal["log"] = "log"
    weight: NonNegative


@value
class LinearUtility:
    """``weight · success``: every event has the same utility."""

    kind: Literal["linear"] = "linear"
    weight: NonNegative


@value
class CappedUtility:
    """``weight · min(success / enough, 1)``: a success above ``enough`` adds no utility."""

    kind: Literal["capped"] = "capped"
    weight: NonNegative
    enough: Fraction


@value
class PowerUtility:
    """``weight · success ** exponent`` with an exponent in (0, 1]."""

    kind: Literal["power"] = "power"
    weight: NonNegative
    exponent: Fraction


@value
class PiecewiseLinearUtility:
    """``weight`` times the linear interpolation of ``points`` (success, utility)."""

    kind: Literal["piecewise-linear"] = "piecewise-linear"
    weight: NonNegative
    points: Annotated[tuple[Point, ...], Field(min_length=2)]

    @field_validator("points")
    @classmethod
    def _check_increasing_and_concave(cls, points: tuple[Point, ...]) -> tuple[Point, ...]:
        if points[0][0] != 0 or points[-1][0] != 1:
            raise ValueError("the first point must have success 0 and the last point success 1")
        if any(right[0] <= left[0] for left, right in pairwise(points)):
            raise ValueError("the success rates of points must be strictly increasing")
        if any(right[1] < left[1] for left, right in pairwise(points)):
            raise ValueError("not increasing: utility must not decrease with the success rate")
        slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(points)]
        if any(later > earlier * (1 + SLOPE_TOLERANCE) for earlier, later in pairwise(slopes)):
            raise ValueError("not concave: the slope between points must not increase")
        return points


Utility = Annotated[
    LogUtility | LinearUtility | CappedUtility | PowerUtility | PiecewiseLinearUtility,
    Field(discriminator="kind"),
]

LARGEST_PAYLOAD_BYTES = 268_000_000
"""The maximum payload of an MQTT packet, with room for its headers."""

Arrivals = Literal["poisson", "periodic"]
QualityOfService = Annotated[int, Field(strict=True, ge=0, le=2)]
EventBytes = Annotated[int, Field(strict=True, ge=0, le=LARGEST_PAYLOAD_BYTES)]
SizeDistribution = Literal["fixed", "exponential"]
Transport = Literal["udp", "tcp"]


@value
class Topic:
    """A topic and the size of its events.

    ``event_bytes`` is the size of the payload; ``firedex.wire.packet_sizes`` adds the headers.
    ``exponential`` is the distribution of the size on the wire; its mean is payload plus headers.
    ``stamped``: events carry the event stamp (null: as set for the scenario).
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
    """A source of events, attached to a switch."""

    id: Identifier
    switch: Identifier
    publications: tuple[Publication, ...] = ()
    transport: Transport | None = None
    site: Identifier = "site"


@value
class Subscription:
    """A topic filter with its utility and, optionally, a deadline."""

    filter: FilterName
    utility: Utility
    qos: QualityOfService = 0
    deadline_seconds: Positive | None = None
    deadline_percentile: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.95


@value
class Subscriber:
    """A receiver of events, attached to a switch."""

    id: Identifier
    switch: Identifier
    role: Identifier = "crew"
    transport: Transport | None = None
    site: Identifier = "site"
    subscriptions: tuple[Subscription, ...] = ()


@value
class PublisherRegistration:
    """A publisher and the topics that it declares."""

    publisher: Publisher
    topics: tuple[Topic, ...] = ()


@value
class SubscriberRegistration:
    """A subscriber with all of its subscriptions, and the address from which it connects."""

    subscriber: Subscriber
    address: IPv4Address

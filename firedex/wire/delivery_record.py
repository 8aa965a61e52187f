"""One flat row for each notification: the same columns in simulator, clients and Spark."""

from typing import Literal

from pydantic import model_validator

from firedex.wire.mqtt_names import FilterName, TopicName
from firedex.wire.values import Count, Identifier, NonNegative, Priority, value

__all__ = ["DeliveryRecord", "Outcome"]

Outcome = Literal[
    "delivered",
    "dropped-at-gateway",
    "dropped-at-meter",
    "dropped-at-buffer",
    "lost-on-link",
    "in-flight",
]


@value
class DeliveryRecord:
    """What became of one publication for one subscription.

    Times are seconds since the epoch by the writer's clock (since the start, in a simulation). A
    notification that was not delivered has no ``received_at_seconds`` and enters no delay.
    """

    run: Identifier
    site: Identifier = "site"
    broker: Identifier
    publication_id: str
    topic: TopicName
    publisher: Identifier | None
    subscriber: Identifier
    filter: FilterName
    flow: Count
    priority: Priority
    configuration_version: Count
    wire_bytes: Count
    published_at_seconds: NonNegative | None
    received_at_seconds: NonNegative | None
    outcome: Outcome

    @model_validator(mode="after")
    def _received_exactly_if_delivered(self) -> "DeliveryRecord":
        if (self.outcome == "delivered") != (self.received_at_seconds is not None):
            raise ValueError(
                "received_at_seconds is given for a delivered notification and for no other; "
                f"outcome is {self.outcome!r}"
            )
        return self

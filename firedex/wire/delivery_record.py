"""The delivery record: one flat row per notification, used by simulator, clients and Spark."""

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
    """The outcome of one publication for one subscription.

    Times are seconds since the epoch on the writer's clock; in a simulation, seconds since its
    start. A notification that was not delivered has no ``received_at_seconds`` and is not part of
    any delay statistic.
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
    def _check_receive_time(self) -> "DeliveryRecord":
        if (self.outcome == "delivered") != (self.received_at_seconds is not None):
            raise ValueError(
                "received_at_seconds must be given if and only if the outcome is 'delivered'; "
                f"outcome is {self.outcome!r}"
            )
        return self

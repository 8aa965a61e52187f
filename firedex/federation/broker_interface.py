"""What the decisions of a federator need from the broker session."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from firedex.federation.events import Event
from firedex.federation.interest import InterestChange

__all__ = ["STATE_TOPIC", "Broker", "Completed", "DropCause", "is_local_topic"]

STATE_TOPIC = "firedex/federation/"
"""Federators publish the state of sites below this topic, at their own broker only."""
Completed = Callable[[bool], None]
"""Called when a publication ends, with whether the broker has accepted it."""
_LOCAL_TOPICS = (b"$", STATE_TOPIC.encode())


def is_local_topic(topic: bytes) -> bool:
    """Return whether events on a topic never leave the site."""
    return topic.startswith(_LOCAL_TOPICS)


class DropCause(Enum):
    """Why an event was not published although the broker was available."""

    TOO_LARGE = "too large"
    REFUSED = "refused"


class Broker(Protocol):
    """The broker session of a federator."""

    @property
    def is_ready(self) -> bool:
        """Whether the session is up and accepts more publications."""

    def set_subscriptions(self, filters: Mapping[str, int], change: InterestChange) -> None:
        """Subscribe to exactly these filters; ``change`` is the difference from before."""

    def publish(self, event: Event, done: Completed | None) -> bool:
        """Publish an event; call ``done`` when the broker has acknowledged QoS 1 or 2.

        ``done`` is also called for an event that the broker does not accept, so that the events
        after it are not blocked.

        The packet of a QoS 2 event stays in the journal (table ``outgoing``) until ``done``
        removes it, in one transaction with the record that the event is delivered.

        Returns False if the session is down or its queue is full.
        """

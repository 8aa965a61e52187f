"""What hosts register with the service, each under its own id; a second time replaces the first."""

from ipaddress import IPv4Address

from firedex.wire.values import value
from firedex.wire.workload import Publisher, Subscriber, Topic

__all__ = ["PublisherRegistration", "SubscriberRegistration"]


@value
class PublisherRegistration:
    """A publisher, and the topics that it declares."""

    publisher: Publisher
    topics: tuple[Topic, ...] = ()


@value
class SubscriberRegistration:
    """A subscriber with all of its subscriptions, and the address it connects from."""

    subscriber: Subscriber
    address: IPv4Address

"""A snapshot of everything that a plan depends on, and what has expired in it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from firedex.service.state.offered_rates import STALE_SECONDS, OfferedRate
from firedex.wire import Network, PublisherRegistration, SubscriberRegistration, Topic
from firedex.wire.incident import Budgets, Incident, UtilityProfile
from firedex_models.topic_index import TopicIndex

__all__ = [
    "FIRST_PORT",
    "LAST_PORT",
    "UNREGISTERED",
    "DeclaredTopic",
    "ExpiredState",
    "SiteState",
    "find_expired_state",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTopic:
    """A topic and the publisher that declared it."""

    topic: Topic
    declared_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """The state after the change ``through_change``; clients are in order of registration.

    ``owners``: the owner of each client, by kind and id; a client without one owns itself.
    """

    through_change: int = 0
    publishers: Mapping[str, PublisherRegistration] = field(default_factory=dict)
    subscribers: Mapping[str, SubscriberRegistration] = field(default_factory=dict)
    topics: Mapping[str, DeclaredTopic] = field(default_factory=dict)
    profiles: Mapping[str, UtilityProfile] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    incident: Incident | None = None
    network: Network | None = None
    measured: Mapping[str, OfferedRate] = field(default_factory=dict)
    hosts: Mapping[IPv4Address, str] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def owner_of_subscriber(self, name: str) -> str:
        """Return the owner of a subscriber."""
        return self.owners.get(("subscriber", name), name)

    def owner_of_publisher(self, name: str) -> str:
        """Return the owner of a publisher."""
        return self.owners.get(("publisher", name), name)


UNREGISTERED = "unregistered.publishers"
"""Name of the artificial publisher of events that the gateway counts without a declaration."""
FIRST_PORT, LAST_PORT = 20_000, 32_767
"""Local ports of subscribers; below the range that Linux assigns by itself."""
RATE_RETENTION_SECONDS = 6 * STALE_SECONDS
"""A measured rate that is older is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredState:
    """Topics, measured rates and hosts that can be deleted without effect on any plan."""

    topics: Sequence[str] = ()
    measured: Sequence[str] = ()
    hosts: Sequence[IPv4Address] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.measured or self.hosts)


def find_expired_state(state: SiteState, now_seconds: float) -> ExpiredState:
    """Return topics that are not declared, published, subscribed to or measured, and old data."""
    expired = [
        name
        for name, known in state.measured.items()
        if known.at_seconds <= now_seconds - RATE_RETENTION_SECONDS
    ]
    used = state.measured.keys() - set(expired)
    for registration in state.publishers.values():
        used |= {topic.name for topic in registration.topics}
        used |= {publication.topic for publication in registration.publisher.publications}
    addresses = {registration.address for registration in state.subscribers.values()}
    return ExpiredState(
        topics=_unsubscribed([name for name in state.topics if name not in used], state),
        measured=expired,
        hosts=[address for address in state.hosts if address not in addresses],
    )


def _unsubscribed(topics: Sequence[str], state: SiteState) -> Sequence[str]:
    if not topics:
        return ()
    filters = {
        subscription.filter
        for registration in state.subscribers.values()
        for subscription in registration.subscriber.subscriptions
    }
    _, found = TopicIndex(topics).matching_each(sorted(filters))
    wanted = set(found.tolist())
    return [name for position, name in enumerate(topics) if position not in wanted]

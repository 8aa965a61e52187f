"""Everything that a plan follows from, at one moment. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from firedex.service.offered_rates import OfferedRate
from firedex.wire import Network, PublisherRegistration, SubscriberRegistration, Topic
from firedex.wire.incident import Budgets, Incident, UtilityProfile

__all__ = ["DeclaredTopic", "SiteState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTopic:
    """A topic, and who declared it."""

    topic: Topic
    declared_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """The state after the change ``through_change``; parties in the order in which they came."""

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

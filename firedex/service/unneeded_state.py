"""What of the state nobody needs any more. Pure; none of it makes a difference to a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from firedex.service.planning_scenario import STALE_SECONDS
from firedex.service.site_state import SiteState
from firedex_models.topic_index import TopicIndex

__all__ = ["Unneeded", "unneeded"]

REMEMBERED_SECONDS = 6 * STALE_SECONDS
"""A measured rate that is as old as this tells nothing, not even what was measured lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """Topics, rates of topics, and places of hosts, to be forgotten."""

    topics: Sequence[str] = ()
    measured: Sequence[str] = ()
    hosts: Sequence[IPv4Address] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.measured or self.hosts)


def unneeded(state: SiteState, now_seconds: float) -> Unneeded:
    """Topics that nobody declares, publishes, subscribes to or was counted on of late; the rest."""
    forgotten = [
        name
        for name, known in state.measured.items()
        if known.at_seconds <= now_seconds - REMEMBERED_SECONDS
    ]
    named = state.measured.keys() - set(forgotten)
    for registration in state.publishers.values():
        named |= {topic.name for topic in registration.topics}
        named |= {publication.topic for publication in registration.publisher.publications}
    addresses = {registration.address for registration in state.subscribers.values()}
    return Unneeded(
        topics=_unsubscribed([name for name in state.topics if name not in named], state),
        measured=forgotten,
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

"""What is allowed in a scenario but probably not meant."""

from firedex.wire import Scenario
from firedex_models.topic_index import TopicIndex

__all__ = ["advice_on"]


def advice_on(scenario: Scenario) -> list[str]:
    """Sentences for people; none if nothing looks odd."""
    published = {p.topic for publisher in scenario.publishers for p in publisher.publications}
    published |= {forwarded.topic for forwarded in scenario.network.broker.forwarded}
    names = [topic.name for topic in scenario.topics]
    silent = [name for name in names if name not in published]
    index = TopicIndex(names)
    advice = [f"nobody publishes {name!r}" for name in silent]
    for subscriber in scenario.subscribers:
        for subscription in subscriber.subscriptions:
            if not len(index.matching(subscription.filter)):
                advice.append(f"{subscription.filter!r} of {subscriber.id!r} matches no topic")
    for switch in scenario.network.switches:
        shared = switch.buffer is not None and switch.buffer.kind == "shared-push-out"
        if shared and switch.guaranteed_bits_per_second:
            advice.append(f"{switch.id!r}: guaranteed rates do not count with shared-push-out")
        if not switch.managed and switch.in_packets_per_second is not None:
            advice.append(f"{switch.id!r}: in_packets_per_second counts on managed switches only")
    roles = sorted({subscriber.role for subscriber in scenario.subscribers})
    for budget in scenario.planning.reserved_budgets:
        if scenario.subscribers and budget.role not in roles:
            advice.append(
                f"nobody has the role {budget.role!r} of a reserved budget; roles are "
                + ", ".join(roles)
            )
    return advice

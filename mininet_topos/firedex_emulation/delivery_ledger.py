"""Every event that a subscription was owed: when it was published, when it came, in which class.

Pure. An event is owed to a subscription that matches its topic if the subscriber was in when it was
published, and stayed long enough after that for it to arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Scenario, Subscriber, Subscription, SubscriptionPrediction
from firedex.wire.mqtt_names import matches
from firedex_emulation.observation import InForce, Observation, Visit

__all__ = ["Deliveries", "Ledger", "ledgers", "predictions_by_version"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Deliveries = Mapping[tuple[str, str], Mapping[str, float]]
"""By subscriber and filter: when each event, by its id, was first received."""
Predictions = Sequence[Mapping[tuple[str, str], SubscriptionPrediction]]

IN_FLIGHT_SECONDS = 2.0
"""What was published within so long of a departure may still have been on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The events owed to one subscription; ``received`` is NaN for what never came.

    ``plan``: which of the configurations was in force (-1: none); ``priority`` its class then.
    """

    subscriber: Subscriber
    subscription: Subscription
    published: Floats
    received: Floats
    plan: Integers
    priority: Integers

    @property
    def delivered(self) -> NDArray[np.bool_]:
        """Which of them came."""
        return ~np.isnan(self.received)

    @property
    def delay(self) -> Floats:
        """From publishing to receiving; NaN for what never came."""
        return self.received - self.published

    @property
    def timely(self) -> NDArray[np.bool_]:
        """Which of them came within the deadline, if there is one."""
        deadline = self.subscription.deadline_seconds
        return self.delivered if deadline is None else self.delay <= deadline


def ledgers(
    scenario: Scenario, observation: Observation, deliveries: Deliveries
) -> tuple[Ledger, ...]:
    """One for each subscription, in the scenario's order."""
    since = np.array([each.since for each in observation.configurations])
    predicted = predictions_by_version(observation.configurations)
    by_topic: dict[str, list[tuple[str, float]]] = {}
    for event, topic, at in observation.sent:
        by_topic.setdefault(topic, []).append((event, at))
    found = []
    for subscriber in scenario.subscribers:
        visits = observation.visits.get(subscriber.id, ())
        for subscription in subscriber.subscriptions:
            owed = sorted(
                (at, event)
                for topic, events in by_topic.items()
                if matches(subscription.filter, topic)
                for event, at in events
                if _was_in(visits, at, observation.ended_at)
            )
            received = deliveries.get((subscriber.id, subscription.filter), {})
            published = np.array([at for at, _ in owed])
            plan = np.searchsorted(since, published, side="right").astype(np.int64) - 1
            key = (subscriber.id, subscription.filter)
            classes = np.array(
                [each[key].priority if key in each else -1 for each in predicted] or [-1]
            )
            found.append(
                Ledger(
                    subscriber=subscriber,
                    subscription=subscription,
                    published=published,
                    received=np.array([received.get(event, np.nan) for _, event in owed]),
                    plan=plan,
                    priority=classes[plan] if len(plan) else np.empty(0, dtype=np.int64),
                )
            )
    return tuple(found)


def predictions_by_version(configurations: Sequence[InForce]) -> Predictions:
    """What each configuration predicts, by subscriber and filter."""
    return [
        {
            (row.subscriber, row.filter): row
            for row in (
                each.configuration.prediction.subscriptions if each.configuration.prediction else ()
            )
        }
        for each in configurations
    ]


def _was_in(visits: Sequence[Visit], at: float, ended_at: float) -> bool:
    return any(
        visit.ready_at is not None
        and visit.ready_at <= at
        and (visit.left_at >= ended_at or at <= visit.left_at - IN_FLIGHT_SECONDS)
        for visit in visits
    )

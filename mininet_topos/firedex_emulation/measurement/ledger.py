"""The events that each subscription should receive: when published, when received, which class.

Pure. A subscription is expected to receive an event that matches its filter if the subscriber was
connected when it was published, and stayed connected long enough for it to arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Scenario, Subscriber, Subscription, SubscriptionPrediction
from firedex.wire.mqtt_names import matches
from firedex_emulation.measurement.observation import (
    ActiveConfiguration,
    Observation,
    SubscriberSession,
)

__all__ = [
    "ClassSecond",
    "Deliveries",
    "Ledger",
    "build_ledgers",
    "class_seconds",
    "predictions_by_version",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Deliveries = Mapping[tuple[str, str], Mapping[str, float]]
"""By subscriber and filter: event id to the time of its first reception."""
Predictions = Sequence[Mapping[tuple[str, str], SubscriptionPrediction]]

IN_FLIGHT_SECONDS = 2.0
"""Events published this shortly before a subscriber left are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The expected events of one subscription; ``received`` is NaN for events not delivered.

    ``plan``: index of the configuration that was active (-1: none); ``priority``: its class then.
    """

    subscriber: Subscriber
    subscription: Subscription
    published: Floats
    received: Floats
    plan: Integers
    priority: Integers

    @property
    def delivered(self) -> NDArray[np.bool_]:
        """Which events were delivered."""
        return ~np.isnan(self.received)

    @property
    def delay(self) -> Floats:
        """Seconds from publication to reception; NaN for events not delivered."""
        return self.received - self.published

    @property
    def timely(self) -> NDArray[np.bool_]:
        """Which events were delivered within the deadline, if there is one."""
        deadline = self.subscription.deadline_seconds
        return self.delivered if deadline is None else self.delay <= deadline


def build_ledgers(
    scenario: Scenario, observation: Observation, deliveries: Deliveries
) -> tuple[Ledger, ...]:
    """Return one ledger for each subscription, in the order of the scenario."""
    since = np.array([each.since for each in observation.configurations])
    predicted = predictions_by_version(observation.configurations)
    by_topic: dict[str, list[tuple[str, float]]] = {}
    for event, topic, at in observation.sent:
        by_topic.setdefault(topic, []).append((event, at))
    found = []
    for subscriber in scenario.subscribers:
        sessions = observation.sessions.get(subscriber.id, ())
        for subscription in subscriber.subscriptions:
            expected = sorted(
                (at, event)
                for topic, events in by_topic.items()
                if matches(subscription.filter, topic)
                for event, at in events
                if _was_connected(sessions, at, observation.ended_at)
            )
            received = deliveries.get((subscriber.id, subscription.filter), {})
            published = np.array([at for at, _ in expected])
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
                    received=np.array([received.get(event, np.nan) for _, event in expected]),
                    plan=plan,
                    priority=classes[plan] if len(plan) else np.empty(0, dtype=np.int64),
                )
            )
    return tuple(found)


def predictions_by_version(configurations: Sequence[ActiveConfiguration]) -> Predictions:
    """Return the predictions of each configuration, by subscriber and filter."""
    return [
        {
            (row.subscriber, row.filter): row
            for row in (
                each.configuration.prediction.subscriptions if each.configuration.prediction else ()
            )
        }
        for each in configurations
    ]


def _was_connected(sessions: Sequence[SubscriberSession], at: float, ended_at: float) -> bool:
    return any(
        session.ready_at is not None
        and session.ready_at <= at
        and (session.left_at >= ended_at or at <= session.left_at - IN_FLIGHT_SECONDS)
        for session in sessions
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSecond:
    """Events of one class published in one second; the delay is that of delivered events."""

    second: int
    priority: int
    sent: int
    delivered: int
    delay_mean_seconds: float | None


def class_seconds(ledgers: Sequence[Ledger], observation: Observation) -> tuple[ClassSecond, ...]:
    """Return statistics by second and class; omit seconds without expected events."""
    if not ledgers:
        return ()
    published = np.concatenate([ledger.published for ledger in ledgers]) - observation.began_at
    delay = np.concatenate([ledger.delay for ledger in ledgers])
    priority = np.concatenate([ledger.priority for ledger in ledgers])
    second = np.floor(published).astype(np.int64)
    found = []
    for which in sorted(set(zip(second.tolist(), priority.tolist(), strict=True))):
        inside = (second == which[0]) & (priority == which[1])
        delays = delay[inside & ~np.isnan(delay)]
        if which[1] >= 0:
            found.append(
                ClassSecond(
                    second=which[0],
                    priority=which[1],
                    sent=int(inside.sum()),
                    delivered=len(delays),
                    delay_mean_seconds=float(delays.mean()) if len(delays) else None,
                )
            )
    return tuple(found)

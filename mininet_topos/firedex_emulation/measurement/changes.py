"""The time that changes took to become active, and the outages after failures. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from firedex.wire import Scenario
from firedex.wire.scenario import Surge
from firedex_emulation.measurement.ledger import Ledger
from firedex_emulation.measurement.observation import Action, ActiveConfiguration, Observation
from firedex_emulation.measurement.statistics import longest_loss

__all__ = ["Outage", "Reconfiguration", "outages", "reconfigurations"]

OBSERVED_SECONDS = 15.0
"""Only outages within this time after a failure are attributed to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """A change: the time of its request (seconds into the run) and its duration.

    ``acknowledged_seconds``: until switches had confirmed the rules. ``moved_seconds``: until the
    flows of the last subscriber matched the configuration. None: no configuration followed.
    ``lost_highest``: events of the highest class that were lost until then.
    """

    description: str
    kind: str
    at_seconds: float
    acknowledged_seconds: float | None
    moved_seconds: float | None
    lost_highest: int | None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The longest time in which a subscription of a class received nothing after a failure.

    ``lost``: events of the class not delivered in the observed time, including dropped ones.
    """

    description: str
    at_seconds: float
    priority: int
    seconds: float
    subscription: str
    lost: int


def reconfigurations(
    scenario: Scenario, observation: Observation, ledgers: Sequence[Ledger]
) -> tuple[Reconfiguration, ...]:
    """Return every change of the run, in order of time."""
    found = [
        _reconfiguration(observation, ledgers, description, kind, requested_at, plan, error_message)
        for description, kind, requested_at, plan, error_message in (
            *_changes_by_actions(observation),
            *_changes_by_sessions(observation),
            *_changes_by_surges(scenario, observation),
        )
    ]
    return tuple(sorted(found, key=lambda each: each.at_seconds))


Change = tuple[str, str, float, ActiveConfiguration | None, str | None]


def _changes_by_actions(observation: Observation) -> Iterator[Change]:
    for action in observation.actions:
        plan = None
        if action.change is not None:
            through = (c for c in observation.configurations if c.through_change >= action.change)
            plan = next(through, None)
        yield action.description, action.kind, action.asked_at, plan, action.error_message


def _changes_by_sessions(observation: Observation) -> Iterator[Change]:
    for name, sessions in observation.sessions.items():
        for session in sessions:
            if session.asked_at >= observation.began_at:
                plan = _first_configuration_after(
                    observation, session.asked_at, name, registered=True
                )
                error_message = (
                    None if session.ready_at is not None else "the subscriber was never ready"
                )
                yield f"{name} joins", "join", session.asked_at, plan, error_message
            if session.signed_off_at is not None:
                plan = _first_configuration_after(
                    observation, session.left_at, name, registered=False
                )
                yield f"{name} leaves", "leave", session.left_at, plan, None


def _changes_by_surges(scenario: Scenario, observation: Observation) -> Iterator[Change]:
    for event in scenario.timeline:
        if isinstance(event, Surge):
            at = observation.began_at + event.at_seconds
            until = at + event.for_seconds
            replans = (
                each
                for each in observation.configurations
                if at <= each.since <= until and "measured" in each.configuration.reason
            )
            description = f"{event.publisher}: {event.topic or 'all'} × {event.factor:g}"
            yield description, "surge", at, next(replans, None), None


def _first_configuration_after(
    observation: Observation, at: float, subscriber: str, *, registered: bool
) -> ActiveConfiguration | None:
    for each in observation.configurations:
        is_registered = any(flow.subscriber == subscriber for flow in each.configuration.flows)
        if each.since >= at and is_registered == registered:
            return each
    return None


def _reconfiguration(
    observation: Observation,
    ledgers: Sequence[Ledger],
    description: str,
    kind: str,
    requested_at: float,
    plan: ActiveConfiguration | None,
    error_message: str | None,
) -> Reconfiguration:
    moved = _time_of_last_move(observation, plan, requested_at) if plan else None
    return Reconfiguration(
        description=description,
        kind=kind,
        at_seconds=requested_at - observation.began_at,
        acknowledged_seconds=max(plan.since - requested_at, 0.0) if plan else None,
        moved_seconds=max(moved - requested_at, 0.0) if moved else None,
        lost_highest=_count_lost(ledgers, 0, requested_at, moved or plan.since) if plan else None,
        error_message=error_message,
    )


def _time_of_last_move(
    observation: Observation, plan: ActiveConfiguration, requested_at: float
) -> float | None:
    """Return when the last subscriber had applied this configuration or a later one.

    None if one never did. A subscriber whose registration caused the configuration counts too.
    """
    version = plan.configuration.version
    moved = [plan.since]
    for sessions in observation.sessions.values():
        for session in sessions:
            if not (session.asked_at <= plan.since <= session.left_at):
                continue
            reached = [at for settled, at in session.settled if settled >= version][:1]
            if not reached and session.left_at > observation.ended_at:
                return None
            moved += reached
    return max(max(moved), requested_at)


def _count_lost(ledgers: Sequence[Ledger], priority: int, began: float, ended: float) -> int:
    return sum(
        int(
            (
                (ledger.priority == priority)
                & (ledger.published >= began)
                & (ledger.published <= ended)
                & ~ledger.delivered
            ).sum()
        )
        for ledger in ledgers
    )


def outages(observation: Observation, ledgers: Sequence[Ledger]) -> tuple[Outage, ...]:
    """Return the longest outage of each class after every failure.

    A failure is observed until the next one, and for ``OBSERVED_SECONDS`` at most.
    """
    found = []
    failures = [action for action in observation.actions if action.is_failure]
    for number, action in enumerate(failures):
        next_ones = [each.asked_at for each in failures[number + 1 :]]
        until = min([action.asked_at + OBSERVED_SECONDS, observation.ended_at, *next_ones])
        for priority in sorted({int(k) for each in ledgers for k in np.unique(each.priority)}):
            if priority >= 0:
                found.append(_outage(observation, ledgers, action, priority, until))
    return tuple(found)


def _outage(
    observation: Observation, ledgers: Sequence[Ledger], action: Action, priority: int, until: float
) -> Outage:
    longest, subscription = 0.0, ""
    for ledger in ledgers:
        inside = ledger.priority == priority
        seconds = longest_loss(
            ledger.published[inside], ledger.delivered[inside], action.asked_at, until
        )
        if seconds > longest:
            longest, subscription = seconds, f"{ledger.subscriber.id} {ledger.subscription.filter}"
    return Outage(
        description=action.description,
        at_seconds=action.asked_at - observation.began_at,
        priority=priority,
        seconds=longest,
        subscription=subscription,
        lost=_count_lost(ledgers, priority, action.asked_at, until),
    )

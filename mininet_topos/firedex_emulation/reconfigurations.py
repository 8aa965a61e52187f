"""How long changes took to be in force, and how long classes were without when parts fell. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from firedex.wire import Scenario
from firedex.wire.timeline import Surge
from firedex_emulation.delivery_ledger import Ledger
from firedex_emulation.measured_statistics import longest_loss
from firedex_emulation.observation import Action, InForce, Observation

__all__ = ["Outage", "Reconfiguration", "outages", "reconfigurations"]

WATCHED_SECONDS = 15.0
"""After a part was killed or a link went: outages later than this are another matter's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """A change: when it was asked for (seconds into the run), and how long it then took.

    ``acknowledged_seconds``: until switches had confirmed the rules; ``moved_seconds``: until the
    last subscriber's flows were as planned. None: it did not happen, or no plan followed.
    ``lost_highest``: events of the highest class that were lost until then.
    """

    what: str
    kind: str
    at_seconds: float
    acknowledged_seconds: float | None
    moved_seconds: float | None
    lost_highest: int | None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The longest time in which a subscription of a class lost everything, after a failure.

    ``lost``: all events of the class that did not come in the time watched, dropped ones included.
    """

    what: str
    at_seconds: float
    priority: int
    seconds: float
    whose: str
    lost: int


def reconfigurations(
    scenario: Scenario, observation: Observation, owed: Sequence[Ledger]
) -> tuple[Reconfiguration, ...]:
    """Every change of the run, in order of time."""
    found = [
        _row(observation, owed, what, kind, asked, plan, trouble)
        for what, kind, asked, plan, trouble in (
            *_of_actions(observation),
            *_of_visits(observation),
            *_of_surges(scenario, observation),
        )
    ]
    return tuple(sorted(found, key=lambda each: each.at_seconds))


Change = tuple[str, str, float, InForce | None, str | None]


def _of_actions(observation: Observation) -> Iterator[Change]:
    for action in observation.actions:
        plan = None
        if action.change is not None:
            through = (c for c in observation.configurations if c.through_change >= action.change)
            plan = next(through, None)
        yield action.what, action.kind, action.asked_at, plan, action.trouble


def _of_visits(observation: Observation) -> Iterator[Change]:
    for name, visits in observation.visits.items():
        for visit in visits:
            if visit.asked_at >= observation.began_at:
                plan = _first_after(observation, visit.asked_at, name, there=True)
                trouble = None if visit.ready_at is not None else "it never came in"
                yield f"{name} joins", "join", visit.asked_at, plan, trouble
            if visit.signed_off_at is not None:
                plan = _first_after(observation, visit.left_at, name, there=False)
                yield f"{name} leaves", "leave", visit.left_at, plan, None


def _of_surges(scenario: Scenario, observation: Observation) -> Iterator[Change]:
    for event in scenario.timeline:
        if isinstance(event, Surge):
            at = observation.began_at + event.at_seconds
            until = at + event.for_seconds
            noticed = (
                each
                for each in observation.configurations
                if at <= each.since <= until and "measured" in each.configuration.reason
            )
            what = f"{event.publisher}: {event.topic or 'all'} × {event.factor:g}"
            yield what, "surge", at, next(noticed, None), None


def _first_after(
    observation: Observation, at: float, subscriber: str, *, there: bool
) -> InForce | None:
    for each in observation.configurations:
        known = any(flow.subscriber == subscriber for flow in each.configuration.flows)
        if each.since >= at and known == there:
            return each
    return None


def _row(
    observation: Observation,
    owed: Sequence[Ledger],
    what: str,
    kind: str,
    asked: float,
    plan: InForce | None,
    trouble: str | None,
) -> Reconfiguration:
    moved = _moved_at(observation, plan, asked) if plan else None
    return Reconfiguration(
        what=what,
        kind=kind,
        at_seconds=asked - observation.began_at,
        acknowledged_seconds=max(plan.since - asked, 0.0) if plan else None,
        moved_seconds=max(moved - asked, 0.0) if moved else None,
        lost_highest=_lost(owed, 0, asked, moved or plan.since) if plan else None,
        trouble=trouble,
    )


def _moved_at(observation: Observation, plan: InForce, asked: float) -> float | None:
    """When the last subscriber had come to this plan, or to a later one; None if one never did.

    Who comes because of it counts too: it asked before the plan, and is in after it.
    """
    version = plan.configuration.version
    moved = [plan.since]
    for visits in observation.visits.values():
        for visit in visits:
            if not (visit.asked_at <= plan.since <= visit.left_at):
                continue
            reached = [at for settled, at in visit.settled if settled >= version][:1]
            if not reached and visit.left_at > observation.ended_at:
                return None
            moved += reached
    return max(max(moved), asked)


def _lost(owed: Sequence[Ledger], priority: int, began: float, ended: float) -> int:
    return sum(
        int(
            (
                (ledger.priority == priority)
                & (ledger.published >= began)
                & (ledger.published <= ended)
                & ~ledger.delivered
            ).sum()
        )
        for ledger in owed
    )


def outages(observation: Observation, owed: Sequence[Ledger]) -> tuple[Outage, ...]:
    """For every kill and every cut: who of each class was without for longest, and for how long.

    Each is watched until the next, and for a while at most.
    """
    found = []
    failures = [action for action in observation.actions if action.is_failure]
    for number, action in enumerate(failures):
        next_ones = [each.asked_at for each in failures[number + 1 :]]
        until = min([action.asked_at + WATCHED_SECONDS, observation.ended_at, *next_ones])
        for priority in sorted({int(k) for each in owed for k in np.unique(each.priority)}):
            if priority >= 0:
                found.append(_outage(observation, owed, action, priority, until))
    return tuple(found)


def _outage(
    observation: Observation, owed: Sequence[Ledger], action: Action, priority: int, until: float
) -> Outage:
    longest, who = 0.0, ""
    for ledger in owed:
        inside = ledger.priority == priority
        seconds = longest_loss(
            ledger.published[inside], ledger.delivered[inside], action.asked_at, until
        )
        if seconds > longest:
            longest, who = seconds, f"{ledger.subscriber.id} {ledger.subscription.filter}"
    return Outage(
        what=action.what,
        at_seconds=action.asked_at - observation.began_at,
        priority=priority,
        seconds=longest,
        whose=who,
        lost=_lost(owed, priority, action.asked_at, until),
    )

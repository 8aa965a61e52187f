"""How long changes took to be in force, and how long classes were without when parts fell. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from firedex.wire import Scenario
from firedex.wire.timeline import Surge
from firedex_emulation.delivery_ledger import Ledger
from firedex_emulation.measured_statistics import longest_loss
from firedex_emulation.observation import InForce, Observation

__all__ = ["Outage", "Reconfiguration", "outages", "reconfigurations"]

WATCHED_SECONDS = 15.0
"""After a part was killed or a link went: outages later than this are another matter's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """A change: when it was asked for (seconds into the run), and how long it then took.

    ``acknowledged_seconds``: until switches had confirmed the rules; ``moved_seconds``: until the
    last subscriber's flows were as planned. None: it did not happen, or no plan followed.
    ``lost_highest``: events of the highest class that were lost meanwhile.
    """

    what: str
    kind: str
    at_seconds: float
    acknowledged_seconds: float | None
    moved_seconds: float | None
    lost_highest: int
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The longest time in which all that a class was owed was lost, after something failed."""

    what: str
    at_seconds: float
    priority: int
    seconds: float
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
    moved = _moved_at(observation, plan) if plan else None
    until = moved or (plan.since if plan else asked)
    return Reconfiguration(
        what=what,
        kind=kind,
        at_seconds=asked - observation.began_at,
        acknowledged_seconds=max(plan.since - asked, 0.0) if plan else None,
        moved_seconds=max(moved - asked, 0.0) if moved else None,
        lost_highest=_lost(owed, 0, asked, until),
        trouble=trouble,
    )


def _moved_at(observation: Observation, plan: InForce) -> float | None:
    """When the last subscriber had come to this plan, or to a later one."""
    version = plan.configuration.version
    moved = []
    for visits in observation.visits.values():
        for visit in visits:
            if visit.ready_at is None or not visit.ready_at <= plan.since <= visit.left_at:
                continue
            moved += [at for reached, at in visit.settled if reached >= version][:1]
    return max(moved, default=plan.since)


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
    """For every kill and every cut: what each class lost then, and for how long."""
    found = []
    failures = [action for action in observation.actions if action.kind in ("kill", "link")]
    for number, action in enumerate(failures):
        until = min(action.asked_at + WATCHED_SECONDS, observation.ended_at)
        if number + 1 < len(failures):
            until = min(until, failures[number + 1].asked_at)
        classes = sorted({int(each) for ledger in owed for each in np.unique(ledger.priority)})
        for priority in classes:
            if priority < 0:
                continue
            inside = [ledger.priority == priority for ledger in owed]
            parts = list(zip(owed, inside, strict=True))
            published = np.concatenate([ledger.published[which] for ledger, which in parts])
            delivered = np.concatenate([ledger.delivered[which] for ledger, which in parts])
            found.append(
                Outage(
                    what=action.what,
                    at_seconds=action.asked_at - observation.began_at,
                    priority=priority,
                    seconds=longest_loss(published, delivered, action.asked_at, until),
                    lost=_lost(owed, priority, action.asked_at, until),
                )
            )
    return tuple(found)

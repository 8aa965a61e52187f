"""Alerts in plain sentences, the most urgent first. Pure.

A missed deadline is reported together with its cause, if the cause is known. Missing data is
reported too, so that an empty list of alerts always means that everything is known to work.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from firedex.dashboard.delivery_gaps import (
    LossyFlow,
    SilentDelivery,
    SilentTopic,
    SubscriptionKey,
)
from firedex.dashboard.links import MEANWHILE, MissingLink, link_trouble
from firedex.dashboard.wording import (
    filter_words,
    names_text,
    rate_text,
    seconds_text,
    share_text,
    shorten,
)
from firedex.wire.overview import Alert, ClassStatus, LateSubscription, LinkStatus, PartHealth
from firedex.wire.service_api import PushFailure

__all__ = ["Deliveries", "PendingChanges", "UnpublishedTopic", "alerts"]

T = TypeVar("T")
SLOW_FACTOR = 3.0
SLOW_SECONDS = 0.05
"""Shorter delays are dominated by noise of the hosts."""
HALF = 0.5
SEVERITIES = {"urgent": 0, "warning": 1, "note": 2}
MAX_ALERTS_PER_KIND = 5
"""If there are more cases of one kind, one further alert states their number."""
MAX_ALERTS_PER_SUBSCRIBER = 2
"""Limit of alerts of one kind about one subscriber, so that other subscribers are shown too."""
LEAST_COUNTED_SHARE = 0.01
"""A topic counts as not published if its counted rate is below this share of the declared rate."""
PLANNING_SECONDS = 10.0
"""A change that is pending for less time is still being planned, and is not reported."""
TOO_LONG_SECONDS = 60.0
"""A change that is pending for more time is urgent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedTopic:
    """A topic that is subscribed to and no longer published.

    ``urgent``: a subscriber has a deadline for it, or a high utility.
    """

    topic: SilentTopic
    urgent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Deliveries compared with the prediction. ``measured``: clients have sent reports."""

    measured: bool
    predicted_per_second: float
    window_seconds: float
    silent: Sequence[SilentDelivery] = ()
    lossy_flows: Sequence[LossyFlow] = ()
    unpublished: Sequence[UnpublishedTopic] = ()
    all_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChanges:
    """Changes that are not active yet, and subscribers that no configuration includes."""

    changes: int = 0
    since: datetime | None = None
    waiting_seconds: float = 0.0
    subscribers: Sequence[str] = ()


NO_PENDING_CHANGES = PendingChanges()


def alerts(
    *,
    trouble: PushFailure | None,
    late: Sequence[LateSubscription],
    links: Sequence[LinkStatus],
    classes: Iterable[ClassStatus],
    parts: Iterable[PartHealth],
    deliveries: Deliveries | None,
    commanders: Set[str] = frozenset(),
    pending: PendingChanges = NO_PENDING_CHANGES,
    unseen: Sequence[MissingLink] = (),
    security: Sequence[Alert] = (),
) -> tuple[Alert, ...]:
    """Return all alerts; of the same severity, possible causes come first.

    ``deliveries`` is None while no configuration is active. ``commanders`` are the clients of
    command. ``security``: alerts about security events.
    """
    found: list[Alert] = []
    if trouble is not None:
        text = f"the latest configuration is not active: {trouble.error}"
        found.append(Alert(severity="urgent", text=text, since=trouble.since))
    found += _plan_alerts(pending, trouble=trouble is not None)
    found += security
    found += _part_alerts(parts, commanders)
    found += _delivery_alerts(deliveries)
    silent = _silent_subscriptions(deliveries)
    groups = _group_by_name(
        (one.filter, one) for one in late if (one.subscriber, one.filter) not in silent
    )
    shown = _limit_names([(name, group[0].subscriber) for name, group in groups.items()])
    found += [_lateness_alert(name, groups[name]) for name in shown]
    found += _more_late_filters(len(groups) - len(shown))
    if unseen:
        text = f"the controller does not see the link {names_text([one.name for one in unseen])}"
        found.append(Alert(severity="urgent", text=text, since=unseen[0].since))
    reported = {(groups[name][0].reason or "").removeprefix(MEANWHILE) for name in shown}
    for link in links:
        problem = link_trouble(link)
        if problem and problem.text not in reported:
            found.append(Alert(severity="warning", text=problem.text, since=problem.since))
    found += _class_alerts(classes)
    return tuple(sorted(found, key=lambda alert: SEVERITIES[alert.severity]))


def _group_by_name(named: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for name, one in named:
        groups.setdefault(name, []).append(one)
    return groups


def _limit_names(named: Sequence[tuple[str, str]]) -> list[str]:
    """Return the first names within both limits; each name comes with its subscriber."""
    chosen: list[str] = []
    counts: Counter[str] = Counter()
    for name, subscriber in named:
        counts[subscriber] += 1
        if counts[subscriber] <= MAX_ALERTS_PER_SUBSCRIBER and len(chosen) < MAX_ALERTS_PER_KIND:
            chosen.append(name)
    return chosen


def _silent_subscriptions(deliveries: Deliveries | None) -> Set[SubscriptionKey]:
    """Return the subscriptions reported as silent; they are not reported as late as well."""
    if deliveries is None or deliveries.all_silent:
        return set()
    whole = (one for one in deliveries.silent if not one.whole_class and not one.topics)
    return {(one.subscriber, one.filter) for one in whole}


def _lateness_alert(name: str, group: Sequence[LateSubscription]) -> Alert:
    """Return one alert for all subscribers of a filter, with the figures of the first."""
    one, how = group[0], "does not arrive"
    if one.late_by_seconds is not None:
        by = seconds_text(one.late_by_seconds) + " " if one.late_by_seconds else ""
        how = f"is {'predicted to be ' if one.predicted else ''}{by}late"
    why = one.reason or ""
    if why:
        why = f"; {why}" if why.startswith(MEANWHILE) else f": {why}"
    subscribers = names_text([each.subscriber for each in group])
    text = f"{filter_words(name)} {how} for {subscribers}{why}"
    return Alert(severity="urgent", text=text, since=one.reason_since)


def _more_late_filters(filters: int) -> Iterable[Alert]:
    if filters:
        misses = "filter misses its" if filters == 1 else "filters miss their"
        yield Alert(severity="urgent", text=f"{filters} more {misses} deadline")


def _part_alerts(parts: Iterable[PartHealth], commanders: Set[str]) -> Iterable[Alert]:
    clients = []
    for part in parts:
        name = part.part if part.part == part.kind else f"{part.kind} {shorten(part.part)}"
        if part.state == "trouble":
            yield Alert(severity="urgent", text=f"{name}: {part.detail or 'reports a problem'}")
        elif part.kind == "client":
            clients.append(part)
        elif part.state == "stale":
            age = seconds_text(part.seconds_ago or 0.0)
            yield Alert(severity="urgent", text=f"{name} has sent no heartbeat for {age}")
        elif part.state == "unknown" and part.detail:
            yield Alert(severity="note", text=f"{name}: {part.detail}")
        elif part.state == "unknown":
            yield Alert(severity="warning", text=f"{name} has never sent a heartbeat")
    yield from _client_alerts(clients, commanders)


def _client_alerts(clients: Sequence[PartHealth], commanders: Set[str]) -> Iterable[Alert]:
    """Report silent clients: urgent if they are half of all, or include one of command."""
    stale = [part.part for part in clients if part.state == "stale"]
    stale.sort(key=lambda name: name not in commanders)
    if stale:
        all_of_them = len(stale) == len(clients)
        half = len(stale) > 1 and len(stale) >= HALF * len(clients)
        count = f"all {len(stale)} clients" if all_of_them and half else names_text(stale)
        urgent = all_of_them or half or stale[0] in commanders
        text = f"{count} {_have_or_has(stale)} stopped sending heartbeats: "
        text += _unknown_deliveries(stale)
        yield Alert(severity="urgent" if urgent else "warning", text=text)
    never_heard = [part.part for part in clients if part.state == "unknown"]
    if never_heard:
        text = f"{names_text(never_heard)} {_have_or_has(never_heard)} never sent a heartbeat: "
        text += _unknown_deliveries(never_heard)
        yield Alert(severity="warning", text=text)


def _have_or_has(names: Sequence[str]) -> str:
    return "have" if len(names) > 1 else "has"


def _unknown_deliveries(names: Sequence[str]) -> str:
    return f"{'their' if len(names) > 1 else 'its'} deliveries are unknown"


def _class_alerts(classes: Iterable[ClassStatus]) -> Iterable[Alert]:
    for each in classes:
        measured, predicted = each.delay_mean_seconds, each.predicted_delay_mean_seconds
        if measured is None or predicted is None or measured < SLOW_SECONDS:
            continue
        if measured > SLOW_FACTOR * predicted:
            text = (
                f"class {each.priority} has a mean delay of {seconds_text(measured)}; "
                f"{seconds_text(predicted)} was predicted"
            )
            yield Alert(severity="warning", text=text)


def _delivery_alerts(found: Deliveries | None) -> Iterable[Alert]:
    if found is None:
        yield Alert(severity="note", text="no configuration is active yet")
        return
    yield from _publisher_alerts(found.unpublished)
    if found.predicted_per_second <= 0:
        text = "no events are expected: no publisher publishes a topic that is subscribed to"
        yield Alert(severity="note", text=text)
    elif found.all_silent:
        text = (
            f"no subscriber receives events: {rate_text(found.predicted_per_second)} were "
            f"predicted, none was reported for {seconds_text(found.window_seconds)}"
        )
        yield Alert(severity="urgent", text=text)
        return
    elif not found.measured:
        text = "no measurements were reported under the active configuration yet"
        yield Alert(severity="note", text=text)
    yield from _silence_alerts(found.silent)
    flows_by_class: dict[int, list[LossyFlow]] = {}
    for one in found.lossy_flows:
        flows_by_class.setdefault(one.priority, []).append(one)
    for priority, group in sorted(flows_by_class.items()):
        worst = group[0]
        text = (
            f"{_receive_or_receives([one.subscriber for one in group])} only "
            f"{share_text(worst.success_rate)} of the events of class {priority}: "
            f"{share_text(worst.predicted_success_rate)} was predicted"
        )
        yield Alert(severity="urgent", text=text)


def _receive_or_receives(subscribers: Sequence[str]) -> str:
    several = len(set(subscribers)) > 1
    return f"{names_text(subscribers)} {'receive' if several else 'receives'}"


def _publisher_alerts(group: Sequence[UnpublishedTopic]) -> Iterable[Alert]:
    ordered = sorted(group, key=lambda one: not one.urgent)
    for one in ordered[:MAX_ALERTS_PER_KIND]:
        topic = one.topic
        declared = rate_text(topic.declared_per_second)
        verb = "is" if declared.startswith("1 event ") else "are"
        text = f"{filter_words(topic.topic)} is no longer published: {declared} {verb} declared"
        if topic.counted_per_second >= LEAST_COUNTED_SHARE * topic.declared_per_second:
            text += f", {rate_text(topic.counted_per_second)} counted"
        yield Alert(severity="urgent" if one.urgent else "warning", text=text)
    rest = ordered[MAX_ALERTS_PER_KIND:]
    if rest:
        topics = "topic is" if len(rest) == 1 else "topics are"
        text = f"{len(rest)} more {topics} no longer published"
        yield Alert(severity="urgent" if rest[0].urgent else "warning", text=text)


def _silence_alerts(silent: Sequence[SilentDelivery]) -> Iterable[Alert]:
    """Report by class if a subscriber gets nothing of it, otherwise by filter or topic."""
    classes: dict[int, list[SilentDelivery]] = {}
    for one in silent:
        if one.whole_class:
            classes.setdefault(one.priority, []).append(one)
    for priority, group in sorted(classes.items()):
        yield _silence_alert(f"class {priority}", group)
    parts = _group_by_name(
        (name, one) for one in silent if not one.whole_class for name in one.topics or (one.filter,)
    )
    shown = _limit_names([(name, group[0].subscriber) for name, group in parts.items()])
    for name in shown:
        yield _silence_alert(filter_words(name), parts[name])
    more = len(parts) - len(shown)
    if more:
        what = "filter or topic delivers" if more == 1 else "filters or topics deliver"
        yield Alert(severity="urgent", text=f"{more} more {what} no events")


def _silence_alert(what: str, group: Sequence[SilentDelivery]) -> Alert:
    expected = rate_text(sum(one.expected_per_second / max(len(one.topics), 1) for one in group))
    verb = "was" if expected.startswith("1 event ") else "were"
    subscribers = _receive_or_receives([one.subscriber for one in group])
    text = f"{subscribers} no events of {what}: {expected} {verb} predicted"
    return Alert(severity="urgent", text=text)


def _plan_alerts(waiting: PendingChanges, *, trouble: bool) -> Iterable[Alert]:
    """Report changes that are not active. ``trouble``: the cause is reported already."""
    subscribers = waiting.subscribers
    if not waiting.changes:
        if subscribers:
            are = "are" if len(subscribers) > 1 else "is"
            text = f"{names_text(subscribers)} {are} missing from the active configuration"
            yield Alert(severity="urgent", text=text)
        return
    if waiting.waiting_seconds <= PLANNING_SECONDS or (trouble and not subscribers):
        return
    what = "a change is" if waiting.changes == 1 else f"{waiting.changes} changes are"
    text = f"{what} not active yet"
    if subscribers:
        text += f"; no configuration includes {names_text(subscribers)}"
    urgent = bool(subscribers) or waiting.waiting_seconds > TOO_LONG_SECONDS
    yield Alert(severity="urgent" if urgent else "warning", text=text, since=waiting.since)

"""What somebody should know, in words: the most urgent first. Pure.

A late subscription is said together with why, if that is known. Nothing is left unsaid that would
make silence a false all-clear: parts never heard of, and what was predicted and does not come.
"""

from collections.abc import Iterable, Sequence, Set

from firedex.dashboard.alert_groups import by_name, few_of_each
from firedex.dashboard.delivery_alerts import Deliveries, delivery_alerts
from firedex.dashboard.delivery_gaps import SubscriptionKey
from firedex.dashboard.link_reasons import MEANWHILE, link_trouble
from firedex.dashboard.plan_alerts import Unplanned, plan_alerts
from firedex.dashboard.unseen_links import UnseenLink
from firedex.dashboard.wording import (
    filter_words,
    names_text,
    seconds_text,
    short,
)
from firedex.wire.overview import (
    Alert,
    ClassNow,
    LateSubscription,
    LinkNow,
    PartHealth,
)
from firedex.wire.service_api import PushTrouble

__all__ = ["alerts"]

MUCH_SLOWER = 3.0
SLOW_SECONDS = 0.05
"""Less than this is noise of the hosts, whatever was predicted."""
HALF = 0.5
NOTHING_WAITS = Unplanned()
RANKS = {"urgent": 0, "warning": 1, "note": 2}


def alerts(
    *,
    trouble: PushTrouble | None,
    late: Sequence[LateSubscription],
    links: Sequence[LinkNow],
    classes: Iterable[ClassNow],
    parts: Iterable[PartHealth],
    deliveries: Deliveries | None,
    commanders: Set[str] = frozenset(),
    unplanned: Unplanned = NOTHING_WAITS,
    unseen: Sequence[UnseenLink] = (),
) -> tuple[Alert, ...]:
    """All there are to say, what others may follow from first.

    ``deliveries``: none while no plan is in force. ``commanders``: the clients of command.
    """
    said: list[Alert] = []
    if trouble is not None:
        text = f"the network does not follow the plan: {trouble.error}"
        said.append(Alert(severity="urgent", text=text, since=trouble.since))
    said += plan_alerts(unplanned, trouble=trouble is not None)
    said += _of_parts(parts, commanders)
    said += delivery_alerts(deliveries)
    silent = _said_by_filter(deliveries)
    groups = by_name(
        (one.filter, one) for one in late if (one.subscriber, one.filter) not in silent
    )
    spoken = few_of_each([(name, those[0].subscriber) for name, those in groups.items()])
    said += [_lateness_alert(name, groups[name]) for name in spoken]
    said += _more_lateness(len(groups) - len(spoken))
    if unseen:
        text = f"the controller does not see the link {names_text([one.name for one in unseen])}"
        said.append(Alert(severity="urgent", text=text, since=unseen[0].since))
    told = {(groups[name][0].reason or "").removeprefix(MEANWHILE) for name in spoken}
    for link in links:
        wrong = link_trouble(link)
        if wrong and wrong.text not in told:
            said.append(Alert(severity="warning", text=wrong.text, since=wrong.since))
    said += _of_classes(classes)
    return tuple(sorted(said, key=lambda alert: RANKS[alert.severity]))


def _said_by_filter(deliveries: Deliveries | None) -> Set[SubscriptionKey]:
    """What is said to bring nothing need not be said to be late."""
    if deliveries is None or deliveries.all_silent:
        return set()
    whole = (one for one in deliveries.silent if not one.of_class and not one.topics)
    return {(one.subscriber, one.filter) for one in whole}


def _lateness_alert(name: str, those: Sequence[LateSubscription]) -> Alert:
    """The first of a filter's subscribers speaks for the others."""
    one, how = those[0], "does not arrive"
    if one.late_by_seconds is not None:
        by = seconds_text(one.late_by_seconds) + " " if one.late_by_seconds else ""
        how = f"is {'predicted to be ' if one.predicted else ''}{by}late"
    why = one.reason or ""
    if why:
        why = f"; {why}" if why.startswith(MEANWHILE) else f": {why}"
    whom = names_text([each.subscriber for each in those])
    text = f"{filter_words(name)} {how} for {whom}{why}"
    return Alert(severity="urgent", text=text, since=one.reason_since)


def _more_lateness(filters: int) -> Iterable[Alert]:
    if filters:
        misses = "filter misses its" if filters == 1 else "filters miss their"
        yield Alert(severity="urgent", text=f"{filters} more {misses} deadline")


def _of_parts(parts: Iterable[PartHealth], commanders: Set[str]) -> Iterable[Alert]:
    clients = []
    for part in parts:
        name = part.part if part.part == part.kind else f"{part.kind} {short(part.part)}"
        if part.state == "trouble":
            yield Alert(severity="urgent", text=f"{name}: {part.detail or 'not well'}")
        elif part.kind == "client":
            clients.append(part)
        elif part.state == "stale":
            ago = seconds_text(part.seconds_ago or 0.0)
            yield Alert(severity="urgent", text=f"{name} has not been heard for {ago}")
        elif part.state == "unknown" and part.detail:
            yield Alert(severity="note", text=f"{name}: {part.detail}")
        elif part.state == "unknown":
            yield Alert(severity="warning", text=f"{name} has never been heard of")
    yield from _of_clients(clients, commanders)


def _of_clients(clients: Sequence[PartHealth], commanders: Set[str]) -> Iterable[Alert]:
    """Urgent if half of them are silent, or one of command's."""
    silent = [part.part for part in clients if part.state == "stale"]
    silent.sort(key=lambda name: name not in commanders)
    if silent:
        everybody = len(silent) == len(clients)
        half = len(silent) > 1 and len(silent) >= HALF * len(clients)
        who = f"all {len(silent)} clients" if everybody and half else names_text(silent)
        yield Alert(
            severity="urgent" if everybody or half or silent[0] in commanders else "warning",
            text=f"{who} {'are' if len(silent) > 1 else 'is'} silent: {_unknown(silent)}",
        )
    unheard = [part.part for part in clients if part.state == "unknown"]
    if unheard:
        have = "have" if len(unheard) > 1 else "has"
        text = f"{names_text(unheard)} {have} never been heard of: {_unknown(unheard)}"
        yield Alert(severity="warning", text=text)


def _unknown(whom: Sequence[str]) -> str:
    return f"it is not known what reaches {'them' if len(whom) > 1 else 'it'}"


def _of_classes(classes: Iterable[ClassNow]) -> Iterable[Alert]:
    for each in classes:
        measured, predicted = each.delay_mean_seconds, each.predicted_delay_mean_seconds
        if measured is None or predicted is None or measured < SLOW_SECONDS:
            continue
        if measured > MUCH_SLOWER * predicted:
            text = (
                f"class {each.priority} takes {seconds_text(measured)} on average, "
                f"{seconds_text(predicted)} was predicted"
            )
            yield Alert(severity="warning", text=text)

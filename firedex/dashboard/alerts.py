"""What somebody should know, in words: the most urgent first. Pure.

A late subscription is said together with why, if the network says why: a link on its way that has
lost bandwidth, or that has more to carry than it can. Nothing is left unsaid that would make
silence a false all-clear: parts never heard of, and deliveries that were predicted and do not come.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from firedex.dashboard.alert_groups import by_name, few_of_each
from firedex.dashboard.delivery_alerts import Deliveries, delivery_alerts
from firedex.dashboard.link_shares import Port
from firedex.dashboard.plan_alerts import Unplanned, plan_alerts
from firedex.dashboard.unseen_links import UnseenLink
from firedex.dashboard.wording import (
    filter_words,
    loss_text,
    names_text,
    seconds_text,
    share_text,
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

__all__ = ["LinkTrouble", "alerts", "link_trouble", "with_reasons"]

MUCH_SLOWER = 3.0
SLOW_SECONDS = 0.05
"""Less than this is noise of the hosts, whatever was predicted."""
FULL = 1.0
HALF = 0.5
LEAST_LOSS = 0.05
"""A link that has lost less of its bandwidth is as it was built."""
NOTHING_WAITS = Unplanned()
RANKS = {"urgent": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTrouble:
    """What is wrong with a link, and since when, if that was said."""

    text: str
    since: datetime | None = None


def link_trouble(link: LinkNow) -> LinkTrouble | None:
    """What is wrong with a link, if anything."""
    whole = link.full_bandwidth_bits_per_second
    lost = 1 - link.bandwidth_bits_per_second / whole
    if lost >= LEAST_LOSS:
        return LinkTrouble(
            text=f"link {link.name} has lost {loss_text(lost)} its bandwidth",
            since=link.reduced_since,
        )
    if link.planned_load > FULL:
        needed = share_text(link.planned_load)
        return LinkTrouble(text=f"link {link.name} would need {needed} of its bandwidth")
    return None


def with_reasons(
    late: Iterable[LateSubscription],
    ways: Mapping[str, tuple[Port, ...]],
    troubles: Mapping[Port, LinkTrouble],
) -> list[LateSubscription]:
    """Late subscriptions with the first trouble on their way, if no reason is known yet."""
    explained = []
    for one in late:
        why = next((troubles[p] for p in ways.get(one.subscriber, ()) if p in troubles), None)
        if why is not None and one.reason is None:
            one = replace(one, reason=why.text, reason_since=why.since)
        explained.append(one)
    return explained


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
    """All there are to say; ``deliveries``: none while no plan is in force.

    ``commanders``: the clients of command.
    """
    said: list[Alert] = []
    if trouble is not None:
        text = f"the network does not follow the plan: {trouble.error}"
        said.append(Alert(severity="urgent", text=text, since=trouble.since))
    said += plan_alerts(unplanned, trouble=trouble is not None)
    said += delivery_alerts(deliveries)
    said += _of_lateness(late)
    if unseen:
        text = f"the controller does not see the link {names_text([one.name for one in unseen])}"
        said.append(Alert(severity="urgent", text=text, since=unseen[0].since))
    explained = {one.reason for one in late}
    for link in links:
        wrong = link_trouble(link)
        if wrong and wrong.text not in explained:
            said.append(Alert(severity="warning", text=wrong.text, since=wrong.since))
    said += _of_parts(parts, commanders)
    said += _of_classes(classes)
    return tuple(sorted(said, key=lambda alert: RANKS[alert.severity]))


def _of_lateness(late: Sequence[LateSubscription]) -> Iterable[Alert]:
    """One for each filter; the first of its subscribers speaks for the others."""
    groups = by_name((one.filter, one) for one in late)
    said = few_of_each([(name, those[0].subscriber) for name, those in groups.items()])
    for name in said:
        one = groups[name][0]
        how = "does not arrive"
        if one.late_by_seconds is not None:
            by = seconds_text(one.late_by_seconds) + " " if one.late_by_seconds else ""
            how = f"is {'predicted to be ' if one.predicted else ''}{by}late"
        why = f": {one.reason}" if one.reason else ""
        whom = names_text([each.subscriber for each in groups[name]])
        text = f"{filter_words(name)} {how} for {whom}{why}"
        yield Alert(severity="urgent", text=text, since=one.reason_since)
    more = len(groups) - len(said)
    if more:
        misses = "filter misses its" if more == 1 else "filters miss their"
        yield Alert(severity="urgent", text=f"{more} more {misses} deadline")


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

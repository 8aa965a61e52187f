"""What somebody should know, in words: the most urgent first. Pure.

A late subscription is said together with why, if the network says why: a link on its way that has
lost bandwidth, or that has more to carry than it can.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

from firedex.dashboard.link_shares import Port
from firedex.dashboard.wording import (
    clock_text,
    filter_words,
    loss_text,
    seconds_text,
    share_text,
)
from firedex.wire.overview import (
    Alert,
    ClassNow,
    LateSubscription,
    LinkNow,
    PartHealth,
)
from firedex.wire.service_api import PushTrouble

__all__ = ["alerts", "link_trouble", "with_reasons"]

MOST_LATE_ALERTS = 5
MUCH_SLOWER = 3.0
SLOW_SECONDS = 0.05
"""Less than this is noise of the hosts, whatever was predicted."""
FULL = 1.0
RANKS = {"urgent": 0, "warning": 1, "note": 2}


def link_trouble(link: LinkNow, now: datetime, zone: tzinfo | None = None) -> str | None:
    """What is wrong with a link, if anything."""
    whole = link.full_bandwidth_bits_per_second
    if link.bandwidth_bits_per_second < whole:
        lost = loss_text(1 - link.bandwidth_bits_per_second / whole)
        since = link.reduced_since
        when = f" since {clock_text(since, now, zone)}" if since else ""
        return f"link {link.name} has lost {lost} its bandwidth{when}"
    if link.planned_load > FULL:
        return f"link {link.name} would need {share_text(link.planned_load)} of its bandwidth"
    return None


def with_reasons(
    late: Iterable[LateSubscription],
    ways: Mapping[str, tuple[Port, ...]],
    troubles: Mapping[Port, str],
) -> list[LateSubscription]:
    """Late subscriptions with the first trouble on their way."""
    return [
        replace(
            one,
            reason=next(
                (troubles[port] for port in ways.get(one.subscriber, ()) if port in troubles),
                one.reason,
            ),
        )
        for one in late
    ]


def alerts(
    *,
    now: datetime,
    trouble: PushTrouble | None,
    late: Sequence[LateSubscription],
    links: Sequence[LinkNow],
    classes: Iterable[ClassNow],
    parts: Iterable[PartHealth],
    zone: tzinfo | None = None,
) -> tuple[Alert, ...]:
    """All there are to say."""
    said: list[Alert] = []
    if trouble is not None:
        since = clock_text(trouble.since, now, zone)
        text = f"the network does not follow the plan since {since}: {trouble.error}"
        said.append(Alert(severity="urgent", text=text))
    said += _of_lateness(late)
    explained = {one.reason for one in late}
    for link in links:
        text = link_trouble(link, now, zone) or ""
        if text and text not in explained:
            said.append(Alert(severity="warning", text=text))
    said += _of_parts(parts)
    said += _of_classes(classes)
    return tuple(sorted(said, key=lambda alert: RANKS[alert.severity]))


def _of_lateness(late: Sequence[LateSubscription]) -> Iterable[Alert]:
    """One for each filter; its worst subscriber speaks for the others."""
    worst: dict[str, LateSubscription] = {}
    others: dict[str, int] = {}
    for one in late:
        worst.setdefault(one.filter, one)
        others[one.filter] = others.get(one.filter, -1) + 1
    for name, one in list(worst.items())[:MOST_LATE_ALERTS]:
        whom = one.subscriber
        if others[name]:
            whom += f" and {others[name]} more"
        how = "does not arrive"
        if one.late_by_seconds is not None:
            predicted = "" if one.delay_p95_seconds is not None else "predicted to be "
            how = f"is {predicted}{seconds_text(one.late_by_seconds)} late"
        why = f": {one.reason}" if one.reason else ""
        text = f"{filter_words(name)} {how} for {whom}{why}"
        yield Alert(severity="urgent", text=text)
    if len(worst) > MOST_LATE_ALERTS:
        more = len(worst) - MOST_LATE_ALERTS
        yield Alert(severity="urgent", text=f"{more} more filters miss their deadline")


def _of_parts(parts: Iterable[PartHealth]) -> Iterable[Alert]:
    silent = []
    for part in parts:
        if part.state == "trouble":
            name = part.part if part.part == part.kind else f"{part.kind} {part.part}"
            text = f"{name}: {part.detail or 'not well'}"
            yield Alert(severity="urgent", text=text)
        elif part.state == "stale" and part.kind == "client":
            silent.append(part)
        elif part.state == "stale":
            ago = seconds_text(part.seconds_ago or 0.0)
            name = part.part if part.part == part.kind else f"{part.kind} {part.part}"
            yield Alert(severity="urgent", text=f"{name} has not been heard for {ago}")
    if len(silent) > MOST_LATE_ALERTS:
        yield Alert(severity="warning", text=f"{len(silent)} clients have not been heard lately")
        return
    for part in silent:
        ago = seconds_text(part.seconds_ago or 0.0)
        text = f"client {part.part} has not been heard for {ago}"
        yield Alert(severity="warning", text=text)


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

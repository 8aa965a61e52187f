"""What does not come, or is not published any more, in words. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firedex.dashboard.alert_groups import by_name, few_of_each
from firedex.dashboard.delivery_gaps import ShortFlow, Silence
from firedex.dashboard.quiet_topics import QuietTopic
from firedex.dashboard.wording import (
    filter_words,
    names_text,
    rate_text,
    seconds_text,
    share_text,
)
from firedex.wire.overview import Alert

__all__ = ["Deliveries", "Unpublished", "delivery_alerts"]

MOST_ALERTS = 5
WORTH_SAYING = 0.01
"""Of a declared rate: less is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublished:
    """A topic that somebody wants and nobody publishes; ``urgent``: it matters to them."""

    topic: QuietTopic
    urgent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """What comes, beside what was predicted. ``measured``: anything was reported at all."""

    measured: bool
    predicted_per_second: float
    window_seconds: float
    silent: Sequence[Silence] = ()
    short: Sequence[ShortFlow] = ()
    unpublished: Sequence[Unpublished] = ()
    all_silent: bool = False


def delivery_alerts(found: Deliveries | None) -> Iterable[Alert]:
    """All there are; ``found``: none while no plan is in force."""
    if found is None:
        yield Alert(severity="note", text="no plan is in force yet")
        return
    yield from _of_publishers(found.unpublished)
    if found.predicted_per_second <= 0:
        yield Alert(severity="note", text="nothing is expected: nobody publishes what is wanted")
    elif found.all_silent:
        text = (
            f"nothing is delivered to anybody: {rate_text(found.predicted_per_second)} were "
            f"predicted, none was reported for {seconds_text(found.window_seconds)}"
        )
        yield Alert(severity="urgent", text=text)
        return
    elif not found.measured:
        yield Alert(severity="note", text="nothing has been measured under this plan yet")
    yield from _of_silence(found.silent)
    short: dict[int, list[ShortFlow]] = {}
    for one in found.short:
        short.setdefault(one.priority, []).append(one)
    for priority, those in sorted(short.items()):
        worst = those[0]
        text = (
            f"only {share_text(worst.success_rate)} of class {priority} reaches "
            f"{names_text([one.subscriber for one in those])}: "
            f"{share_text(worst.predicted_success_rate)} was predicted"
        )
        yield Alert(severity="urgent", text=text)


def _of_publishers(those: Sequence[Unpublished]) -> Iterable[Alert]:
    ordered = sorted(those, key=lambda one: not one.urgent)
    for one in ordered[:MOST_ALERTS]:
        topic = one.topic
        declared = rate_text(topic.declared_per_second)
        are = "is" if declared.startswith("1 event ") else "are"
        text = f"{filter_words(topic.topic)} is no longer published: {declared} {are} declared"
        if topic.counted_per_second >= WORTH_SAYING * topic.declared_per_second:
            text += f", {rate_text(topic.counted_per_second)} counted"
        yield Alert(severity="urgent" if one.urgent else "warning", text=text)
    rest = ordered[MOST_ALERTS:]
    if rest:
        topics = "topic is" if len(rest) == 1 else "topics are"
        text = f"{len(rest)} more {topics} no longer published"
        yield Alert(severity="urgent" if rest[0].urgent else "warning", text=text)


def _of_silence(silent: Sequence[Silence]) -> Iterable[Alert]:
    """By class where nothing of it reaches somebody, else by filter or topic; most worth first."""
    classes: dict[int, list[Silence]] = {}
    for one in silent:
        if one.of_class:
            classes.setdefault(one.priority, []).append(one)
    for priority, those in sorted(classes.items()):
        yield _silence_alert(f"class {priority}", those)
    parts = by_name(
        (name, one) for one in silent if not one.of_class for name in one.topics or (one.filter,)
    )
    said = few_of_each([(name, those[0].subscriber) for name, those in parts.items()])
    for name in said:
        yield _silence_alert(filter_words(name), parts[name])
    more = len(parts) - len(said)
    if more:
        what = "filter or topic" if more == 1 else "filters or topics"
        yield Alert(severity="urgent", text=f"nothing comes of {more} more {what}")


def _silence_alert(what: str, those: Sequence[Silence]) -> Alert:
    expected = rate_text(sum(one.expected_per_second / max(len(one.topics), 1) for one in those))
    whom = names_text([one.subscriber for one in those])
    were = "was" if expected.startswith("1 event ") else "were"
    text = f"nothing of {what} reaches {whom}: {expected} {were} predicted"
    return Alert(severity="urgent", text=text)

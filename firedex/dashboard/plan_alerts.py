"""What no plan includes yet, in words. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from firedex.dashboard.wording import names_text
from firedex.wire.overview import Alert

__all__ = ["Unplanned", "plan_alerts"]

PATIENCE_SECONDS = 10.0
"""A plan takes a moment."""
TOO_LONG_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """Changes that wait for a plan, for so long; ``subscribers``: who is registered in vain."""

    changes: int = 0
    since: datetime | None = None
    waiting_seconds: float = 0.0
    subscribers: Sequence[str] = ()


def plan_alerts(waiting: Unplanned, *, trouble: bool) -> Iterable[Alert]:
    """``trouble``: it is said already why no plan comes into force."""
    who = waiting.subscribers
    if not waiting.changes:
        if who:
            are = "are" if len(who) > 1 else "is"
            yield Alert(severity="urgent", text=f"{names_text(who)} {are} in no plan")
        return
    if waiting.waiting_seconds <= PATIENCE_SECONDS or (trouble and not who):
        return
    what = "a change is" if waiting.changes == 1 else f"{waiting.changes} changes are"
    text = f"{what} not planned yet" + (f", nothing is for {names_text(who)}" if who else "")
    urgent = bool(who) or waiting.waiting_seconds > TOO_LONG_SECONDS
    yield Alert(severity="urgent" if urgent else "warning", text=text, since=waiting.since)

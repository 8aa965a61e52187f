"""Alerts about security events that the parts of a site reported. Pure."""

from collections.abc import Iterable

from firedex.dashboard.wording import shorten
from firedex.wire.overview import Alert
from firedex.wire.security import SecurityEvent
from firedex.wire.service_api import HeartbeatRecord

__all__ = ["security_alerts"]

RECENT_SECONDS = 60.0
"""Events in older heartbeats are not shown."""
MAX_SECURITY_ALERTS = 20


def security_alerts(heartbeats: Iterable[HeartbeatRecord]) -> tuple[Alert, ...]:
    """Return one alert for each security event, the most frequent first.

    Clients could report anything, so their events are not shown.
    """
    events = [
        event
        for record in heartbeats
        if record.heartbeat.kind != "client" and record.seconds_ago <= RECENT_SECONDS
        for event in record.heartbeat.security_events
    ]
    events.sort(key=lambda event: -event.count)
    found = [_alert(event) for event in events[:MAX_SECURITY_ALERTS]]
    if len(events) > MAX_SECURITY_ALERTS:
        text = f"security: {len(events) - MAX_SECURITY_ALERTS} more security events"
        found.append(Alert(severity="warning", text=text))
    return tuple(found)


def _alert(event: SecurityEvent) -> Alert:
    times = "once" if event.count == 1 else f"{event.count:,} times"
    kind = event.kind.replace("-", " ")
    detail = f": {event.detail}" if event.detail else ""
    text = f"security, {event.part}: {kind} {shorten(event.subject)}, {times}{detail}"
    return Alert(severity="urgent", text=text, since=event.first_at)

from datetime import UTC, datetime
from typing import Any

from firedex.dashboard.security_alerts import MAX_SECURITY_ALERTS, security_alerts
from firedex.wire import Heartbeat, SecurityEvent
from firedex.wire.service_api import HeartbeatRecord

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(subject: str, count: int = 5) -> SecurityEvent:
    return SecurityEvent(
        part="gateway", kind="policed-topic", subject=subject, count=count, first_at=AT, last_at=AT
    )


def record(*events: SecurityEvent, kind: Any = "gateway", age: float = 1.0) -> HeartbeatRecord:
    heartbeat = Heartbeat(
        part="gateway", kind=kind, started_at=AT, sent_at=AT, security_events=events
    )
    return HeartbeatRecord(heartbeat=heartbeat, seconds_ago=age)


def test_alert_names_the_cause_and_the_number_of_occurrences() -> None:
    (alert,) = security_alerts([record(event("alarm/noise", 12_345))])
    assert alert.text == "security, gateway: policed topic alarm/noise, 12,345 times"
    assert (alert.severity, alert.since) == ("urgent", AT)


def test_events_of_clients_and_old_heartbeats_are_not_shown() -> None:
    assert security_alerts([record(event("a"), kind="client"), record(event("b"), age=61.0)]) == ()


def test_number_of_alerts_is_limited() -> None:
    events = [event(f"topic/{number}", 1 + number) for number in range(100)]
    found = security_alerts([record(*events)])
    assert len(found) == MAX_SECURITY_ALERTS + 1
    assert "topic/99" in found[0].text
    assert found[-1].text == "security: 80 more security events"

"""Alert texts, and the values that cause them; no browser, no service."""

from datetime import UTC, datetime
from typing import Any

import pytest

from firedex.dashboard.alerts import Deliveries, PendingChanges, UnpublishedTopic, alerts
from firedex.dashboard.delivery_gaps import LossyFlow, SilentDelivery, SilentTopic
from firedex.dashboard.flow_measurements import FlowForecast, FlowMeasurement
from firedex.dashboard.links import (
    LinkTrouble,
    MissingLink,
    Port,
    add_reasons,
    link_trouble,
    lowest_percentiles,
)
from firedex.dashboard.wording import filter_words, loss_text, rate_text, seconds_text
from firedex.wire.overview import (
    ClassShare,
    ClassStatus,
    LateSubscription,
    LinkStatus,
    PartHealth,
)
from firedex.wire.service_api import PushFailure

DELIVERED = Deliveries(measured=True, predicted_per_second=10.0, window_seconds=30.0)
SINCE = datetime(2026, 3, 1, 14, 2, tzinfo=UTC)


def late_subscription(**changes: Any) -> LateSubscription:
    given: dict[str, Any] = {
        "subscriber": "crew-7",
        "filter": "floor/7/smoke",
        "priority": 0,
        "deadline_seconds": 0.5,
        "predicted_delay_seconds": 0.3,
        "delay_p95_seconds": 1.7,
        "late_by_seconds": 1.2,
    }
    return LateSubscription(**{**given, **changes})


def link_status(bandwidth: float = 5e6, planned: float = 1e6, **changes: Any) -> LinkStatus:
    given: dict[str, Any] = {
        "switch": "s3",
        "bandwidth_bits_per_second": bandwidth,
        "full_bandwidth_bits_per_second": 10e6,
        "reduced_since": SINCE,
        "classes": (ClassShare(priority=0, planned_bits_per_second=planned),),
    }
    return LinkStatus(**{**given, **changes})


NO_PROBLEMS: dict[str, Any] = {
    "trouble": None,
    "late": (),
    "links": (),
    "classes": (),
    "parts": (),
    "deliveries": DELIVERED,
}


def alert_texts(**given: Any) -> list[str]:
    return [
        f"{alert.text} since {alert.since:%H:%M}" if alert.since else alert.text
        for alert in alerts(**{**NO_PROBLEMS, **given})
    ]


def test_late_subscription_is_reported_with_the_link_that_causes_it() -> None:
    trouble = link_trouble(link_status())
    assert trouble is not None
    paths = {"crew-7": (("s1", "s3"), ("s3", None))}
    predicted = late_subscription(predicted_delay_seconds=1.6)
    explained = add_reasons([predicted], paths, {("s3", None): trouble})
    assert alert_texts(late=explained, links=[link_status()]) == [
        "floor 7 smoke is 1.2 s late for crew-7: link s3 has lost half its bandwidth since 14:02"
    ]


def reason_with_problem(
    subscription: LateSubscription, trouble: LinkTrouble, **slowest: float
) -> str | None:
    paths = {"crew-7": (("s3", None),)}
    slowness: dict[Port, dict[int, float]] = {
        ("s3", None): {int(name[1:]): p95 for name, p95 in slowest.items()}
    }
    troubles: dict[Port, LinkTrouble] = {("s3", None): trouble}
    (found,) = add_reasons([subscription], paths, troubles, slowness)
    return found.reason


def test_unrelated_link_problem_is_reported_as_meanwhile() -> None:
    lost = link_trouble(link_status())
    assert lost is not None
    meanwhile = f"meanwhile {lost.text}"
    assert reason_with_problem(late_subscription(), lost) == meanwhile, (
        "the plan with this link predicts no lateness"
    )
    assert reason_with_problem(late_subscription(predicted_delay_seconds=None), lost) == lost.text
    assert reason_with_problem(late_subscription(), lost, c1=0.02) == meanwhile, (
        "a lower class is faster"
    )
    assert reason_with_problem(late_subscription(), lost, c1=1.9, c2=2.5) == lost.text, (
        "all lower classes are as slow"
    )
    assert reason_with_problem(late_subscription(priority=2), lost, c0=1.9) == meanwhile, (
        "higher classes prove nothing"
    )
    overloaded = link_trouble(link_status(planned=6e6))
    assert overloaded is not None
    assert reason_with_problem(late_subscription(), overloaded) == overloaded.text, (
        "the link is overloaded"
    )
    explained = add_reasons(
        [late_subscription()], {"crew-7": (("s3", None),)}, {("s3", None): lost}
    )
    assert alert_texts(late=explained, links=[link_status()]) == [
        "floor 7 smoke is 1.2 s late for crew-7; "
        "meanwhile link s3 has lost half its bandwidth since 14:02"
    ]


def test_slowness_of_a_port_is_its_lowest_percentile() -> None:
    def flow(p95: float | None) -> FlowMeasurement:
        return FlowMeasurement(
            delivered=9, numbered=9, missing=0, delay_mean_seconds=p95, delay_p95_seconds=p95
        )

    forecast = FlowForecast(priority=1, offered_per_second=1.0, delivered_per_second=1.0)
    port = ("s3", None)
    flows = {(name, 0): forecast for name in ("a", "b", "c")}
    measured = {("a", 0): flow(2.0), ("b", 0): flow(1.0), ("c", 0): flow(0.1), ("d", 0): flow(0.1)}
    paths = {"a": (port,), "b": (port,), "c": (("s9", None),), "d": (port,)}
    assert lowest_percentiles([port], paths, flows, measured) == {port: {1: 1.0}}


def test_link_problem_is_reported_if_its_late_subscriptions_are_hidden() -> None:
    others = [late_subscription(subscriber=f"c{n}", filter=f"x/{n}") for n in range(5)]
    hidden = late_subscription(reason="link s3 has lost half its bandwidth", reason_since=SINCE)
    assert "link s3 has lost half its bandwidth since 14:02" in alert_texts(
        late=[*others, hidden], links=[link_status()]
    )


def test_link_outside_the_path_is_no_reason() -> None:
    troubles: dict[Port, LinkTrouble] = {("s9", None): LinkTrouble(text="link s9 is gone")}
    (same,) = add_reasons([late_subscription()], {"crew-7": (("s3", None),)}, troubles)
    assert same.reason is None


def test_known_reason_is_kept_and_small_loss_is_ignored() -> None:
    trouble = LinkTrouble(text="link s3 has lost half its bandwidth", since=SINCE)
    known = late_subscription(reason="its class is full")
    (same,) = add_reasons([known], {"crew-7": (("s3", None),)}, {("s3", None): trouble})
    assert (same.reason, same.reason_since) == ("its class is full", None)
    assert link_trouble(link_status(bandwidth=9.6e6)) is None
    lost = link_trouble(link_status(bandwidth=9.4e6))
    assert lost is not None
    assert lost.text == "link s3 has lost 6 % of its bandwidth"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "floor 7 smoke is 1.2 s late for crew-7"),
        ({"predicted": True}, "floor 7 smoke is predicted to be 1.2 s late for crew-7"),
        (
            {"predicted": True, "late_by_seconds": 0.0},
            "floor 7 smoke is predicted to be late for crew-7",
        ),
        ({"late_by_seconds": None}, "floor 7 smoke does not arrive for crew-7"),
    ],
)
def test_lateness_alert_text(changes: dict[str, Any], words: str) -> None:
    assert alert_texts(late=[late_subscription(**changes)]) == [words]


def test_late_subscribers_of_a_filter_share_one_alert() -> None:
    several = [late_subscription(subscriber=f"crew-{n}") for n in range(3)]
    assert alert_texts(late=several) == ["floor 7 smoke is 1.2 s late for crew-0 and 2 more"]
    many = [late_subscription(filter=f"floor/{n}/smoke", subscriber=f"crew-{n}") for n in range(8)]
    texts = alert_texts(late=many)
    assert len(texts) == 6
    assert texts[-1] == "3 more filters miss their deadline"


def test_alerts_about_one_subscriber_are_limited() -> None:
    many = [late_subscription(filter=f"x/{n}", subscriber="evil") for n in range(8)]
    texts = alert_texts(late=[*many, late_subscription(subscriber="command")])
    assert [text.rpartition(" for ")[2] for text in texts[:3]] == ["evil", "evil", "command"]
    assert texts[3:] == ["6 more filters miss their deadline"]
    silent = [silent_delivery(0, 4.0, whole_class=False, filter=f"x/{n}") for n in range(4)]
    texts = alert_texts(deliveries=Deliveries(measured=True, silent=silent, **PREDICTED))
    assert (len(texts), texts[-1]) == (3, "2 more filters or topics deliver no events")


def test_names_cannot_imitate_texts_of_the_dashboard() -> None:
    assert filter_words("No alerts: all is well") == '"No alerts: all is well"'
    assert filter_words("x" * 3000) == "x" * 59 + "…"
    assert len(filter_words("a b" * 3000)) == 62
    assert filter_words("floor/\u202e7") == "floor \N{REPLACEMENT CHARACTER}7"
    assert alert_texts(late=[late_subscription(subscriber="y" * 128)])[0].endswith(
        f"late for {'y' * 59}…"
    )


def test_link_problem_without_late_subscriptions_is_a_warning() -> None:
    assert alert_texts(links=[link_status()]) == ["link s3 has lost half its bandwidth since 14:02"]
    full = link_status(bandwidth=10e6, planned=13e6)
    assert alert_texts(links=[full]) == ["link s3 is overloaded: 130 % of its bandwidth is planned"]
    assert alert_texts(links=[link_status(bandwidth=10e6)]) == []


def test_links_missing_in_the_topology_are_urgent() -> None:
    unseen = [MissingLink(name=f"core to floor-{n}", since=SINCE) for n in (7, 8)]
    (alert,) = alerts(**{**NO_PROBLEMS, "unseen": unseen})
    assert alert.severity == "urgent"
    assert alert_texts(unseen=unseen) == [
        "the controller does not see the link core to floor-7 and 1 more since 14:02"
    ]


def test_stale_and_failing_components_are_reported() -> None:
    silent = PartHealth(part="crew-2", kind="client", state="stale", seconds_ago=40.0)
    gateway = PartHealth(part="gateway", kind="gateway", state="stale", seconds_ago=300.0)
    switch = PartHealth(part="s3", kind="switch", state="trouble", detail="not connected")
    healthy = PartHealth(part="crew-1", kind="client", state="healthy", seconds_ago=1.0)
    assert alert_texts(parts=[healthy, silent, gateway, switch]) == [
        "gateway has sent no heartbeat for 5 min",
        "switch s3: not connected",
        "crew-2 has stopped sending heartbeats: its deliveries are unknown",
    ]
    several = [
        PartHealth(part=f"c{n}", kind="client", state="stale", seconds_ago=40.0) for n in range(6)
    ]
    assert alert_texts(parts=several) == [
        "all 6 clients have stopped sending heartbeats: their deliveries are unknown"
    ]
    given = {**NO_PROBLEMS, "parts": [healthy, silent], "deliveries": None}
    ranks = [a.severity for a in alerts(**given)]
    assert ranks == ["warning", "note"], "warnings come before notes"


@pytest.mark.parametrize(
    ("silent", "healthy", "severity"),
    [(1, 0, "urgent"), (1, 1, "warning"), (2, 2, "urgent"), (2, 3, "warning"), (9, 0, "urgent")],
)
def test_stale_clients_are_urgent_if_many_or_of_command(
    silent: int, healthy: int, severity: str
) -> None:
    parts = [
        PartHealth(part=f"c{n}", kind="client", state="stale" if n < silent else "healthy")
        for n in range(silent + healthy)
    ]
    (alert,) = alerts(**{**NO_PROBLEMS, "parts": parts})
    assert alert.severity == severity
    (command,) = alerts(**{**NO_PROBLEMS, "parts": parts, "commanders": {f"c{silent - 1}"}})
    assert command.severity == "urgent"
    assert command.text.startswith((f"c{silent - 1} ", "all "))


def test_failed_push_is_the_first_alert() -> None:
    trouble = PushFailure(
        error="503 not connected core", since=SINCE, attempts=3, next_attempt_seconds=2.0
    )
    texts = alert_texts(trouble=trouble, late=[late_subscription()])
    assert texts[0] == "the latest configuration is not active: 503 not connected core since 14:02"


def test_changes_that_stay_inactive_are_reported() -> None:
    def texts_for_waiting(
        changes: int, seconds: float, *subscriber_ids: str, trouble: Any = None
    ) -> list[str]:
        waiting = PendingChanges(
            changes=changes, since=SINCE, waiting_seconds=seconds, subscribers=subscriber_ids
        )
        return alert_texts(pending=waiting, trouble=trouble)

    assert texts_for_waiting(1, 9.0) == []
    assert texts_for_waiting(1, 11.0) == ["a change is not active yet since 14:02"]
    assert texts_for_waiting(3, 11.0, "crew-8", "crew-9") == [
        "3 changes are not active yet; no configuration includes crew-8 and 1 more since 14:02"
    ]
    assert texts_for_waiting(0, 0.0, "crew-8", "crew-9") == [
        "crew-8 and 1 more are missing from the active configuration"
    ]
    refused = PushFailure(error="503", since=SINCE, attempts=3, next_attempt_seconds=2.0)
    assert len(texts_for_waiting(1, 11.0, trouble=refused)) == 1, "only the failed push is reported"
    severities = [
        alerts(**{**NO_PROBLEMS, "pending": PendingChanges(changes=1, waiting_seconds=s)})[
            0
        ].severity
        for s in (30.0, 90.0)
    ]
    assert severities == ["warning", "urgent"]


def test_possible_cause_comes_before_its_effect() -> None:
    silent = PartHealth(part="crew-7", kind="client", state="stale", seconds_ago=40.0)
    texts = alert_texts(parts=[silent], late=[late_subscription(predicted=True)])
    assert texts[0] == "crew-7 has stopped sending heartbeats: its deliveries are unknown"


def test_class_much_slower_than_predicted_is_reported() -> None:
    given: dict[str, Any] = {
        "priority": 2,
        "subscriptions": 3,
        "offered_events_per_second": 10.0,
        "predicted_delay_mean_seconds": 0.2,
        "predicted_delay_p95_seconds": 0.4,
        "predicted_success_rate": 1.0,
    }
    slow = ClassStatus(**given, delay_mean_seconds=0.9)
    assert alert_texts(classes=[slow]) == ["class 2 has a mean delay of 0.9 s; 0.2 s was predicted"]
    assert alert_texts(classes=[ClassStatus(**given, delay_mean_seconds=0.5)]) == []
    assert alert_texts(classes=[ClassStatus(**given)]) == []


def test_numbers_and_filters_as_text() -> None:
    assert [seconds_text(s) for s in (0.0123, 1.2, 42.0, 600.0, 7200.0)] == [
        "12 ms",
        "1.2 s",
        "42 s",
        "10 min",
        "2 h",
    ]
    assert [loss_text(share) for share in (0.5, 0.26, 0.6, 1.0)] == [
        "half",
        "a quarter of",
        "60 % of",
        "all",
    ]
    assert [rate_text(rate) for rate in (45.2, 0.5, 1.0)] == [
        "45 events per second",
        "0.5 events per second",
        "1 event per second",
    ]
    assert [filter_words(name) for name in ("floor/7/smoke", "floor/+/heat/#", "#")] == [
        "floor 7 smoke",
        "floor any heat all",
        "all",
    ]


# -- missing data is reported ----------------------------------------------------------------------


def part_without_heartbeat(
    kind: Any, part: str | None = None, detail: str | None = None
) -> PartHealth:
    return PartHealth(part=part or kind, kind=kind, state="unknown", detail=detail)


def test_components_without_any_heartbeat_are_reported() -> None:
    assert alert_texts(
        parts=[
            part_without_heartbeat("broker"),
            part_without_heartbeat("gateway"),
            part_without_heartbeat("controller"),
        ]
    ) == [
        "broker has never sent a heartbeat",
        "gateway has never sent a heartbeat",
        "controller has never sent a heartbeat",
    ]
    assert alert_texts(parts=[part_without_heartbeat("controller", detail="not configured")]) == [
        "controller: not configured"
    ]
    clients = [part_without_heartbeat("client", f"crew-{n}") for n in range(3)]
    assert alert_texts(parts=clients) == [
        "crew-0 and 2 more have never sent a heartbeat: their deliveries are unknown"
    ]
    assert alert_texts() == [], "a healthy site has no alerts"


def test_missing_measurements_and_configuration_are_reported() -> None:
    assert alert_texts(deliveries=None) == ["no configuration is active yet"]
    yet = Deliveries(measured=False, predicted_per_second=10.0, window_seconds=30.0)
    assert alert_texts(deliveries=yet) == [
        "no measurements were reported under the active configuration yet"
    ]
    none = Deliveries(measured=False, predicted_per_second=0.0, window_seconds=30.0)
    assert alert_texts(deliveries=none) == [
        "no events are expected: no publisher publishes a topic that is subscribed to"
    ]


def silent_delivery(flow: int, expected: float, **changes: Any) -> SilentDelivery:
    given: dict[str, Any] = {
        "subscriber": "crew-1",
        "filter": "floor/7/smoke",
        "flow": flow,
        "priority": flow,
        "utility": 1.0,
        "offered_per_second": expected,
        "expected_per_second": expected,
        "whole_class": True,
    }
    return SilentDelivery(**{**given, **changes})


PREDICTED: dict[str, Any] = {"predicted_per_second": 25.1, "window_seconds": 30.0}


def test_missing_deliveries_are_reported_by_class() -> None:
    silent = [silent_delivery(0, 5.0), silent_delivery(1, 20.0)]
    some = Deliveries(measured=True, silent=silent[1:], **PREDICTED)
    assert alert_texts(deliveries=some) == [
        "crew-1 receives no events of class 1: 20 events per second were predicted"
    ]
    all_of_it = Deliveries(measured=False, silent=silent, all_silent=True, **PREDICTED)
    assert alert_texts(deliveries=all_of_it) == [
        "no subscriber receives events: 25 events per second were predicted, "
        "none was reported for 30 s"
    ]
    short = [
        LossyFlow(subscriber="crew-1", priority=n, success_rate=0.2, predicted_success_rate=share)
        for n, share in enumerate((1.0, 0.5))
    ]
    assert alert_texts(deliveries=Deliveries(measured=True, lossy_flows=short, **PREDICTED)) == [
        "crew-1 receives only 20 % of the events of class 0: 100 % was predicted",
        "crew-1 receives only 20 % of the events of class 1: 50 % was predicted",
    ]


def test_missing_deliveries_are_reported_by_filter_if_the_class_delivers() -> None:
    silent = [
        silent_delivery(0, 4.0, whole_class=False),
        silent_delivery(0, 4.0, whole_class=False, subscriber="crew-2"),
        silent_delivery(0, 1.0, whole_class=False, filter="heat/#", topics=("heat/5",), part=0.5),
    ]
    assert alert_texts(deliveries=Deliveries(measured=True, silent=silent, **PREDICTED)) == [
        "crew-1 and 1 more receive no events of floor 7 smoke: 8 events per second were predicted",
        "crew-1 receives no events of heat 5: 1 event per second was predicted",
    ]


def test_silent_subscription_is_not_also_reported_as_late() -> None:
    never = late_subscription(subscriber="crew-1", late_by_seconds=None, delay_p95_seconds=None)
    by_filter = Deliveries(
        measured=True, silent=[silent_delivery(0, 4.0, whole_class=False)], **PREDICTED
    )
    assert alert_texts(deliveries=by_filter, late=[never]) == [
        "crew-1 receives no events of floor 7 smoke: 4 events per second were predicted"
    ]
    by_class = Deliveries(measured=True, silent=[silent_delivery(0, 4.0)], **PREDICTED)
    assert alert_texts(deliveries=by_class, late=[never]) == [
        "crew-1 receives no events of class 0: 4 events per second were predicted",
        "floor 7 smoke does not arrive for crew-1",
    ]


def unpublished_topic(topic: str, counted: float = 0.0, *, urgent: bool = True) -> UnpublishedTopic:
    found = SilentTopic(topic=topic, declared_per_second=10.0, counted_per_second=counted)
    return UnpublishedTopic(topic=found, urgent=urgent)


def test_declared_topics_without_events_are_reported() -> None:
    group = [
        unpublished_topic("floor/7/heat", 0.2, urgent=False),
        unpublished_topic("floor/7/smoke"),
    ]
    found = Deliveries(measured=True, unpublished=group, **PREDICTED)
    assert alert_texts(deliveries=found) == [
        "floor 7 smoke is no longer published: 10 events per second are declared",
        "floor 7 heat is no longer published: 10 events per second are declared, "
        "0.2 events per second counted",
    ]
    assert [a.severity for a in alerts(**{**NO_PROBLEMS, "deliveries": found})] == [
        "urgent",
        "warning",
    ]
    many = [unpublished_topic(f"floor/{n}/smoke") for n in range(7)]
    texts = alert_texts(deliveries=Deliveries(measured=True, unpublished=many, **PREDICTED))
    assert (len(texts), texts[-1]) == (6, "2 more topics are no longer published")
